"""Moments of X_(k:n), the k-th smallest of n independent times of one law, in closed form."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dtjax.theory import _checks
from dtjax.theory._checks import FloatArray
from dtjax.theory.order_statistics.harmonic import harmonic_difference, inverse_square_difference


def exponential_order_statistic_mean(
    n: ArrayLike, k: ArrayLike, per_second: ArrayLike = 1.0, shift: ArrayLike = 0.0
) -> FloatArray:
    """Compute E[X_(k:n)] of exponential times, shifted or not.

    shift + (H_n - H_(n-k)) / mu.

    Args:
        n: workers, at least 1.
        k: rank from the smallest, 1 to n.
        per_second: mu, of the exponential part.
        shift: smallest possible time, seconds.

    Returns:
        Seconds, the broadcast shape of the arguments.

    Raises:
        ValueError: if n or k is out of range, `per_second` is not positive or a shift is negative.

    Example:
        >>> round(float(exponential_order_statistic_mean(8, 8)), 4)
        2.7179

    Reference:
        Commonly quoted; checked against quadrature.
    """
    function = "exponential_order_statistic_mean"
    total, order = _checks.workers_and_order(function, n, k)
    speed = _checks.positive(function, "per_second", per_second)
    start = _checks.non_negative(function, "shift", shift)
    return (start + harmonic_difference(total, order) / speed)[()]


def exponential_order_statistic_variance(
    n: ArrayLike, k: ArrayLike, per_second: ArrayLike = 1.0
) -> FloatArray:
    """Compute the variance of X_(k:n) of exponential times; a shift does not change it.

    (1/mu^2) x sum of 1/i^2 for i from n - k + 1 to n.

    Args:
        n: workers, at least 1.
        k: rank from the smallest, 1 to n.
        per_second: mu, of the exponential part.

    Returns:
        Seconds squared, the broadcast shape of the arguments.

    Raises:
        ValueError: if n or k is out of range or `per_second` is not positive.

    Example:
        >>> round(float(exponential_order_statistic_variance(8, 4)), 4)
        0.1038

    Reference:
        Commonly quoted; checked against quadrature.
    """
    function = "exponential_order_statistic_variance"
    total, order = _checks.workers_and_order(function, n, k)
    speed = _checks.positive(function, "per_second", per_second)
    return (inverse_square_difference(total, order) / speed**2)[()]


def uniform_order_statistic_mean(
    n: ArrayLike, k: ArrayLike, low: ArrayLike = 0.0, high: ArrayLike = 1.0
) -> FloatArray:
    """Compute E[X_(k:n)] of times uniform between low and high.

    low + (high - low) k / (n + 1).

    Args:
        n: workers, at least 1.
        k: rank from the smallest, 1 to n.
        low: smallest time, seconds.
        high: largest time, seconds, at least `low`.

    Returns:
        Seconds, the broadcast shape of the arguments.

    Raises:
        ValueError: if n or k is out of range, a time is negative or high < low.

    Example:
        >>> float(uniform_order_statistic_mean(9, 3, low=1.0, high=2.0))
        1.3

    Reference:
        Commonly quoted; checked against quadrature.
    """
    function = "uniform_order_statistic_mean"
    total, order = _checks.workers_and_order(function, n, k)
    start, width = _interval(function, low, high)
    return (start + width * (order / (total + 1)))[()]


def uniform_order_statistic_variance(
    n: ArrayLike, k: ArrayLike, low: ArrayLike = 0.0, high: ArrayLike = 1.0
) -> FloatArray:
    """Compute the variance of X_(k:n) of times uniform between low and high.

    (high - low)^2 k (n - k + 1) / ((n + 1)^2 (n + 2)).

    Args:
        n: workers, at least 1.
        k: rank from the smallest, 1 to n.
        low: smallest time, seconds.
        high: largest time, seconds, at least `low`.

    Returns:
        Seconds squared, the broadcast shape of the arguments.

    Raises:
        ValueError: if n or k is out of range, a time is negative or high < low.

    Example:
        >>> round(float(uniform_order_statistic_variance(1, 1)), 4)  # 1/12
        0.0833

    Reference:
        Commonly quoted; checked against quadrature.
    """
    function = "uniform_order_statistic_variance"
    total, order = _checks.workers_and_order(function, n, k)
    _, width = _interval(function, low, high)
    share = order / (total + 1)
    return (width**2 * share * (1 - share) / (total + 2))[()]


def pareto_order_statistic_moment(
    n: ArrayLike,
    k: ArrayLike,
    shape: ArrayLike,
    scale: ArrayLike = 1.0,
    order: ArrayLike = 1.0,
) -> FloatArray:
    """Compute E[X_(k:n)^order] of Pareto times, P(X > t) = (scale/t)^shape for t >= scale.

    scale^order x product of i / (i - order/shape) for i from n - k + 1 to n, which equals
    scale^order G(n+1) G(n-k+1-c) / (G(n-k+1) G(n+1-c)), c = order/shape, G the gamma function.
    Finite if and only if c < n - k + 1: leaving out the slowest workers makes moments finite.

    Args:
        n: workers, at least 1; the cost of one value grows with k.
        k: rank from the smallest, 1 to n.
        shape: tail exponent (alpha).
        scale: smallest time, seconds.
        order: exponent of the moment, any real number.

    Returns:
        Seconds^order, the broadcast shape of the arguments; inf where it is infinite.

    Raises:
        ValueError: if n or k is out of range, shape or scale is not positive, or order is not
            finite.

    Example:
        >>> round(float(pareto_order_statistic_moment(20, 20, shape=2.0)), 4)
        7.9763
        >>> float(pareto_order_statistic_moment(20, 20, shape=2.0, order=2))
        inf

    Reference:
        Commonly quoted (as a ratio of gamma functions); checked against quadrature.
    """
    function = "pareto_order_statistic_moment"
    total, rank = _checks.workers_and_order(function, n, k)
    alpha = _checks.positive(function, "shape", shape)
    start = _checks.positive(function, "scale", scale)
    power = _checks.finite(function, "order", order)
    with np.errstate(over="ignore"):
        return (start**power * np.exp(_log_moment(total, rank, power / alpha)))[()]


def pareto_order_statistic_mean(
    n: ArrayLike, k: ArrayLike, shape: ArrayLike, scale: ArrayLike = 1.0
) -> FloatArray:
    """Compute E[X_(k:n)] of Pareto times, P(X > t) = (scale/t)^shape for t >= scale.

    scale x product of i / (i - 1/shape) for i from n - k + 1 to n; finite if and only if
    1/shape < n - k + 1.

    Args:
        n: workers, at least 1; the cost of one value grows with k.
        k: rank from the smallest, 1 to n.
        shape: tail exponent (alpha).
        scale: smallest time, seconds.

    Returns:
        Seconds, the broadcast shape of the arguments; inf where it is infinite.

    Raises:
        ValueError: if n or k is out of range, or shape or scale is not positive.

    Example:
        >>> round(float(pareto_order_statistic_mean(8, 8, shape=2.0)), 4)  # of a mean of 2
        5.0922

    Reference:
        Commonly quoted (as a ratio of gamma functions); checked against quadrature.
    """
    function = "pareto_order_statistic_mean"
    total, rank = _checks.workers_and_order(function, n, k)
    alpha = _checks.positive(function, "shape", shape)
    start = _checks.positive(function, "scale", scale)
    return (start * np.exp(_log_moment(total, rank, 1 / alpha)))[()]


def pareto_order_statistic_variance(
    n: ArrayLike, k: ArrayLike, shape: ArrayLike, scale: ArrayLike = 1.0
) -> FloatArray:
    """Compute the variance of X_(k:n) of Pareto times, P(X > t) = (scale/t)^shape for t >= scale.

    E[X_(k:n)^2] - E[X_(k:n)]^2, as the squared mean times
    (product of 1 + c^2 / (i (i - 2c)) for i from n - k + 1 to n) - 1, c = 1/shape: this form
    does not cancel. Finite if and only if 2c < n - k + 1.

    Args:
        n: workers, at least 1; the cost of one value grows with k.
        k: rank from the smallest, 1 to n.
        shape: tail exponent (alpha).
        scale: smallest time, seconds.

    Returns:
        Seconds squared, the broadcast shape of the arguments; inf where it is infinite.

    Raises:
        ValueError: if n or k is out of range, or shape or scale is not positive.

    Example:
        >>> round(float(pareto_order_statistic_variance(1, 1, shape=3.0)), 4)
        0.75
        >>> float(pareto_order_statistic_variance(8, 8, shape=2.0))
        inf

    Reference:
        Commonly quoted moments, put into this form here; checked against quadrature.
    """
    function = "pareto_order_statistic_variance"
    total, rank = _checks.workers_and_order(function, n, k)
    alpha = _checks.positive(function, "shape", shape)
    start = _checks.positive(function, "scale", scale)
    c = 1 / alpha
    mean = start * np.exp(_log_moment(total, rank, c))
    return (mean**2 * np.expm1(_log_excess(total, rank, c)))[()]


def _interval(function: str, low: ArrayLike, high: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return (low, high - low)."""
    start = _checks.non_negative(function, "low", low)
    width = _checks.non_negative(function, "high", high) - start
    if np.any(width < 0):
        raise _checks.fail(function, "high", f"must be at least low={low}", high)
    return start, width


@np.vectorize
def _log_moment(total: float, rank: float, c: float) -> float:
    """Sum -log(1 - c/i) for i from total - rank + 1 to total; inf where a factor is infinite."""
    first = int(total - rank) + 1
    if c >= first:
        return np.inf
    i = np.arange(first, int(total) + 1, dtype=np.float64)
    return float(-np.log1p(-c / i).sum())


@np.vectorize
def _log_excess(total: float, rank: float, c: float) -> float:
    """Sum log(1 + c^2 / (i (i - 2c))) for i from total - rank + 1 to total."""
    first = int(total - rank) + 1
    if 2 * c >= first:
        return np.inf
    i = np.arange(first, int(total) + 1, dtype=np.float64)
    return float(np.log1p(c * c / (i * (i - 2 * c))).sum())
