"""Seconds per update of ASP, k-ASP and k-batch-ASP.

Without communication and server seconds throughout. ASP is k-batch-ASP with k = 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dtjax.theory import _checks
from dtjax.theory._checks import FloatArray
from dtjax.theory.order_statistics.harmonic import harmonic_difference
from dtjax.theory.order_statistics.law import Law, finite_mean, finite_variance


def asp_seconds(law: Law, n: ArrayLike) -> FloatArray:
    """Compute the mean seconds per update of ASP in the long run.

    E[X] / n, for any law of finite mean; with exponential times exact from the first update on.
    The transient from a fresh start: `fresh_start_k_batch_asp_seconds`.

    Args:
        law: compute time of every worker, seconds.
        n: workers, at least 1.

    Returns:
        Seconds, the shape of n.

    Raises:
        ValueError: if n is out of range, or the mean of the law is not positive and finite.

    Example:
        >>> from scipy import stats
        >>> float(asp_seconds(stats.expon(), 8))
        0.125

    Reference:
        Commonly quoted, Dutta et al. 2018; the elementary renewal theorem; checked by simulation.
    """
    total = _checks.workers("asp_seconds", n)
    return (finite_mean("asp_seconds", law) / total)[()]


def k_batch_asp_seconds(law: Law, n: ArrayLike, k: ArrayLike) -> FloatArray:
    """Compute the mean seconds per update of k-batch-ASP in the long run.

    k E[X] / n, for any law of finite mean; with exponential times exact from the first update on.
    k may exceed n.

    Args:
        law: compute time of every worker, seconds.
        n: workers, at least 1.
        k: mini-batches an update waits for, at least 1.

    Returns:
        Seconds, the broadcast shape of n and k.

    Raises:
        ValueError: if n or k is out of range, or the mean of the law is not positive and finite.

    Example:
        >>> from scipy import stats
        >>> float(k_batch_asp_seconds(stats.expon(), 8, 4))
        0.5

    Reference:
        Commonly quoted, Dutta et al. 2018; the elementary renewal theorem; checked by simulation.
    """
    function = "k_batch_asp_seconds"
    total, batches = _checks.workers(function, n), _checks.integer(function, "k", k, 1)
    return (batches * finite_mean(function, law) / total)[()]


def unequal_asp_updates_per_second(mean_seconds: ArrayLike, k: int = 1) -> float:
    """Compute the long-run updates per second of k-batch-ASP with unequal workers (ASP: k = 1).

    (sum of 1 / E[X_i]) / k: workers deliver independently of each other, each at its own rate.
    Any laws of finite mean.

    Args:
        mean_seconds: f[n], mean compute time of each worker.
        k: mini-batches an update waits for, at least 1.

    Returns:
        Updates per second.

    Raises:
        ValueError: if an entry is not positive and finite or k is out of range.

    Example:
        >>> round(unequal_asp_updates_per_second([2.0, 5.0, 7.0]), 4)  # 1/2 + 1/5 + 1/7
        0.8429

    Reference:
        Commonly quoted; the elementary renewal theorem.
    """
    function = "unequal_asp_updates_per_second"
    means = _checks.per_worker(function, "mean_seconds", mean_seconds)
    return float(np.sum(1 / means) / _checks.one_integer(function, "k", k, 1))


def fresh_start_k_batch_asp_seconds(
    law: Law, n: ArrayLike, k: ArrayLike, updates: ArrayLike
) -> FloatArray:
    """Compute the mean time of update J of k-batch-ASP when all workers start together at 0.

    J k E[X] / n + ((n-1) / n) E[X] (1 - cv^2) / 2, cv^2 = variance / E[X]^2. The second term is
    the transient: laws steadier than exponential are late at first, more variable ones early.
    An expansion for many updates, its error tends to 0 with J; exact for exponential times and
    for n = 1. Needs a finite variance and times that are not multiples of one number (constant
    times: `deterministic_k_batch_asp_seconds`).

    Args:
        law: compute time of every worker, seconds.
        n: workers, at least 1.
        k: mini-batches an update waits for, at least 1; ASP has 1.
        updates: J, at least 1.

    Returns:
        Seconds from the start to update J, the broadcast shape of n, k and updates.

    Raises:
        ValueError: if an integer is out of range, the mean of the law is not positive and finite,
            or its variance is infinite or 0.

    Example:
        >>> from types import SimpleNamespace
        >>> law = SimpleNamespace(mean=lambda: 2.0, variance=lambda: 1.0)
        >>> float(fresh_start_k_batch_asp_seconds(law, n=4, k=1, updates=100))
        50.5625

    Reference:
        Derived; checked by simulation.
    """
    function = "fresh_start_k_batch_asp_seconds"
    total, batches = _checks.workers(function, n), _checks.integer(function, "k", k, 1)
    count = _checks.integer(function, "updates", updates, 1)
    mean, variance = finite_mean(function, law), finite_variance(function, law)
    if variance == 0:
        rule = "must not be constant (use deterministic_k_batch_asp_seconds)"
        raise _checks.fail(function, "law", rule, "variance 0")
    transient = (total - 1) / total * mean * (1 - variance / mean**2) / 2
    return (count * batches * mean / total + transient)[()]


def deterministic_k_batch_asp_seconds(
    n: ArrayLike, k: ArrayLike, updates: ArrayLike, seconds: ArrayLike
) -> FloatArray:
    """Compute the time of update J of k-batch-ASP, equal constant compute times, fresh start.

    seconds x ceil(J k / n), exactly: n mini-batches arrive at each multiple of the compute time.

    Args:
        n: workers, at least 1.
        k: mini-batches an update waits for, at least 1; ASP has 1.
        updates: J, at least 1.
        seconds: compute time of every worker.

    Returns:
        Seconds from the start to update J, the broadcast shape of the arguments.

    Raises:
        ValueError: if an integer is out of range or seconds are not positive.

    Example:
        >>> float(deterministic_k_batch_asp_seconds(n=4, k=3, updates=3, seconds=2.0))
        6.0

    Reference:
        Derived; checked by simulation.
    """
    function = "deterministic_k_batch_asp_seconds"
    total, batches = _checks.workers(function, n), _checks.integer(function, "k", k, 1)
    count = _checks.integer(function, "updates", updates, 1)
    return (_checks.positive(function, "seconds", seconds) * -(-count * batches // total))[()]


def exponential_k_asp_seconds(
    n: ArrayLike, k: ArrayLike, per_second: ArrayLike = 1.0
) -> FloatArray:
    """Compute the mean seconds per update of k-ASP with exponential compute times.

    (H_n - H_(n-k)) / mu, from the first update on: at an update all n workers are as good as
    freshly started. It is E[X_(k:n)], as for k-BSP, and not k / (n mu): delivered workers wait.
    Only for exponential times. With new-better-than-used times k-ASP takes at most E[X_(k:n)];
    with Pareto times it can take longer.

    Args:
        n: workers, at least 1.
        k: distinct workers an update waits for, 1 to n.
        per_second: mu, gradients of one worker a second.

    Returns:
        Seconds, the broadcast shape of the arguments.

    Raises:
        ValueError: if n or k is out of range or `per_second` is not positive.

    Example:
        >>> round(float(exponential_k_asp_seconds(8, 4)), 4)
        0.6345

    Reference:
        Derived; checked by simulation.
    """
    function = "exponential_k_asp_seconds"
    total, order = _checks.workers_and_order(function, n, k)
    return (
        harmonic_difference(total, order) / _checks.positive(function, "per_second", per_second)
    )[()]
