"""Moments of X_(k:n) by quadrature: any law, and exponential times of unequal rates."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtjax.theory import _checks
from dtjax.theory._checks import FloatArray
from dtjax.theory.order_statistics.law import Law
from dtjax.theory.order_statistics.quadrature import beta_expectation


def order_statistic_mean(law: Law, n: ArrayLike, k: ArrayLike) -> FloatArray:
    """Compute E[X_(k:n)], the mean of the k-th smallest of n independent times of any law.

    X_(k:n) = isf(B), B ~ Beta(n - k + 1, k): the integral of isf over that law, in binary64,
    whatever the precision of JAX. The parameters are used as the law stores them: a binary32
    parameter has a relative error up to 6e-8 of its own.

    Laws of continuous times come out with a relative error of about 1e-13, or 1e-16 n/k where
    that is more (levels near 1 are rounded); laws with jumps (constant, discrete, empirical)
    with about 1e-11 up to 4,000 jumps and 1e-8 at 100,000. Heavy tails are continued as a power
    law below probability 1e-304; the mean is called infinite if the tail exponent 1/alpha measured
    there is at least n - k + 1 (a log-normal law with sigma above 35 looks like that).

    Args:
        law: one law of non-negative times, with `isf`.
        n: workers, at least 1, up to about 10^6.
        k: rank from the smallest, 1 to n.

    Returns:
        Seconds, the broadcast shape of n and k; inf where it is infinite.

    Raises:
        ValueError: if n or k is out of range, or the law is a batch or gives NaN.

    Example:
        >>> from scipy import stats
        >>> round(float(order_statistic_mean(stats.expon(), 8, 4)), 4)  # H_8 - H_4
        0.6345

    Reference:
        Commonly quoted; checked against the closed forms of exponential, uniform, Pareto.
    """
    return mean_by_quadrature("order_statistic_mean", law, n, k)


def order_statistic_variance(law: Law, n: ArrayLike, k: ArrayLike) -> FloatArray:
    """Compute the variance of X_(k:n), the k-th smallest of n independent times of any law.

    E[(X_(k:n) - E[X_(k:n)])^2] by the quadrature of `order_statistic_mean`, with its treatment of
    tails and ten times its error; at least 1e-16 x mean / standard deviation, as times are rounded.

    Args:
        law: one law of non-negative times, with `isf`.
        n: workers, at least 1, up to about 10^6.
        k: rank from the smallest, 1 to n.

    Returns:
        Seconds squared, the broadcast shape of n and k; inf where it is infinite.

    Raises:
        ValueError: if n or k is out of range, or the law is a batch or gives NaN.

    Example:
        >>> from scipy import stats
        >>> round(float(order_statistic_variance(stats.expon(), 8, 8)), 4)
        1.5274

    Reference:
        Commonly quoted; checked against the closed forms of exponential, uniform, Pareto.
    """
    function = "order_statistic_variance"
    total, rank = _checks.workers_and_order(function, n, k)

    def one(m: int, r: int) -> float:
        mean = beta_expectation(function, law, m, r)
        return mean if math.isinf(mean) else beta_expectation(function, law, m, r, mean)

    return _over_ranks(one, total, rank)


def mean_by_quadrature(function: str, law: Law, n: ArrayLike, k: ArrayLike) -> FloatArray:
    """Compute `order_statistic_mean`, its errors in the name of `function`."""
    total, rank = _checks.workers_and_order(function, n, k)
    return _over_ranks(lambda m, r: beta_expectation(function, law, m, r), total, rank)


def unequal_exponential_maximum_mean(rates: ArrayLike) -> float:
    """Compute the mean of the largest of independent exponential times of unequal rates.

    The seconds of a BSP update of such workers. Up to 10 workers: the sum over non-empty
    subsets S of (-1)^(|S|+1) / (sum of the rates in S); it alternates, so more workers take
    the integral of 1 - product of (1 - exp(-rate_i t)) dt, over log t, without cancellation.

    Args:
        rates: f[n], per second, one a worker; 10^5 different ones take seconds.

    Returns:
        Seconds; relative error below 1e-12.

    Raises:
        ValueError: if `rates` is not a vector or has an entry that is not positive and finite.

    Example:
        >>> round(unequal_exponential_maximum_mean([1.0, 2.0]), 4)  # 1 + 1/2 - 1/3
        1.1667

    Reference:
        Commonly quoted (inclusion and exclusion); the two ways are checked on each other.
    """
    speeds = _checks.per_worker("unequal_exponential_maximum_mean", "rates", rates)
    if len(speeds) <= 10:
        return _maximum_by_subsets(speeds)
    return _maximum_by_integral(speeds)


def _maximum_by_subsets(rates: NDArray[np.float64]) -> float:
    """Sum over the subsets, smallest terms first."""
    sums, signs = np.zeros(1), -np.ones(1)
    for rate in rates:
        sums, signs = np.concatenate([sums, sums + rate]), np.concatenate([signs, -signs])
    return math.fsum(signs[1:] / sums[1:])


def _maximum_by_integral(rates: NDArray[np.float64], step: float = 1 / 32) -> float:
    """Integrate the survival function of the maximum over log t by the trapezoidal rule."""
    different, counts = np.unique(rates, return_counts=True)
    slowest = different[0]
    first = math.log(1e-18 / slowest)
    last = math.log((math.log(len(rates)) + 45.0) / slowest)
    times = np.exp(np.arange(first, last + step, step))
    log_all = np.zeros(len(times))
    for rate, count in zip(different, counts, strict=True):
        age = rate * times
        early = age < 0.7
        log_all[early] += count * np.log(-np.expm1(-age[early]))
        log_all[~early] += count * np.log1p(-np.exp(-age[~early]))
    return float(step * np.sum(times * -np.expm1(log_all)))


def _over_ranks(
    value: Callable[[int, int], float], total: NDArray[np.float64], rank: NDArray[np.float64]
) -> FloatArray:
    """Apply a function of (n, k) to each pair."""
    values = [value(int(m), int(r)) for m, r in zip(total.flat, rank.flat, strict=True)]
    return np.asarray(values, dtype=np.float64).reshape(total.shape)[()]
