"""Laws of the staleness with equal exponential workers, once the start is forgotten."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dtjax.theory import _checks
from dtjax.theory._checks import FloatArray


def exponential_asp_staleness_pmf(staleness: ArrayLike, n: int) -> FloatArray:
    """Compute the probability of each staleness under ASP with equal exponential workers.

    P(j) = (1/n) (1 - 1/n)^j, a geometric law of mean n - 1: each arrival is the worker's own with
    probability 1/n. Holds once the start is forgotten.

    Args:
        staleness: j, integers of at least 0.
        n: workers, at least 1.

    Returns:
        Probabilities, the shape of `staleness`.

    Raises:
        ValueError: if a staleness or n is out of range.

    Example:
        >>> exponential_asp_staleness_pmf([0, 1, 2], n=2).tolist()
        [0.5, 0.25, 0.125]

    Reference:
        Derived; checked by simulation.
    """
    return _geometric("exponential_asp_staleness_pmf", staleness, n, 1)


def exponential_k_asp_staleness_pmf(staleness: ArrayLike, n: int, k: int) -> FloatArray:
    """Compute the probability of each staleness under k-ASP with equal exponential workers.

    P(j) = (k/n) (1 - k/n)^j, a geometric law of mean (n - k) / k: each update holds a given worker
    with probability k/n. Holds once the start is forgotten.

    Args:
        staleness: j, integers of at least 0.
        n: workers, at least 1.
        k: distinct workers an update waits for, 1 to n.

    Returns:
        Probabilities, the shape of `staleness`.

    Raises:
        ValueError: if a staleness, n or k is out of range.

    Example:
        >>> exponential_k_asp_staleness_pmf([0, 1], n=8, k=2).tolist()
        [0.25, 0.1875]

    Reference:
        Derived; checked by simulation.
    """
    return _geometric("exponential_k_asp_staleness_pmf", staleness, n, k)


def exponential_k_batch_asp_staleness_pmf(staleness: ArrayLike, n: int, k: int) -> FloatArray:
    """Compute the probability of each staleness under k-batch-ASP, equal exponential workers.

    The law of floor((phi + A) / k): A, the arrivals of others during a computation, is geometric,
    P(A = a) = (1/n) (1 - 1/n)^a, and phi, the gradients buffered at its start, is uniform on
    0..k-1. With r = 1 - 1/n: P(0) = (1/k) sum over m = 1..k of (1 - r^m), and for j >= 1
    P(j) = (n/k) (1 - r^k)^2 r^((j-1) k + 1). Holds once the start is forgotten.

    Args:
        staleness: j, integers of at least 0.
        n: workers, at least 1.
        k: mini-batches an update waits for, at least 1.

    Returns:
        Probabilities, the shape of `staleness`.

    Raises:
        ValueError: if a staleness, n or k is out of range.

    Example:
        >>> exponential_k_batch_asp_staleness_pmf([0, 1, 2], n=2, k=2).round(4).tolist()
        [0.625, 0.2812, 0.0703]

    Reference:
        Derived; checked by simulation.
    """
    function = "exponential_k_batch_asp_staleness_pmf"
    j = _checks.integer(function, "staleness", staleness, 0)
    total = float(_checks.one_integer(function, "n", n, 1))
    batches = float(_checks.one_integer(function, "k", k, 1))
    if total == 1:
        return np.where(j == 0, 1.0, 0.0)[()]
    log_r = np.log1p(-1 / total)
    fresh = np.mean(-np.expm1(np.arange(1, int(batches) + 1) * log_r))
    one_round = np.expm1(batches * log_r) ** 2 * total / batches
    older = one_round * np.exp(((np.maximum(j, 1) - 1) * batches + 1) * log_r)
    return np.where(j == 0, fresh, older)[()]


def _geometric(function: str, staleness: ArrayLike, n: int, k: int) -> FloatArray:
    """Compute p (1 - p)^j with p = k/n."""
    j = _checks.integer(function, "staleness", staleness, 0)
    total, order = _checks.workers_and_order(function, n, k)
    share = order / total
    return (share * (1 - share) ** j)[()]
