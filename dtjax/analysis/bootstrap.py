"""Intervals by resampling the runs, where some runs may be infinite; and means with Student's t.

A time to a target is infinite (censored) in a run that never got there. A median needs no model of
that: it is finite as long as fewer than half of the runs are infinite. Everything here resamples
runs, all settings together, so that differences between settings that share random numbers are
paired.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dtjax.core import checks

RESAMPLES = 4000
Statistic = Callable[[np.ndarray], np.ndarray]
"""From f[..., R], values of R runs, to f[...]."""


def median(values: Any) -> np.ndarray:
    """Return medians over the last axis, the higher of two: finite values of some run, or infinity.

    Example:
        >>> float(median([3.0, 1.0, np.inf, 2.0]))
        3.0
    """
    return np.quantile(np.asarray(values, np.float64), 0.5, axis=-1, method="higher")


def resampled(
    values: Any, statistic: Statistic = median, *, resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """Return a statistic of resampled runs, f[..., S]: `scipy.stats.bootstrap`'s distribution.

    Args:
        values: f[..., R]; may be infinite. Each resample takes the same runs of every row.
        statistic: from f[..., S, R] to f[..., S]; may be infinite, must not be NaN.
        resamples: S.
        seed: of the resampling.

    Raises:
        ValueError: if there is no run, or a value is NaN.
    """
    from scipy import stats

    values = np.asarray(values, np.float64)
    if not values.size or np.isnan(values).any():
        raise checks.fail("resampled", "values", "must be numbers, at least one run", values)
    if values.shape[-1] == 1:  # SciPy asks for two
        return np.repeat(np.asarray(statistic(values))[..., None], resamples, axis=-1)

    def of_runs(index: np.ndarray, axis: int = -1) -> np.ndarray:
        del axis
        return statistic(values[..., index])

    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        # SciPy's own interval interpolates, which infinite values make NaN: it is not used.
        warnings.simplefilter("ignore", category=stats.DegenerateDataWarning)
        return stats.bootstrap(
            (np.arange(values.shape[-1]),),
            of_runs,
            n_resamples=resamples,
            vectorized=True,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).bootstrap_distribution


def bounds(samples: np.ndarray, level: float = 0.95) -> np.ndarray:
    """Return the percentile interval of samples, f[..., 2]: values of samples, rounded outwards."""
    tail = (1.0 - level) / 2.0
    low = np.quantile(samples, tail, axis=-1, method="lower")
    return np.stack([low, np.quantile(samples, 1.0 - tail, axis=-1, method="higher")], axis=-1)


def estimate(
    values: Any,
    statistic: Statistic = median,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return a statistic of runs, f[...], and its bootstrap percentile interval, f[..., 2].

    Args:
        values: f[..., R].
        statistic: from f[..., R] to f[...].
        level: of the interval.
        resamples: bootstrap samples.
        seed: of the resampling.

    Raises:
        ValueError: as in `resampled`.

    Example:
        >>> both = np.array([[3.0, 4.0, 5.0], [1.0, 2.0, 3.0]])
        >>> lead = lambda pair: difference(median(pair[0]), median(pair[1]))
        >>> middle, interval = estimate(both, lead)
        >>> float(middle), interval.tolist()
        (2.0, [2.0, 2.0])
    """
    samples = resampled(values, statistic, resamples=resamples, seed=seed)
    return np.asarray(statistic(np.asarray(values, np.float64))), bounds(samples, level)


def difference(above: Any, below: Any) -> np.ndarray:
    """Subtract numbers that may be infinite: 0 where both are, neither got there."""
    with np.errstate(invalid="ignore"):
        found = np.subtract(above, below)
    return np.where(np.isinf(above) & (np.asarray(above) == below), 0.0, found)


def ratio(above: Any, below: Any) -> np.ndarray:
    """Divide positive numbers that may be infinite: 1 where both are, neither got there."""
    with np.errstate(invalid="ignore"):
        found = np.divide(above, below)
    return np.where(np.isinf(above) & (np.asarray(above) == below), 1.0, found)


def first_probability(times: Any, *, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Return with what probability each row has the least median, f[A + 1]; the last: nobody.

    A resample whose least median is infinite is nobody's; rows that tie share one. The sum is 1.

    Args:
        times: f[A, R], infinite where a run never got there.
        resamples: bootstrap samples.
        seed: of the resampling.

    Raises:
        ValueError: as in `resampled`.

    Example:
        >>> first_probability([[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]).tolist()
        [1.0, 0.0, 0.0]
    """
    medians = resampled(times, resamples=resamples, seed=seed)
    least = medians.min(axis=0)
    winners = (medians == least) & np.isfinite(least)
    shares = winners / np.maximum(winners.sum(axis=0), 1)
    return np.append(shares.mean(axis=-1), np.mean(np.isinf(least)))


class Interval(NamedTuple):
    """An estimate with its 95 % interval."""

    median: float
    low: float
    high: float
    censored: int  # how many of the runs were infinite
    runs: int

    def __str__(self) -> str:
        """Write the interval as a cell of a table."""
        if not np.isfinite(self.median):
            return f"not reached ({self.runs - self.censored} of {self.runs} runs)"
        high = f"{self.high:.3g}" if np.isfinite(self.high) else "never"
        note = f", {self.censored} censored" if self.censored else ""
        return f"{self.median:.3g} [{self.low:.3g}, {high}]{note}"


def median_interval(
    values: Any, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Estimate a median with its bootstrap percentile interval; infinite values are censored runs.

    With few runs the interval is too narrow: simulated, a 95 % one covers the median in 86 to 89 %
    of cases at 4 runs, and in 92 to 94 % at 16 and 40.

    Args:
        values: f[R], one a run; infinity for a run that never got there.
        level: of the interval.
        resamples: bootstrap samples.
        seed: of the resampling.

    Raises:
        ValueError: if there is no value or one is NaN.

    Example:
        >>> str(median_interval(np.array([1.0, 1.0, 1.0, np.inf])))
        '1 [1, never], 1 censored'
    """
    values = np.asarray(values, np.float64)
    if not values.size or np.isnan(values).any():
        raise checks.fail("median_interval", "values", "must be numbers, at least one", values)
    middle, (low, high) = estimate(values, level=level, resamples=resamples, seed=seed)
    censored = int(np.isinf(values).sum())
    return Interval(float(middle), float(low), float(high), censored, len(values))


def mean_interval(values: Any, *, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Estimate means over runs with Student's t interval, exact for values that are normal.

    Args:
        values: f[..., R], two runs or more; NaN gives NaN.
        level: of the interval.

    Returns:
        The means, and half the widths of their intervals, f[...].

    Raises:
        ValueError: if there are fewer than two runs.

    Example:
        >>> mean, half = mean_interval(np.array([1.0, 2.0, 3.0]))
        >>> float(mean), round(float(half), 3)
        (2.0, 2.484)
    """
    from scipy import stats

    values = np.asarray(values, np.float64)
    if not values.ndim or values.shape[-1] < 2:
        raise checks.fail("mean_interval", "values", "must have two runs or more", values.shape)
    runs = values.shape[-1]
    quantile = stats.t.isf((1.0 - level) / 2.0, runs - 1)
    return values.mean(axis=-1), quantile * values.std(axis=-1, ddof=1) / np.sqrt(runs)
