"""Rankings and the report, on times that are written down."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import xarray as xr

import dtjax
from dtjax.analysis.ranking import ranking, retarget

INF = math.inf
TIMES = {
    "steady": [10.0, 11.0, 12.0, 13.0, 14.0],
    "late": [13.0, 14.0, 15.0, 16.0, 17.0],  # run by run three seconds later
    "torn": [1.0, 2.0, INF, INF, INF],
    "never": [INF] * 5,
}


def dataset(times: dict[str, list[float]]) -> xr.Dataset:
    """Make a comparison of one world: measures jump to 1 at the time of the target."""
    arms, runs = len(times), 5
    shape = (1, arms, runs)
    reached = np.array([list(times.values())])
    seconds = np.broadcast_to(np.arange(21.0), (*shape, 21))
    each = ("world", "arm", "run")
    rest = {
        "useful": 8.0, "communicating": 1.0, "queueing": 0.5, "bits_sent": 1.0
    }  # fmt: skip
    values: dict[str, Any] = {
        name: ((*each, "worker"), np.full((*shape, 2), value)) for name, value in rest.items()
    }
    values |= {
        "target_seconds": (each, reached),
        "test_accuracy": ((*each, "evaluation"), 0.5 + 0.5 * (seconds >= reached[..., None])),
        "seconds": ((*each, "evaluation"), seconds),
        "gradients": ((*each, "evaluation"), 4 * seconds),
        "elapsed": (each, np.full(shape, 20.0)),
        "update_count": (each, np.full(shape, 20)),
        "mean_staleness": (each, np.full(shape, 1.5)),
        "diverged": (each, np.where(np.arange(runs) == 4, 7, -1) + np.zeros(shape, int)),
        "rate": (each[:2], np.full(shape[:2], 0.1)),
        "rate_warning": (each[:2], np.array([["", "edge", "", ""][:arms]])),
    }
    goal = {"measure": "test_accuracy", "target": 0.95, "window": 0, "evaluate_every": 4}
    coords = {"world": ["w"], "arm": list(times)}
    return xr.Dataset(values, coords, goal | {"rising": 1})


def test_medians_differences_and_the_best() -> None:
    found = ranking(dataset(TIMES)).sel(world="w")
    assert found.best.item() == "steady"
    assert found.median_seconds.values.tolist() == [12.0, 15.0, INF, INF]
    assert found.censored.values.tolist() == [0, 0, 3, 5]
    assert found.behind.values.tolist() == [0.0, 3.0, INF, INF]
    # Paired: whatever the resample, the one is three seconds behind the other.
    assert found.behind_bounds.sel(arm="late").values.tolist() == [3.0, 3.0]
    assert found.behind_bounds.sel(arm="steady").values.tolist() == [0.0, 0.0]
    low, high = found.behind_bounds.sel(arm="torn").values
    assert low < 0 and high == INF
    assert found.first_probability.sel(arm=["late", "never"]).values.tolist() == [0.0, 0.0]
    total = found.first_probability.sum() + found.nobody_probability
    assert float(total) == pytest.approx(1.0)


def test_the_probability_of_being_first_counts_censored_runs() -> None:
    """Torn is first where three of five draws or more are of its two finite runs: 31.7 %.

    4,000 resamples: .042 fails once in 10^8.
    """
    p = 0.4
    exact = sum(math.comb(5, k) * p**k * (1 - p) ** (5 - k) for k in range(3, 6))
    found = ranking(dataset(TIMES)).sel(world="w", arm="torn")
    assert float(found.first_probability) == pytest.approx(exact, abs=0.042)


def test_nobody_is_first_where_nobody_gets_there() -> None:
    found = ranking(dataset({"a": [INF] * 5, "b": [1.0, INF, INF, INF, INF]})).sel(world="w")
    assert found.best.item() == "" and found.behind.values.tolist() == [0.0, 0.0]
    assert 0.9 < float(found.nobody_probability) < 1.0


def test_another_target_is_found_in_the_curves() -> None:
    data = dataset(TIMES)
    np.testing.assert_array_equal(retarget(data, 0.95), data.target_seconds)
    assert (retarget(data, 0.5) == 0.0).all()
    assert np.isinf(retarget(data, 1.01)).all()


def test_the_report_says_who_is_first_and_how_sure_that_is() -> None:
    text = dtjax.report(dataset(TIMES))
    title, header, _, *rest = text.splitlines()
    assert title.startswith("world: w (5 runs; ") and len(header.split("  ")) >= 10
    rows = {line.split()[0]: line for line in rest[:4]}
    assert "12 [10, 14]" in rows["steady"] and "+3 [+3, +3]" in rows["late"]
    assert "not reached (2 of 5 runs)" in rows["torn"] and "never [" in rows["torn"]
    assert "40%" in rows["steady"] and "8%" in rows["steady"]  # useful, and on the link
    assert "late: edge" in rest and "late: 1 of 5 runs diverged" in rest


def test_a_report_of_a_target_that_nobody_reaches() -> None:
    text = dtjax.report(dataset(TIMES), target=0.999)
    assert text.count("seconds to 99.9%") == 1
    hopeless = dtjax.report(dataset({"a": [INF] * 5, "b": [INF] * 5}))
    assert hopeless.count("not reached (0 of 5 runs)") == 2
    assert "no arm reaches 95% in half of its runs" in hopeless
    assert "nobody is first, no arm's median being finite, in 100%" in hopeless


@pytest.mark.parametrize("function", [ranking, dtjax.report])
def test_other_datasets_are_rejected(function: Any) -> None:
    with pytest.raises(ValueError, match=r"dataset must be of dtjax\.compare"):
        function(xr.Dataset({"x": 1.0}))
