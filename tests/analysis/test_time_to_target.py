"""Time to a target, beside readable loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtjax.analysis.time_to_target import due_gradients, smoothed, time_to_target

Curve = tuple[list[float], list[int], list[float]]  # seconds, gradients, values


@st.composite
def curves(draw: Any) -> Curve:
    """Draw one run's curve: counts rise, then may repeat as padding does; some values are NaN."""
    count = draw(st.integers(1, 12))
    steps = draw(st.lists(st.integers(1, 30), min_size=count, max_size=count))
    gradients = [0, *np.cumsum(steps).tolist()]
    level = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, math.nan])
    values = draw(st.lists(level, min_size=count + 1, max_size=count + 1))
    seconds = np.cumsum([0.0, *(0.5 + (7 * step) % 3 for step in steps)]).tolist()
    padding = draw(st.integers(0, 2))
    return (
        seconds + seconds[-1:] * padding,
        gradients + gradients[-1:] * padding,
        values + values[-1:] * padding,
    )


def average(curve: Curve, e: int, window: int) -> float:
    """Average the evaluations in (count - window, count], by definition."""
    _, gradients, values = curve
    inside = [
        v
        for g, v in zip(gradients[: e + 1], values[: e + 1], strict=True)
        if g > gradients[e] - window or g == gradients[e]
    ]
    return math.nan if any(map(math.isnan, inside)) else sum(inside) / len(inside)


def first_time(curve: Curve, target: float, window: int, rising: bool) -> float:
    """Find the time by definition: reached, and not left within `window` gradients."""
    seconds, gradients, _ = curve
    good = []
    for e in range(len(gradients)):
        mean = average(curve, e, window)
        good.append(mean >= target if rising else mean <= target)
    for e, count in enumerate(gradients):
        if count + window > gradients[-1]:
            return math.inf
        if all(ok for g, ok in zip(gradients, good, strict=True) if count <= g <= count + window):
            return seconds[e]
    return math.inf


@given(curves(), st.integers(0, 80))
def test_smoothing_is_the_mean_over_the_last_gradients(curve: Curve, window: int) -> None:
    found = smoothed(np.array(curve[2]), np.array(curve[1]), window)
    expected = [average(curve, e, window) for e in range(len(curve[0]))]
    np.testing.assert_array_equal(found, expected)  # NaN where a NaN is inside, and there only
    if window == 0:
        np.testing.assert_array_equal(found, curve[2])


@given(
    st.lists(curves(), min_size=1, max_size=3),
    st.sampled_from([0.0, 0.3, 0.5, 0.625, 1.0]),
    st.integers(0, 60),
    st.booleans(),
)
def test_time_to_target_by_definition(
    runs: list[Curve], target: float, window: int, rising: bool
) -> None:
    for curve in runs:
        seconds, gradients, values = (np.array(column) for column in curve)
        found = time_to_target(seconds, gradients, values, target, window=window, rising=rising)
        assert found.shape == ()
        assert found == first_time(curve, target, window, rising)


def test_runs_go_side_by_side() -> None:
    t = np.broadcast_to(np.arange(5.0), (2, 3, 5))
    g = np.broadcast_to(np.arange(5) * 10, (2, 3, 5))
    values = np.where(np.arange(5) >= np.arange(6).reshape(2, 3, 1), 1.0, 0.0)
    found = time_to_target(t, g, values, 0.9, window=0)
    assert found.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, np.inf]]


def test_a_measure_in_binary32_that_equals_the_target_has_reached_it() -> None:
    # 342 of 360 right is 95 %, although binary32 rounds .95 down.
    times, counts = np.arange(3.0), np.arange(3) * 10
    for correct in range(1, 361):
        for value in (np.float32(correct / 360), np.float32(correct) * np.float32(1 / 360)):
            values = np.array([0.0, value, value], np.float32)
            share = correct / 360
            assert time_to_target(times, counts, values, share, window=0) == 1.0
            assert time_to_target(times, counts, values, share + 1e-5, window=0) == np.inf
            falling = time_to_target(times, counts, -values, -share, window=0, rising=False)
            assert falling == 1.0


def test_a_spike_is_forgotten_with_its_window() -> None:
    values = np.array([1e30, 0.3, 0.1, 0.1, np.inf, 0.1, 0.1, 0.1])
    found = smoothed(values, np.arange(8) * 10, 20)
    np.testing.assert_allclose(found[[2, 3, 6, 7]], [0.2, 0.1, 0.1, 0.1], rtol=1e-12)
    assert np.isinf(found[[4, 5]]).all()


def test_bad_curves() -> None:
    good = np.arange(3.0)
    with pytest.raises(ValueError, match=r"time_to_target: window must be .* 0 or more, got -1"):
        time_to_target(good, good, good, 0.5, window=-1)
    with pytest.raises(ValueError, match=r"time_to_target: values must have the shape of seconds"):
        time_to_target(good, good, good[:2], 0.5, window=0)


@given(curves(), st.sampled_from([10, 20, 30]))
def test_due_gradients_lie_where_evaluations_are_due(curve: Curve, every: int) -> None:
    gradients = np.array(curve[1])
    due = due_gradients(gradients, every)
    for m, (used, found) in enumerate(zip(gradients, due, strict=True)):
        assert found == (m * every if used >= m * every else used)


def test_large_updates_meet_the_same_target_as_small_ones() -> None:
    """Updates of 8 gradients, evaluated at 104, 200, 304...: as those at 100, 200, 300."""
    due = np.arange(6) * 100
    whole = -(-due // 8) * 8
    values = np.array([0.0, 0.9, 1.0, 0.9, 1.0, 1.0])
    found = [
        time_to_target(np.arange(6.0), due_gradients(g, 100), values, 0.95, window=100)
        for g in (due, whole)
    ]
    assert found[0] == found[1] == 4.0
