"""Time to a target and intervals of medians, beside readable loops and by simulation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtjax.analysis.bootstrap import mean_interval, median_interval
from dtjax.analysis.time_to_target import smoothed, time_to_target

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


@pytest.mark.parametrize(("runs", "nominal"), [(15, 0.95), (40, 0.95), (15, 0.8)])
def test_median_interval_covers_the_median(runs: int, nominal: float) -> None:
    # The percentile interval of a median covers a little less than it says in small samples. With
    # 1,500 samples a coverage of the nominal level - .04 falls below the bound with p < 1e-6.
    rng = np.random.default_rng(5)
    samples = 1500
    hits = 0
    for seed in range(samples):
        values = rng.exponential(size=runs)
        values[values > 1.2] = np.inf  # 30 % are censored: the median, log 2, stays the same
        found = median_interval(values, level=nominal, resamples=200, seed=seed)
        hits += found.low <= math.log(2) <= found.high
    error = math.sqrt(nominal * (1 - nominal) / samples)
    assert nominal - 0.04 - 5 * error < hits / samples < nominal + 0.04 + 5 * error


def test_median_interval_of_censored_runs() -> None:
    none = median_interval(np.full(8, np.inf))
    assert (none.median, none.low, none.high) == (np.inf, np.inf, np.inf)
    assert (none.censored, none.runs) == (8, 8)
    assert str(none) == "not reached (0 of 8 runs)"
    few = median_interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, np.inf]))
    assert few.censored == 1 and 3.0 <= few.median <= 6.0
    most = median_interval(np.array([1.0, np.inf, np.inf, np.inf]))
    assert str(most) == "not reached (1 of 4 runs)"
    assert str(median_interval(np.array([2.0]))) == "2 [2, 2]"


def test_median_interval_is_fixed_by_its_seed_and_not_by_the_order() -> None:
    values = np.random.default_rng(0).exponential(size=20)
    assert median_interval(values) == median_interval(values)
    assert median_interval(values).median == median_interval(values[::-1]).median


@pytest.mark.parametrize("values", [[], [1.0, np.nan]])
def test_bad_samples(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"median_interval: values must be numbers, at least one"):
        median_interval(np.array(values))


def test_mean_intervals_cover_as_often_as_they_say() -> None:
    """Normal values, 20,000 intervals at 95 %: .95 +- .008 fails once in 10^6."""
    values = np.random.default_rng(0).normal(3.0, 2.0, (20_000, 5))
    mean, half = mean_interval(values)
    assert np.mean(np.abs(mean - 3.0) <= half) == pytest.approx(0.95, abs=0.008)
    with pytest.raises(ValueError, match="mean_interval: values must have two runs or more"):
        mean_interval(np.ones((3, 1)))
