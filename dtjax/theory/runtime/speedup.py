"""BSP against ASP in the long run: utilisation and speed-up.

Without communication and server seconds throughout.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dtjax.theory import _checks
from dtjax.theory._checks import FloatArray
from dtjax.theory.order_statistics.any_law import mean_by_quadrature
from dtjax.theory.order_statistics.law import Law, finite_mean


def bsp_utilisation(law: Law, n: ArrayLike) -> FloatArray:
    """Compute the share of worker time that BSP spends computing, the rest is waiting.

    E[X] / E[X_(n:n)], the long-run ratio of useful seconds to n x elapsed seconds, for any law of
    finite mean; without communication and server seconds. Its inverse is the speed-up of ASP in
    gradients per second.

    Args:
        law: compute time of every worker, seconds.
        n: workers, at least 1.

    Returns:
        Between 1/n and 1, the shape of n.

    Raises:
        ValueError: if n is out of range, or the mean of the law is not positive and finite.

    Example:
        >>> from scipy import stats
        >>> round(float(bsp_utilisation(stats.expon(), 8)), 4)  # 1 / H_8
        0.3679

    Reference:
        Derived; follows from the independence of BSP updates.
    """
    return np.float64(1.0) / _slowest_over_mean("bsp_utilisation", law, n)


def asp_over_bsp_update_speedup(law: Law, n: ArrayLike) -> FloatArray:
    """Compute how many times more updates per second ASP makes than BSP, in the long run.

    n E[X_(n:n)] / E[X]; n H_n with exponential times. An update of ASP holds one gradient, one of
    BSP holds n: `asp_over_bsp_gradient_speedup` compares gradients.

    Args:
        law: compute time of every worker, seconds.
        n: workers, at least 1.

    Returns:
        A ratio of at least n, the shape of n; inf where BSP's mean is infinite.

    Raises:
        ValueError: if n is out of range, or the mean of the law is not positive and finite.

    Example:
        >>> from scipy import stats
        >>> round(float(asp_over_bsp_update_speedup(stats.expon(), 20)), 2)
        71.95

    Reference:
        Commonly quoted, Dutta et al. 2018; checked for three laws.
    """
    ratio = _slowest_over_mean("asp_over_bsp_update_speedup", law, n)
    return ratio * np.asarray(n, dtype=np.float64)[()]


def asp_over_bsp_gradient_speedup(law: Law, n: ArrayLike) -> FloatArray:
    """Compute how many times more gradients per second ASP uses than BSP, in the long run.

    E[X_(n:n)] / E[X], the inverse of the utilisation of BSP; H_n with exponential times.

    Args:
        law: compute time of every worker, seconds.
        n: workers, at least 1.

    Returns:
        A ratio of at least 1, the shape of n; inf where BSP's mean is infinite.

    Raises:
        ValueError: if n is out of range, or the mean of the law is not positive and finite.

    Example:
        >>> from scipy import stats
        >>> round(float(asp_over_bsp_gradient_speedup(stats.expon(), 20)), 4)
        3.5977

    Reference:
        Derived from the seconds per update of both.
    """
    return _slowest_over_mean("asp_over_bsp_gradient_speedup", law, n)


def _slowest_over_mean(function: str, law: Law, n: ArrayLike) -> FloatArray:
    """Compute E[X_(n:n)] / E[X]."""
    _checks.workers(function, n)
    mean = np.float64(finite_mean(function, law))
    return mean_by_quadrature(function, law, n, n) / mean
