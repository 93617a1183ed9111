"""Clock rate, waiting and staleness under SSP, where they are known exactly.

A clock is one computation of every worker; without communication and server seconds.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from dtjax.theory import _checks
from dtjax.theory._checks import FloatArray
from dtjax.theory.order_statistics.any_law import mean_by_quadrature
from dtjax.theory.order_statistics.law import Law


def lockstep_ssp_clock_seconds(law: Law, n: ArrayLike) -> FloatArray:
    """Compute the mean seconds per clock of SSP(0).

    E[X_(n:n)], as BSP: at bound 0 nobody starts before the slowest worker has delivered. A clock
    of SSP(0) holds n updates of one gradient, one of BSP a single update of n. With exponential
    times it is H_n / mu.

    Args:
        law: compute time of every worker, seconds.
        n: workers, at least 1.

    Returns:
        Seconds, the shape of n; inf where it is infinite.

    Raises:
        ValueError: if n is out of range, or the law is a batch or gives NaN.

    Example:
        >>> from scipy import stats
        >>> round(float(lockstep_ssp_clock_seconds(stats.expon(), 8)), 4)
        2.7179

    Reference:
        Derived from the rule of Ho et al. 2013; checked by simulation.
    """
    _checks.workers("lockstep_ssp_clock_seconds", n)
    return mean_by_quadrature("lockstep_ssp_clock_seconds", law, n, n)


def two_worker_ssp_clocks_per_second(bound: ArrayLike, per_second: ArrayLike = 1.0) -> FloatArray:
    """Compute the long-run clocks per second of SSP with two exponential workers of equal rate.

    mu (2s + 2) / (2s + 3): the difference of the completed counts walks between -(s+1) and
    s + 1 and is uniform there; at either end one worker waits.

    Args:
        bound: s, a non-negative integer, or inf (then it is ASP's rate).
        per_second: mu, gradients of one worker a second.

    Returns:
        Computations per second of each worker, the broadcast shape of the arguments.

    Raises:
        ValueError: if a bound is no non-negative integer or `per_second` is not positive.

    Example:
        >>> round(float(two_worker_ssp_clocks_per_second(0)), 4)  # 1 / H_2
        0.6667

    Reference:
        Derived; checked by simulation.
    """
    function = "two_worker_ssp_clocks_per_second"
    states = 2 * _checks.bound(function, bound) + 3
    return (_checks.positive(function, "per_second", per_second) * (1 - 1 / states))[()]


def two_worker_ssp_idle_fraction(bound: ArrayLike) -> FloatArray:
    """Compute the share of worker time that SSP makes two equal exponential workers wait.

    1 / (2s + 3), in the long run, averaged over both workers.

    Args:
        bound: s, a non-negative integer, or inf.

    Returns:
        A fraction, the shape of `bound`.

    Raises:
        ValueError: if a bound is no non-negative integer.

    Example:
        >>> float(two_worker_ssp_idle_fraction(1))
        0.2

    Reference:
        Derived; checked by simulation.
    """
    return (1 / (2 * _checks.bound("two_worker_ssp_idle_fraction", bound) + 3))[()]


def two_worker_ssp_mean_staleness(bound: ArrayLike) -> FloatArray:
    """Compute the long-run mean staleness of SSP with two equal exponential workers.

    (2s + 1) / (2s + 2); without a bound it is ASP's n - 1 = 1.

    Args:
        bound: s, a non-negative integer, or inf.

    Returns:
        Updates, the shape of `bound`.

    Raises:
        ValueError: if a bound is no non-negative integer.

    Example:
        >>> float(two_worker_ssp_mean_staleness(1))
        0.75

    Reference:
        Derived; checked by simulation.
    """
    return (1 - 1 / (2 * _checks.bound("two_worker_ssp_mean_staleness", bound) + 2))[()]
