"""Resampling of runs beside exhaustive enumeration and the closed form of a median."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dtjax.analysis import bootstrap
from dtjax.analysis.bootstrap import (
    Interval,
    estimate,
    first_probability,
    mean_interval,
    median_interval,
    resampled,
)

TIMES = np.array([[3.0, 1.0, 4.0, math.inf], [2.0, 5.0, math.inf, math.inf], [2.5, 3.5, 3.0, 6.0]])


def every_median(times: np.ndarray) -> np.ndarray:
    """Return the medians of all R^R resamples, the same runs of every row, by plain sorting."""
    runs = times.shape[-1]
    picked = itertools.product(range(runs), repeat=runs)
    return np.array([[sorted(row[list(p)])[runs // 2] for row in times] for p in picked]).T


@pytest.fixture(scope="module")
def exact() -> np.ndarray:
    return every_median(TIMES)  # [3, 256]


def test_resampled_medians_have_the_exact_distribution(exact: np.ndarray) -> None:
    """40,000 resamples: a frequency is off by .0025 at most, so .014 fails once in 10^7."""
    found = resampled(TIMES, resamples=40_000)
    assert found.shape == (3, 40_000)
    for mine, whole in zip(found, exact, strict=True):
        assert set(mine) <= set(whole)
        for value in set(whole):
            assert np.mean(mine == value) == pytest.approx(np.mean(whole == value), abs=0.014)


def test_rows_are_resampled_together() -> None:
    shift = np.random.default_rng(0).exponential(size=12)
    both = np.stack([shift + 2.0, shift])  # the same run twice, two seconds apart

    def gap(rows: np.ndarray) -> np.ndarray:
        medians = bootstrap.median(rows)
        return bootstrap.difference(medians[0], medians[1])

    middle, (low, high) = estimate(both, gap)
    assert (round(float(middle), 12), round(low, 12), round(high, 12)) == (2.0, 2.0, 2.0)


def test_first_probabilities_are_those_of_all_resamples(exact: np.ndarray) -> None:
    """40,000 resamples: .014 fails once in 10^7."""
    expected = np.zeros(4)
    for column in exact.T:
        least = column.min()
        winners = np.flatnonzero(column == least)
        if math.isinf(least):
            expected[3] += 1
        else:
            expected[winners] += 1 / len(winners)
    found = first_probability(TIMES, resamples=40_000)
    np.testing.assert_allclose(found, expected / exact.shape[1], atol=0.014)


@pytest.mark.parametrize("seed", range(5))
def test_first_probabilities_sum_to_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = rng.integers(1, 4, (5, 6)).astype(float)  # many ties
    times[rng.random(times.shape) < 0.6] = np.inf
    found = first_probability(times)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    assert first_probability(np.full((2, 3), np.inf)).tolist() == [0.0, 0.0, 1.0]


def test_median_bounds_are_the_closed_form_of_order_statistics() -> None:
    """P(resampled median <= x_(j)) is binomial; 60,000 resamples are off by one rank at most."""
    runs = 15
    values = np.sort(np.random.default_rng(3).exponential(size=runs))
    rank = runs // 2 + 1  # the median is at most x_(j) if so many of the draws are
    below = stats.binom.sf(rank - 1, runs, np.arange(1, runs + 1) / runs)
    low, high = (values[int(np.argmax(below >= p))] for p in (0.025, 0.975))
    found = median_interval(values, resamples=60_000)
    near = {float(v): i for i, v in enumerate(values)}
    assert abs(near[found.low] - near[float(low)]) <= 1
    assert abs(near[found.high] - near[float(high)]) <= 1
    assert abs(near[found.low] - near[float(low)]) + abs(near[found.high] - near[float(high)]) <= 1


def test_bounds_are_samples_rounded_outwards() -> None:
    samples = np.arange(101.0)
    assert bootstrap.bounds(samples).tolist() == [2.0, 98.0]
    assert bootstrap.bounds(-samples).tolist() == [-98.0, -2.0]
    infinite = np.where(samples > 90, np.inf, samples)
    assert bootstrap.bounds(infinite).tolist() == [2.0, np.inf]
    assert np.isnan(bootstrap.bounds(np.array([1.0, np.nan, 2.0]))).all()  # one says nothing


@pytest.mark.parametrize(
    ("a", "b", "difference", "ratio"),
    [
        (3.0, 2.0, 1.0, 1.5),
        (math.inf, 2.0, math.inf, math.inf),
        (2.0, math.inf, -math.inf, 0.0),
        (math.inf, math.inf, 0.0, 1.0),
    ],
)
def test_comparisons_with_what_never_happens(
    a: float, b: float, difference: float, ratio: float
) -> None:
    assert bootstrap.difference(a, b) == difference
    assert bootstrap.ratio(a, b) == ratio


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
    assert median_interval(np.array([2.0])) == Interval(2.0, 2.0, 2.0, 0, 1)
    assert str(median_interval(np.array([2.0]))) == "2 [2, 2]"


def test_median_interval_is_fixed_by_its_seed_and_not_by_the_order() -> None:
    values = np.random.default_rng(0).exponential(size=20)
    assert median_interval(values) == median_interval(values)
    assert median_interval(values).median == median_interval(values[::-1]).median


@pytest.mark.parametrize("values", [[], [1.0, np.nan]])
@pytest.mark.parametrize("function", [median_interval, resampled])
def test_bad_samples(function: Any, values: list[float]) -> None:
    with pytest.raises(ValueError, match=rf"{function.__name__}: values must be numbers, at least"):
        function(np.array(values))


def test_mean_intervals_cover_as_often_as_they_say() -> None:
    """Normal values, 20,000 intervals at 95 %: .95 +- .008 fails once in 10^6."""
    values = np.random.default_rng(0).normal(3.0, 2.0, (20_000, 5))
    mean, half = mean_interval(values)
    assert np.mean(np.abs(mean - 3.0) <= half) == pytest.approx(0.95, abs=0.008)
    with pytest.raises(ValueError, match="mean_interval: values must have two runs or more"):
        mean_interval(np.ones((3, 1)))
