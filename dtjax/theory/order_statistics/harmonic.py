"""Harmonic numbers and their differences without cancellation."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dtjax.theory import _checks
from dtjax.theory._checks import FloatArray

# Below this index sums are taken term by term, above it the expansion at half-integers holds.
_SERIES_FROM = 20
# H_m = ln(x) + Euler's constant + sum of c_j x^(-2 j), with x = m + 1/2.
_SERIES = (1 / 24, -7 / 960, 31 / 8064, -127 / 30720, 511 / 67584)


def harmonic(m: ArrayLike) -> FloatArray:
    """Compute the harmonic number H_m.

    H_m = 1 + 1/2 + ... + 1/m = digamma(m + 1) + Euler's constant, and H_0 = 0.

    Args:
        m: integers of at least 0, any shape and size (floats that are whole numbers too).

    Returns:
        H_m, the shape of `m`; relative error below 1e-15.

    Raises:
        ValueError: if an entry of `m` is negative, not whole or not finite.

    Example:
        >>> round(float(harmonic(64)), 3)
        4.744

    Reference:
        Commonly quoted; checked against exact fractions.
    """
    number = _checks.integer("harmonic", "m", m, 0)
    return np.where(number == 0, 0.0, special.digamma(number + 1) + np.euler_gamma)[()]


def harmonic_difference(n: ArrayLike, k: ArrayLike) -> FloatArray:
    """Compute H_n - H_(n-k) without cancellation.

    The sum of 1/i for i from n - k + 1 to n: the mean of the k-th smallest of n exponential
    times of mean 1. Its limit for n to infinity at a fixed k/n is `harmonic_limit(k/n)`.

    Args:
        n: integers of at least 1, any size.
        k: integers between 0 and n, broadcast against `n`.

    Returns:
        The difference; relative error below 2e-15, also for k much smaller than n.

    Raises:
        ValueError: if n or k is out of range or not whole.

    Example:
        >>> round(float(harmonic_difference(8, 4)), 4)
        0.6345
        >>> round(float(harmonic_difference(10**15, 1)) * 10**15, 6)
        1.0

    Reference:
        Commonly quoted; checked against exact fractions.
    """
    total, order = _checks.workers_and_order("harmonic_difference", n, k, low=0)
    direct, low, high = _small_terms(total, order, power=1)
    x, y = low + 0.5, high + 0.5
    series = np.log1p((high - low) / x)
    for j, c in enumerate(_SERIES, start=1):
        series += c * (y ** (-2 * j) - x ** (-2 * j))
    return (direct + series)[()]


def harmonic_limit(fraction: ArrayLike) -> FloatArray:
    """Compute the limit of H_n - H_(n-k) for many workers at k = fraction x n.

    ln(1 / (1 - fraction)), infinite at fraction 1. The difference to a finite n is about
    fraction / (2 n (1 - fraction)).

    Args:
        fraction: share k/n of the workers that an update waits for, between 0 and 1.

    Returns:
        The limit, the shape of `fraction`.

    Raises:
        ValueError: if a fraction lies outside 0..1 or is NaN.

    Example:
        >>> round(float(harmonic_limit(0.75)), 3)
        1.386

    Reference:
        Commonly quoted; follows from H_m - ln(m) tending to Euler's constant.
    """
    share = _checks.fraction("harmonic_limit", "fraction", fraction)
    with np.errstate(divide="ignore"):
        return (-np.log1p(-share))[()]


def inverse_square_difference(
    total: NDArray[np.float64], order: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute the sum of 1/i^2 for i from total - order + 1 to total, without cancellation."""
    direct, low, high = _small_terms(total, order, power=2)
    x, y = low + 0.5, high + 0.5
    series = (high - low) / (x * y)
    for j, c in enumerate(_SERIES, start=1):
        series += 2 * j * c * (y ** (-2 * j - 1) - x ** (-2 * j - 1))
    return direct + series


def _small_terms(
    total: NDArray[np.float64], order: NDArray[np.float64], power: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Sum i^-power over the small i; return also the limits low < i <= high of what is left."""
    first = total - order
    direct = np.zeros(first.shape)
    for i in range(_SERIES_FROM, 0, -1):
        direct += np.where((i > first) & (i <= total), float(i) ** -power, 0.0)
    low = np.maximum(first, _SERIES_FROM)
    return direct, low, np.maximum(total, low)
