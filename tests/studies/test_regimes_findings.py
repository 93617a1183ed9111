"""What the map of regimes says of numbers made by hand: winners, crossings, closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import xarray as xr

from studies import regimes, regimes_findings, regimes_rates, regimes_runs


def test_a_winner_and_its_lead() -> None:
    base = np.array([1.0, 1.1, 0.9, 1.05, 0.95, 1.0])
    winner, second, ratio, clear = regimes_findings.lead(np.stack([3 * base, base, 2 * base]))
    assert (winner, second, clear) == (1, 2, True)
    np.testing.assert_allclose(ratio, 2.0)  # paired: the same runs on both sides


def test_a_lead_that_is_not_clear() -> None:
    times = np.array([[1.0, 3.0, 2.0], [2.0, 1.0, 3.1], [9.0, 9.0, 9.0]])
    winner, second, ratio, clear = regimes_findings.lead(times)
    assert (winner, second, clear) == (0, 1, False)
    assert ratio[1] < 1 < ratio[2]


def test_runs_that_never_get_there() -> None:
    never = np.full(5, np.inf)
    assert regimes_findings.lead(np.stack([never, never]))[:2] == (-1, -1)
    winner, second, ratio, clear = regimes_findings.lead(np.stack([never, np.ones(5)]))
    assert (winner, second, clear) == (1, 0, True)
    assert np.isinf(ratio).all()


AT = np.array([0.0, 1.0, 2.0, 4.0])


@pytest.mark.parametrize(
    ("ratios", "wanted"),
    [
        ([0.5, 0.5, 0.5, 0.5], np.inf),
        ([1.0, 0.5, 0.5, 0.5], 0.0),
        ([0.25, 0.5, 2.0, 0.5], 1.5),  # half-way in the logarithm
        ([0.5, 0.5, 0.25, 2.0], 2 + 2 * 2 / 3),
        ([0.5, 0.5, np.inf, np.inf], 1.5),
    ],
)
def test_a_crossing(ratios: list[float], wanted: float) -> None:
    theirs = np.tile([3.0, 2.0, 4.0], (4, 1))
    found = regimes_findings.crossing(AT, theirs * np.array(ratios)[:, None], theirs)
    np.testing.assert_allclose(found, wanted)  # paired: no width


def test_the_interval_of_a_crossing() -> None:
    rng = np.random.default_rng(3)
    theirs = 10 * np.exp(0.1 * rng.normal(size=(1, 20))) * np.ones((4, 1))
    ours = np.array([5.0, 8.0, 12.0, 20.0])[:, None] * np.exp(0.1 * rng.normal(size=(4, 20)))
    middle, low, high = regimes_findings.crossing(AT, ours, theirs)
    assert 1.0 < low < middle < high < 2.0


def test_breaking_even() -> None:
    """none takes 100 s; with it, 40 updates of 2 s, of which 0.5 s are encoding."""
    ones = np.ones(5)
    found = regimes_findings.break_even(100 * ones, 80 * ones, 40 * ones, 0.5)
    np.testing.assert_allclose(found, 1.0)
    assert np.isnan(regimes_findings.break_even(np.inf * ones, ones, ones, 0.5)).all()


def test_a_guess() -> None:
    config = regimes.settle(regimes.Config(pull=False))
    given: dict[str, Any] = {"dense": 100.0, "links": (10.0, 50.0)}
    # 0.5 + 0.5 (1/4 + 1/3) of the second of four
    value = regimes_findings.guess(config, "k-bsp", 4, 2, bits=5.0, **given)
    assert value == pytest.approx(0.5 + 0.5 * (1 / 4 + 1 / 3) + 2.0 + 2 * 0.5)
    assert regimes_findings.guess(config, "asp", 4, 1, bits=5.0, **given) == pytest.approx(3.5 / 4)
    assert regimes_findings.guess(config, "asp", 4, 1, bits=100.0, **given) == 10.0


def test_findings_of_a_dataset() -> None:
    config = regimes.settle(
        regimes.Config(workers=(4,), bandwidths=(1e5, 1e6), encode_rates=(1e5,), loads=(0, 1, 2))
    )
    # none, sparse, quantised by bandwidth; two runs
    each = np.array([[400.0, 100.0], [100.0, 110.0], [150.0, 120.0]])
    seconds = np.broadcast_to(each[None, None, :, :, None, None], (3, 1, 3, 2, 1, 2))
    served = np.array([[10.0, 11.0, 12.0], [5.0, 6.0, 7.0], [4.0, 8.0, 16.0]])
    apply = np.broadcast_to(served[:, None, :, None], (3, 1, 3, 2))
    grid = ("policy", "workers", "compressor", "bandwidth", "encode_rate", "run")
    whole = xr.Dataset(
        {
            "target_seconds": (grid, seconds),
            "target_updates": (grid, np.full(seconds.shape, 10.0)),
            "apply_target_seconds": (("policy", "workers", "load", "run"), apply),
            "bits": (("policy", "workers", "compressor"), [[[3200.0, 100.0, 800.0]]] * 3),
        },
        coords={
            "policy": ["bsp", "k-bsp", "asp"],
            "workers": [4],
            "compressor": list(regimes_runs.COMPRESSORS),
            "bandwidth": [1e5, 1e6],
            "encode_rate": [1e5],
            "load": [0.0, 1.0, 2.0],
        },
    )
    found = whole.assign(regimes_findings.findings(config, whole))
    assert found.winner.values[..., 0].tolist() == [[[1, 0]]] * 3
    assert found.clear.all()
    np.testing.assert_allclose(found.lead.sel(bandwidth=1e5), 1.5)
    np.testing.assert_allclose(found.lead.sel(bandwidth=1e6), 1.1)
    # 8/11 to 16/12 against bsp, 4/5 to 8/6 against k-bsp, in the logarithm
    bsp = 1 + math.log(11 / 8) / (math.log(11 / 8) + math.log(16 / 12))
    k_bsp = math.log(5 / 4) / (math.log(5 / 4) + math.log(8 / 6))
    np.testing.assert_allclose(found.crossing.values[0, 0], bsp)
    np.testing.assert_allclose(found.crossing.values[0, 1], k_bsp)
    # 77 ms an update by the dense gradient at 1e5 bits/s: the guess says sparse, then none
    assert found.guess.dims == ("policy", "workers", "bandwidth", "encode_rate", "compressor")
    assert found.guess_winner.sel(policy="bsp").values.reshape(-1).tolist() == [1, 0]


def test_the_same_training_is_found_once() -> None:
    rows = {"worker": np.array([[0, 1], [0, 1], [1, 0]]), "step": np.zeros((3, 2), np.int32)}
    lanes = np.array([0, 1, 2, 1, 0])
    runs, rates = np.array([7, 7, 7, 7, 8]), np.array([0.1, 0.1, 0.1, 0.2, 0.1])
    first, place = regimes_runs.distinct(rows, lanes, [runs, rates])
    assert first.tolist() == [0, 2, 3, 4]
    assert place.tolist() == [0, 0, 1, 2, 3]


def test_neighbours() -> None:
    cell = regimes_runs.Cell
    cells = [cell(c, b, e, 0.0) for c in (1, 2) for b in (1e4, 1e5) for e in (1e5, 1e6, 1e7)]
    found = regimes_rates.neighbours(cells)
    assert found[:3] == [[0, 1, 3], [0, 1, 2, 4], [1, 2, 5]]
    assert found[10] == [7, 9, 10, 11]
    served = [cell(0, math.inf, math.inf, seconds) for seconds in (0.0, 0.3, 0.1)]
    assert regimes_rates.neighbours(served) == [[0, 2], [1, 2], [0, 1, 2]]


SETTLED = [
    ({"policies": ("bsp", "asynchronous")}, "policies must be one of .*'asynchronous'"),
    ({"policies": ()}, "policies must not be empty"),
    ({"workers": (1,)}, "workers must be an integer between 2 and 256, got 1"),
    ({"bandwidths": (0.0,)}, r"bandwidths must be positive, got 0\.0"),
    ({"encode_rates": (math.nan,)}, "encode_rates must be positive, got nan"),
    ({"rates": (-0.1,)}, "rates must be positive"),
    ({"loads": (0.5, 1.0)}, "loads must hold 0"),
    ({"loads": (0.0, -1.0)}, "loads must be non-negative"),
    ({"kept": 0.0}, r"kept must be above 0 and at most 1, got 0\.0"),
    ({"target": 1.5}, r"target must be above 0 and at most 1, got 1\.5"),
    ({"mean": 0.0}, "mean must be positive"),
    ({"runs": 0}, "runs must be an integer 1 or more, got 0"),
    ({"gradients": 3}, "gradients must be an integer 16 or more, got 3"),
    ({"seed": -1}, "seed must be an integer"),
]


@pytest.mark.parametrize(("wrong", "message"), SETTLED, ids=[str(wrong) for wrong, _ in SETTLED])
def test_bad_settings(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"regimes: {message}"):
        regimes.settle(regimes.Config(**wrong))
