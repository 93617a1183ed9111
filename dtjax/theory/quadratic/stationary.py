"""Stationary variance of SGD on a quadratic under each policy: where the noise holds it.

The model is that of `dtjax.theory.quadratic_moments`. Each is inf from the stability edge on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtjax.theory import _checks
from dtjax.theory._checks import FloatArray
from dtjax.theory.quadratic import moment_maps
from dtjax.theory.quadratic.stability import exponential_k_batch_asp_stability_edge


def synchronous_stationary_variance(
    rate: ArrayLike, k: ArrayLike, *, eigenvalue: ArrayLike = 1.0, noise: ArrayLike = 1.0
) -> FloatArray:
    """Compute the variance around the optimum at which BSP, k-BSP and k-batch-BSP end.

    v / (k a (2 - a)), a = rate x eigenvalue, v = (rate noise)^2. Any compute times.

    Args:
        rate: positive.
        k: gradients averaged in an update, at least 1; BSP has n.
        eigenvalue: of the quadratic, positive.
        noise: standard deviation of one gradient, not negative.

    Returns:
        E w^2, the broadcast shape of the arguments; inf from the stability edge on.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> float(synchronous_stationary_variance(1.0, 4))
        0.25

    Reference:
        Derived; checked by simulation.
    """
    function = "synchronous_stationary_variance"
    order = _checks.integer(function, "k", k, 1)
    a, v = _numbers(function, rate, eigenvalue, noise)
    with np.errstate(divide="ignore"):
        return np.where(a < 2, v / (order * a * (2 - a)), np.inf)[()]


def exponential_asp_stationary_variance(
    rate: ArrayLike, n: ArrayLike, *, eigenvalue: ArrayLike = 1.0, noise: ArrayLike = 1.0
) -> FloatArray:
    """Compute the variance around the optimum at which ASP with equal exponential workers ends.

    v (1 + n a) / (a (2 + a - n a^2)), a = rate x eigenvalue, v = (rate noise)^2.

    Args:
        rate: positive.
        n: workers, at least 1.
        eigenvalue: of the quadratic, positive.
        noise: standard deviation of one gradient, not negative.

    Returns:
        E w^2, the broadcast shape of the arguments; inf from the stability edge on.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> float(exponential_asp_stationary_variance(0.5, 4))
        1.0

    Reference:
        Derived; checked by simulation.
    """
    function = "exponential_asp_stationary_variance"
    total = _checks.workers(function, n)
    a, v = _numbers(function, rate, eigenvalue, noise)
    below = 2 + a - total * a * a
    with np.errstate(divide="ignore"):
        return np.where(below > 0, v * (1 + total * a) / (a * below), np.inf)[()]


def exponential_k_asp_stationary_variance(
    rate: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    *,
    eigenvalue: ArrayLike = 1.0,
    noise: ArrayLike = 1.0,
) -> FloatArray:
    """Compute the variance around the optimum at which k-ASP with equal exponential workers ends.

    v (1 + g) / (a (2 k (1 + g) - a (2 n - k + g))), a = rate x eigenvalue, v = (rate noise)^2 and
    g = 2 a (n/k) (n - k) / (2 n - k - 1), which is 0 for k = n.

    Args:
        rate: positive.
        n: workers, at least 1.
        k: distinct workers an update waits for, 1 to n.
        eigenvalue: of the quadratic, positive.
        noise: standard deviation of one gradient, not negative.

    Returns:
        E w^2, the broadcast shape of the arguments; inf from the stability edge on.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> float(exponential_k_asp_stationary_variance(0.5, 3, 2))
        0.2

    Reference:
        Derived; checked by simulation and as the fixed point of the moments' recursion.
    """
    function = "exponential_k_asp_stationary_variance"
    total, order = _checks.workers_and_order(function, n, k)
    a, v = _numbers(function, rate, eigenvalue, noise)
    g = a * moment_maps.age_slope(total, order)
    below = 2 * order * (1 + g) - a * (2 * total - order + g)
    with np.errstate(divide="ignore"):
        return np.where(below > 0, v * (1 + g) / (a * below), np.inf)[()]


def exponential_k_batch_asp_stationary_variance(
    rate: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    *,
    eigenvalue: ArrayLike = 1.0,
    noise: ArrayLike = 1.0,
) -> FloatArray:
    """Compute the variance at which k-batch-ASP with equal exponential workers ends.

    v (k u + a theta) / (k a ((2 - a) (k u + a theta) - 2 a (n-1) u (1 - a phi / k))), with
    a = rate x eigenvalue, v = (rate noise)^2, u = 1 - (1 - 1/n)^k, w = 1 - (1 - 2/n)^k,
    theta = (n-1) u + k (1-u) - 2 (n-2) u (1 - u/w) and phi = k - 1 - (n-2) (2 u/w - 1); for n = 1
    it is v / (k a (2 - a)). It is the fixed point of `exponential_k_batch_asp_second_moments`.

    Args:
        rate: positive.
        n: workers, at least 1.
        k: mini-batches an update waits for, at least 1, also above n; 1 is ASP.
        eigenvalue: of the quadratic, positive.
        noise: standard deviation of one gradient, not negative.

    Returns:
        E w^2, the broadcast shape of the arguments; inf from the stability edge on.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> round(float(exponential_k_batch_asp_stationary_variance(0.5, 4, 1)), 6)  # ASP's
        1.0

    Reference:
        Derived; checked by simulation and as the fixed point of the moments' recursion.
    """
    function = "exponential_k_batch_asp_stationary_variance"
    total = _checks.workers(function, n)
    order = _checks.integer(function, "k", k, 1)
    a, v = _numbers(function, rate, eigenvalue, noise)
    u, theta, phi = moment_maps.batch_terms(total, order)
    fresh = order * u + a * theta
    below = (2 - a) * fresh - 2 * a * (total - 1) * u * (1 - a * phi / order)
    stable = (a < exponential_k_batch_asp_stability_edge(total, order)) & (below > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(stable, v * fresh / (order * a * below), np.inf)[()]


def _numbers(
    function: str, rate: ArrayLike, eigenvalue: ArrayLike, noise: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (rate eigenvalue, (rate noise)^2), all checked."""
    size = _checks.positive(function, "rate", rate)
    curve = _checks.positive(function, "eigenvalue", eigenvalue)
    spread = _checks.non_negative(function, "noise", noise)
    return np.asarray(size * curve), np.asarray(np.square(size * spread))
