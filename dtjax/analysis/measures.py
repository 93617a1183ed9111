"""What a study reports: time to a target quality, and intervals of medians."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtjax.core import checks


def smoothed(values: np.ndarray, gradients: np.ndarray, window: int) -> np.ndarray:
    """Average a measure over the last `window` gradients, evaluation by evaluation.

    Args:
        values: f[..., E].
        gradients: i[..., E], gradients used by each evaluation, not falling.
        window: gradients, 0 or more; 0 changes nothing.

    Returns:
        f[..., E]: entry e is the mean of the evaluations whose count is in
        (gradients[e] - window, gradients[e]]. NaN where one of them is.
    """
    values, gradients = np.asarray(values, np.float64), np.asarray(gradients)
    result = np.empty_like(values)
    for place in np.ndindex(values.shape[:-1]):
        counts = gradients[place]
        first = np.searchsorted(counts, counts - max(window, 1), side="right")
        # Not by differences of a running sum: one huge or NaN entry would spoil all later ones.
        result[place] = [values[place][f : e + 1].mean() for e, f in enumerate(first)]
    return result


def time_to_target(
    seconds: np.ndarray,
    gradients: np.ndarray,
    values: np.ndarray,
    target: float,
    *,
    window: int,
    rising: bool = True,
) -> np.ndarray:
    """Find when a measure reaches a target and stays there: seconds, infinite if it never does.

    The measure, smoothed over `window` gradients, must reach the target and not leave it for
    another `window` gradients. A run that ends before that, or diverges, is censored: infinity.
    A measure that differs from the target by a rounding of its float type has reached it.

    Args:
        seconds: f[..., E], when each evaluation was.
        gradients: i[..., E], gradients used by then. Repeated counts (padding) do not count.
        values: f[..., E], the measure; NaN reaches nothing.
        target: to be reached from below (rising) or above.
        window: gradients, 0 or more.
        rising: whether larger is better.

    Returns:
        f[...], seconds.

    Raises:
        ValueError: if shapes differ or `window` is negative.

    Example:
        >>> t, g = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0, 10, 20, 30])
        >>> float(time_to_target(t, g, np.array([0.1, 0.9, 0.97, 0.98]), 0.95, window=10))
        2.0
    """
    checks.integer("time_to_target", "window", window, low=0)
    kind = np.asarray(values).dtype
    unit = np.finfo(kind).eps if np.issubdtype(kind, np.floating) else 0.0
    values, seconds = np.asarray(values, np.float64), np.asarray(seconds, np.float64)
    gradients = np.asarray(gradients)
    if not values.shape == seconds.shape == gradients.shape:
        shapes = (values.shape, seconds.shape, gradients.shape)
        raise checks.fail("time_to_target", "values", "must have the shape of seconds", shapes)
    mean = smoothed(values, gradients, window)
    slack = 4 * unit * abs(target)
    good = mean >= target - slack if rising else mean <= target + slack
    result = np.full(values.shape[:-1], np.inf)
    for place in np.ndindex(result.shape):
        counts, ok = gradients[place], good[place]
        end = counts[-1]
        for e in np.flatnonzero(ok):
            inside = (counts >= counts[e]) & (counts <= counts[e] + window)
            if counts[e] + window > end:
                break
            if ok[inside].all():
                result[place] = seconds[place][e]
                break
    return result


def mean_interval(values: np.ndarray, *, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
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
    values: np.ndarray, *, level: float = 0.95, resamples: int = 4000, seed: int = 0
) -> Interval:
    """Estimate a median with its bootstrap percentile interval; infinite values are censored runs.

    Censoring needs no model: a median is finite as long as fewer than half of the runs are
    infinite. With few runs the interval is too narrow: simulated, a 95 % one covers the median in
    86 to 89 % of cases at 4 runs, and in 92 to 94 % at 16 and 40.

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
    rng = np.random.default_rng(seed)
    picked = values[rng.integers(0, len(values), (resamples, len(values)))]
    medians = np.quantile(picked, 0.5, axis=1, method="higher")
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(medians, [tail, 1.0 - tail], method="higher")
    middle = np.quantile(values, 0.5, method="higher")
    censored = int(np.isinf(values).sum())
    return Interval(float(middle), float(low), float(high), censored, len(values))
