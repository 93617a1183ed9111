"""When a measure reaches a target and stays there."""

from __future__ import annotations

from typing import Any

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
    seconds: Any,
    gradients: Any,
    values: Any,
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


def due_gradients(gradients: Any, evaluate_every: int) -> np.ndarray:
    """Return how many gradients each evaluation is due at, the same for every policy, i[..., E].

    Evaluation m is due at m x `evaluate_every` gradients, and made after the update in which this
    count falls. Counted by whole updates of many gradients, a window of gradients would hold now
    one evaluation more and now one less.

    Args:
        gradients: i[..., E], used by each evaluation, as `train_runs` gives them.
        evaluate_every: gradients.

    Example:
        >>> due_gradients(np.array([0, 104, 200, 240]), 100).tolist()
        [0, 100, 200, 240]
    """
    return np.minimum(evaluate_every * np.arange(np.shape(gradients)[-1]), gradients)
