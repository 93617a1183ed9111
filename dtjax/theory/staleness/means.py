"""Staleness: means, conserved sums and a bound, counted in updates.

The staleness of a gradient is the number of updates between reading a version and using the
gradient. Without a staleness cut-off throughout.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtjax.theory import _checks
from dtjax.theory._checks import FloatArray


def synchronous_mean_staleness(n: ArrayLike, k: ArrayLike) -> FloatArray:
    """Compute the mean staleness of BSP, k-BSP and k-batch-BSP: it is 0 for every gradient used.

    Args:
        n: workers, at least 1.
        k: gradients in an update, at least 1.

    Returns:
        Zeros, the broadcast shape of n and k.

    Raises:
        ValueError: if n or k is out of range.

    Example:
        >>> float(synchronous_mean_staleness(8, 4))
        0.0

    Reference:
        By definition: an update cancels or discards what was computed on older versions.
    """
    function = "synchronous_mean_staleness"
    return (0 * _checks.workers(function, n) * _checks.integer(function, "k", k, 1))[()]


def asp_mean_staleness(n: ArrayLike) -> FloatArray:
    """Compute the long-run mean staleness of ASP.

    n - 1, for any compute times, equal or not, as long as every worker keeps delivering: see
    `asp_staleness_sum`. It is the mean over gradients; one worker's own mean is
    `unequal_asp_mean_staleness`.

    Args:
        n: workers, at least 1.

    Returns:
        Updates, the shape of n.

    Raises:
        ValueError: if n is out of range.

    Example:
        >>> float(asp_mean_staleness(8))
        7.0

    Reference:
        Derived; checked by simulation.
    """
    return (_checks.workers("asp_mean_staleness", n) - 1)[()]


def k_batch_asp_mean_staleness(n: ArrayLike, k: ArrayLike) -> FloatArray:
    """Compute the long-run mean staleness of k-batch-ASP.

    (n - 1) / k, for any compute times as long as every worker keeps delivering. k may exceed n.

    Args:
        n: workers, at least 1.
        k: mini-batches an update waits for, at least 1.

    Returns:
        Updates, the broadcast shape of n and k.

    Raises:
        ValueError: if n or k is out of range.

    Example:
        >>> float(k_batch_asp_mean_staleness(9, 4))
        2.0

    Reference:
        Derived; checked by simulation.
    """
    function = "k_batch_asp_mean_staleness"
    total, batches = _checks.workers(function, n), _checks.integer(function, "k", k, 1)
    return ((total - 1) / batches)[()]


def k_asp_mean_staleness(n: ArrayLike, k: ArrayLike) -> FloatArray:
    """Compute the long-run mean staleness of k-ASP.

    (n - k) / k, for any compute times as long as every worker keeps delivering.

    Args:
        n: workers, at least 1.
        k: distinct workers an update waits for, 1 to n.

    Returns:
        Updates, the broadcast shape of n and k.

    Raises:
        ValueError: if n or k is out of range.

    Example:
        >>> float(k_asp_mean_staleness(8, 2))
        3.0

    Reference:
        Derived; checked by simulation.
    """
    total, order = _checks.workers_and_order("k_asp_mean_staleness", n, k)
    return ((total - order) / order)[()]


def unequal_asp_mean_staleness(rates: ArrayLike) -> NDArray[np.float64]:
    """Compute the long-run mean staleness of each worker's gradients under ASP, unequal workers.

    sum(rates) / rate_p - 1 for worker p: the updates that all others make in the mean time of one
    of its computations. Holds for any laws of finite mean, with rate_p = 1 / E[X_p]; with
    exponential times it is exact for each computation and not only in the long run. Weighted by
    the share of gradients it is n - 1 again.

    Args:
        rates: f[n], computations per second of each worker.

    Returns:
        f[n], updates.

    Raises:
        ValueError: if `rates` is not a vector or has an entry that is not positive and finite.

    Example:
        >>> unequal_asp_mean_staleness([1.0, 3.0]).tolist()
        [3.0, 0.3333333333333333]

    Reference:
        Derived; checked by simulation.
    """
    speeds = _checks.per_worker("unequal_asp_mean_staleness", "rates", rates)
    before = np.concatenate([[0.0], np.cumsum(speeds[:-1])])
    after = np.concatenate([np.cumsum(speeds[:0:-1])[::-1], [0.0]])
    return (before + after) / speeds


def asp_staleness_sum(n: int, updates: int) -> int:
    """Compute the conserved sum of staleness of ASP and k-batch-ASP, just after update J.

    (n - 1) J = sum of the staleness of all gradients used + sum of the lags (updates since the
    read) of the computations in flight. Exact in every run, whatever the compute times and k. At
    other times the lags of buffered gradients belong to it too.

    Args:
        n: workers, at least 1.
        updates: J, at least 0.

    Returns:
        Updates.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> asp_staleness_sum(n=8, updates=100)
        700

    Reference:
        Derived; checked by simulation.
    """
    function = "asp_staleness_sum"
    others = _checks.one_integer(function, "n", n, 1) - 1
    return others * _checks.one_integer(function, "updates", updates, 0)


def k_asp_staleness_sum(n: int, k: int, updates: int) -> int:
    """Compute the conserved sum of staleness of k-ASP, just after update J.

    (n - k) J = sum of the staleness of all gradients used + sum of the lags (updates since the
    read) of the computations in flight. Exact in every run, whatever the compute times.

    Args:
        n: workers, at least 1.
        k: distinct workers an update waits for, 1 to n.
        updates: J, at least 0.

    Returns:
        Updates.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> k_asp_staleness_sum(n=8, k=3, updates=100)
        500

    Reference:
        Derived; checked by simulation.
    """
    function = "k_asp_staleness_sum"
    _checks.workers_and_order(function, n, k)
    held = _checks.one_integer(function, "n", n, 1) - _checks.one_integer(function, "k", k, 1)
    return held * _checks.one_integer(function, "updates", updates, 0)


def ssp_staleness_bound(n: ArrayLike, bound: ArrayLike) -> FloatArray:
    """Compute the largest staleness that SSP allows.

    (n - 1)(2s + 1): while one computation runs, each other worker delivers at most 2s + 1 times.
    For any compute times, where an arrival is applied at once and no gradient is discarded.

    Args:
        n: workers, at least 1.
        bound: s, a non-negative integer, or inf.

    Returns:
        Updates, the broadcast shape of n and bound.

    Raises:
        ValueError: if n or a bound is out of range.

    Example:
        >>> float(ssp_staleness_bound(8, bound=1))
        21.0

    Reference:
        Derived from the rule of Ho et al. 2013; checked by simulation.
    """
    others = _checks.workers("ssp_staleness_bound", n) - 1
    limit = 2 * _checks.bound("ssp_staleness_bound", bound) + 1
    with np.errstate(invalid="ignore"):
        return np.where(others == 0, 0.0, others * limit)[()]
