"""Mean-square stability of SGD on a quadratic: the largest rate of each policy.

The model is that of `dtjax.theory.quadratic_moments`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dtjax.theory import _checks
from dtjax.theory._checks import FloatArray
from dtjax.theory.quadratic import moment_maps


def synchronous_stability_edge(*, eigenvalue: ArrayLike = 1.0) -> FloatArray:
    """Compute the rate from which BSP, k-BSP and k-batch-BSP no longer converge in mean square.

    2 / eigenvalue, whatever the number of workers and gradients: no gradient is stale.

    Args:
        eigenvalue: of the quadratic, positive.

    Returns:
        Steps, the shape of `eigenvalue`.

    Raises:
        ValueError: if an eigenvalue is not positive and finite.

    Example:
        >>> float(synchronous_stability_edge(eigenvalue=4.0))
        0.5

    Reference:
        Commonly quoted.
    """
    return (2 / _checks.positive("synchronous_stability_edge", "eigenvalue", eigenvalue))[()]


def exponential_asp_stability_edge(n: ArrayLike, *, eigenvalue: ArrayLike = 1.0) -> FloatArray:
    """Compute the rate from which ASP with equal exponential workers diverges in mean square.

    (1 + sqrt(1 + 8 n)) / (2 n) / eigenvalue. It falls as sqrt(2 / n), while a constant staleness of
    the same mean, n - 1, allows pi / (2 n - 1) only.

    Args:
        n: workers, at least 1.
        eigenvalue: of the quadratic, positive.

    Returns:
        Steps, the broadcast shape of the arguments.

    Raises:
        ValueError: if n is out of range or an eigenvalue not positive and finite.

    Example:
        >>> exponential_asp_stability_edge([2, 4, 8, 64]).round(4).tolist()
        [1.2808, 0.8431, 0.5664, 0.1848]

    Reference:
        Derived; checked against the spectral radius of the moments' recursion.
    """
    function = "exponential_asp_stability_edge"
    total = _checks.workers(function, n)
    curve = _checks.positive(function, "eigenvalue", eigenvalue)
    return ((1 + np.sqrt(1 + 8 * total)) / (2 * total) / curve)[()]


def exponential_k_asp_stability_edge(
    n: ArrayLike, k: ArrayLike, *, eigenvalue: ArrayLike = 1.0
) -> FloatArray:
    """Compute the rate from which k-ASP with equal exponential workers diverges in mean square.

    The positive root a of c a^2 + (2 n - k - 2 k c) a = 2 k, over the eigenvalue, where
    c = 2 (n/k) (n - k) / (2 n - k - 1). k = n gives 2 and k = 1 the edge of ASP; it can lie above
    2, as an average over versions of different age damps.

    Args:
        n: workers, at least 1.
        k: distinct workers an update waits for, 1 to n.
        eigenvalue: of the quadratic, positive.

    Returns:
        Steps, the broadcast shape of the arguments.

    Raises:
        ValueError: if n or k is out of range or an eigenvalue not positive and finite.

    Example:
        >>> exponential_k_asp_stability_edge(8, [1, 3, 8]).round(4).tolist()
        [0.5664, 1.7199, 2.0]

    Reference:
        Derived; checked against the spectral radius of the moments' recursion.
    """
    function = "exponential_k_asp_stability_edge"
    total, order = _checks.workers_and_order(function, n, k)
    curve = _checks.positive(function, "eigenvalue", eigenvalue)
    c = moment_maps.age_slope(total, order)
    return (_root(c, 2 * total - order - 2 * order * c, 2 * order) / curve)[()]


def exponential_k_batch_asp_stability_edge(
    n: ArrayLike, k: ArrayLike, *, eigenvalue: ArrayLike = 1.0
) -> FloatArray:
    """Compute the rate from which k-batch-ASP, equal exponential workers, diverges in mean square.

    The least positive root a of (2 - a) (k u + a theta) = 2 a (n-1) u (1 - a phi / k), over the
    eigenvalue, where the noise of `exponential_k_batch_asp_stationary_variance` grows without
    bound. k = 1 gives the edge of ASP; it can lie above 2.

    Args:
        n: workers, at least 1.
        k: mini-batches an update waits for, at least 1, also above n.
        eigenvalue: of the quadratic, positive.

    Returns:
        Steps, the broadcast shape of the arguments.

    Raises:
        ValueError: if n or k is out of range or an eigenvalue not positive and finite.

    Example:
        >>> exponential_k_batch_asp_stability_edge(8, [1, 4]).round(4).tolist()
        [0.5664, 1.5785]

    Reference:
        Derived; checked against the spectral radius of the moments' recursion.
    """
    function = "exponential_k_batch_asp_stability_edge"
    total = _checks.workers(function, n)
    order = _checks.integer(function, "k", k, 1)
    curve = _checks.positive(function, "eigenvalue", eigenvalue)
    u, theta, phi = moment_maps.batch_terms(total, order)
    linear = order * u + 2 * (total - 1) * u - 2 * theta
    return (_root(theta - 2 * (total - 1) * u * phi / order, linear, 2 * order * u) / curve)[()]


def _root(square: FloatArray, linear: FloatArray, constant: FloatArray) -> FloatArray:
    """Return the least positive root a of square a^2 + linear a = constant, without cancellation.

    `square` is at least 0, or `linear` is positive.
    """
    root = np.sqrt(linear**2 + 4 * square * constant)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(linear > 0, 2 * constant / (linear + root), (root - linear) / (2 * square))
