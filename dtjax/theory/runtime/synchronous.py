"""Seconds per update of BSP, k-BSP and k-batch-BSP.

After a cancelling update all workers start again at once, so updates are independent and alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dtjax.theory import _checks
from dtjax.theory._checks import FloatArray
from dtjax.theory.order_statistics.any_law import mean_by_quadrature
from dtjax.theory.order_statistics.law import Law


def bsp_seconds(law: Law, n: ArrayLike) -> FloatArray:
    """Compute the mean seconds per update of BSP.

    E[X_(n:n)], the mean of the largest of n compute times. Holds for any law, from the first
    update on, without communication and server seconds. Unequal exponential workers:
    `unequal_exponential_maximum_mean`.

    Args:
        law: compute time of every worker, seconds.
        n: workers, at least 1.

    Returns:
        Seconds, the shape of n; inf where it is infinite.

    Raises:
        ValueError: if n is out of range, or the law is a batch or gives NaN.

    Example:
        >>> from scipy import stats
        >>> round(float(bsp_seconds(stats.expon(), 64)), 3)  # H_64
        4.744

    Reference:
        Dutta et al. 2018 (paper).
    """
    _checks.workers("bsp_seconds", n)
    return mean_by_quadrature("bsp_seconds", law, n, n)


def k_bsp_seconds(law: Law, n: ArrayLike, k: ArrayLike) -> FloatArray:
    """Compute the mean seconds per update of k-BSP, which waits for the fastest k of n workers.

    E[X_(k:n)]. Holds for any law, from the first update on, if the update cancels unfinished
    work (pre-emption) and without communication and server seconds.

    Args:
        law: compute time of every worker, seconds.
        n: workers, at least 1.
        k: distinct workers an update waits for, 1 to n.

    Returns:
        Seconds, the broadcast shape of n and k; inf where it is infinite.

    Raises:
        ValueError: if n or k is out of range, or the law is a batch or gives NaN.

    Example:
        >>> from scipy import stats
        >>> round(float(k_bsp_seconds(stats.expon(), 8, 4)), 4)
        0.6345

    Reference:
        Dutta et al. 2018 (paper).
    """
    return mean_by_quadrature("k_bsp_seconds", law, n, k)


def exponential_k_batch_bsp_seconds(
    n: ArrayLike, k: ArrayLike, per_second: ArrayLike = 1.0
) -> FloatArray:
    """Compute the mean seconds per update of k-batch-BSP with exponential compute times.

    k / (n mu): the k-th arrival of a Poisson process of rate n mu, whose time has an Erlang
    law. k may exceed n. Holds from the first update on, without communication and server seconds.

    Args:
        n: workers, at least 1.
        k: mini-batches an update waits for, at least 1.
        per_second: mu, gradients of one worker a second.

    Returns:
        Seconds, the broadcast shape of the arguments.

    Raises:
        ValueError: if n or k is out of range or `per_second` is not positive.

    Example:
        >>> float(exponential_k_batch_bsp_seconds(8, 4))
        0.5

    Reference:
        Commonly quoted, Dutta et al. 2018; checked by simulation.
    """
    function = "exponential_k_batch_bsp_seconds"
    return (_batches(function, k) / _total_rate(function, n, per_second))[()]


def exponential_k_batch_bsp_variance(
    n: ArrayLike, k: ArrayLike, per_second: ArrayLike = 1.0
) -> FloatArray:
    """Compute the variance of the seconds of one k-batch-BSP update, exponential compute times.

    k / (n mu)^2, the variance of an Erlang law. Seconds of different updates are independent.

    Args:
        n: workers, at least 1.
        k: mini-batches an update waits for, at least 1.
        per_second: mu, gradients of one worker a second.

    Returns:
        Seconds squared, the broadcast shape of the arguments.

    Raises:
        ValueError: if n or k is out of range or `per_second` is not positive.

    Example:
        >>> float(exponential_k_batch_bsp_variance(8, 4))
        0.0625

    Reference:
        Derived from the Erlang law; checked by simulation.
    """
    function = "exponential_k_batch_bsp_variance"
    return (_batches(function, k) / _total_rate(function, n, per_second) ** 2)[()]


def exponential_k_batch_bsp_cdf(
    seconds: ArrayLike, n: ArrayLike, k: ArrayLike, per_second: ArrayLike = 1.0
) -> FloatArray:
    """Compute the probability that a k-batch-BSP update is over within `seconds`.

    The Erlang law: the regularised lower incomplete gamma function P(k, n mu seconds), for
    exponential compute times.

    Args:
        seconds: since the update before, at least 0.
        n: workers, at least 1.
        k: mini-batches an update waits for, at least 1.
        per_second: mu, gradients of one worker a second.

    Returns:
        Probabilities, the broadcast shape of the arguments.

    Raises:
        ValueError: if n or k is out of range, `per_second` is not positive or seconds are negative.

    Example:
        >>> round(float(exponential_k_batch_bsp_cdf(0.5, n=8, k=4)), 4)
        0.5665

    Reference:
        Commonly quoted, Dutta et al. 2018; checked by simulation.
    """
    function = "exponential_k_batch_bsp_cdf"
    time = _checks.non_negative(function, "seconds", seconds)
    batches = _batches(function, k)
    return np.asarray(special.gammainc(batches, _total_rate(function, n, per_second) * time))[()]


def deterministic_k_batch_bsp_seconds(n: ArrayLike, k: ArrayLike, seconds: ArrayLike) -> FloatArray:
    """Compute the seconds per update of k-batch-BSP with equal constant compute times.

    seconds x ceil(k / n): every worker delivers at each multiple of its compute time, and the
    update happens when the k-th mini-batch is there. Exact for every update.

    Args:
        n: workers, at least 1.
        k: mini-batches an update waits for, at least 1.
        seconds: compute time of every worker.

    Returns:
        Seconds, the broadcast shape of the arguments.

    Raises:
        ValueError: if n or k is out of range or seconds are not positive.

    Example:
        >>> float(deterministic_k_batch_bsp_seconds(n=4, k=6, seconds=1.5))
        3.0

    Reference:
        Derived; checked by simulation.
    """
    function = "deterministic_k_batch_bsp_seconds"
    time = _checks.positive(function, "seconds", seconds)
    return (time * -(-_batches(function, k) // _checks.workers(function, n)))[()]


def _batches(function: str, k: ArrayLike) -> np.ndarray:
    return _checks.integer(function, "k", k, 1)


def _total_rate(function: str, n: ArrayLike, per_second: ArrayLike) -> np.ndarray:
    return _checks.workers(function, n) * _checks.positive(function, "per_second", per_second)
