"""The map of regimes at its smoke size, and its findings on numbers made by hand."""

from __future__ import annotations

import json
import math
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import matplotlib
import numpy as np
import pytest
import xarray as xr

import dtjax
from dtjax import delays, policies, study
from studies import regimes, regimes_findings, regimes_runs, regimes_tables

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "studies" / "regimes.py"
SMALL = ["--smoke", "--runs", "3", "--bandwidths", "3e4", "inf", "--encode-rates", "2e4", "inf"]
DENSE, INT8 = 32 * 2410, 8 * 2410 + 4 * 32
SPARSE = 48 * (32 + 12)  # 2 % of 2,410 entries, packed indices


class Ran(NamedTuple):
    """A study that was run."""

    out: Path
    stdout: str
    env: dict[str, str]


def run(env: dict[str, str], out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--out", str(out), *arguments]
    return subprocess.run(
        command, env=env, cwd=out.parent, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("regimes")
    env = os.environ | {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "MPLCONFIGDIR": matplotlib.get_cachedir(),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # most of the time is the compiler's
    }
    done = run(env, folder / "out", *SMALL)
    assert done.returncode == 0, done.stderr
    return Ran(folder / "out", done.stdout, env)


@pytest.fixture(scope="module")
def whole(ran: Ran) -> xr.Dataset:
    return study.read(ran.out / "regimes.nc")


def test_the_file(whole: xr.Dataset) -> None:
    sizes = {"policy": 3, "workers": 1, "compressor": 3, "bandwidth": 2, "encode_rate": 2}
    sizes |= {"load": 3, "run": 3, "fate": 7, "bound": 3, "against": 2}
    assert dict(whole.sizes) == sizes
    for name, dims in {
        "target_seconds": ("policy", "workers", "compressor", "bandwidth", "encode_rate", "run"),
        "seconds_an_update": ("policy", "workers", "compressor", "bandwidth", "encode_rate", "run"),
        "apply_target_seconds": ("policy", "workers", "load", "run"),
        "winner": ("policy", "workers", "bandwidth", "encode_rate"),
        "lead": ("policy", "workers", "bandwidth", "encode_rate", "bound"),
        "crossing": ("workers", "against", "bound"),
        "chosen_rate": ("policy", "workers", "compressor", "bandwidth", "encode_rate"),
    }.items():
        assert set(whole[name].dims) == set(dims), name
    assert whole.bits.isel(policy=0, workers=0).values.tolist() == [DENSE, SPARSE, INT8]
    assert whole["apply"].sel(policy="asp", workers=4).values.tolist() == [0, 0.25, 0.5]
    config = json.loads(whole.attrs["config"])
    assert config["workers"] == [4] and config["bandwidths"] == [3e4, math.inf]
    assert json.loads(whole.attrs["versions"]) == study.versions()
    assert whole.attrs["study"] == "regimes" and whole.attrs["created"]


def test_seconds_have_one_fate(whole: xr.Dataset) -> None:
    np.testing.assert_allclose(whole.share.sum("fate"), 1.0, rtol=1e-5)
    np.testing.assert_allclose(whole.apply_share.sum("fate"), 1.0, rtol=1e-5)
    assert (whole.share.sel(policy="k-bsp", fate="cancelled") > 0).all()
    assert (whole.share.sel(policy="asp", fate=["waiting", "cancelled", "discarded"]) == 0).all()
    assert (whole.staleness.sel(policy=["bsp", "k-bsp"]) == 0).all()


def test_without_link_and_encoder_seconds_there_is_no_network(whole: xr.Dataset) -> None:
    free = whole.sel(bandwidth=math.inf, encode_rate=math.inf)
    assert (free.share.sel(fate="communicating") == 0).all()
    assert (free.share.sel(fate="queueing") < 1e-6).all()  # what the other fates leave
    assert (free.seconds_an_update == free.seconds_an_update.isel(compressor=0)).all()
    nothing = whole.sel(load=0.0)
    for name in ("target_seconds", "target_gradients", "seconds_an_update"):
        assert (free[name].sel(compressor="none") == nothing[f"apply_{name}"]).all(), name
    linked = whole.sel(bandwidth=3e4, encode_rate=math.inf)
    assert (linked.share.sel(fate="communicating") > 0).all()
    assert (linked.seconds_an_update > free.seconds_an_update).all()


def test_the_clock_is_the_plain_one(whole: xr.Dataset) -> None:
    """With the same keys, workers that are there and no network."""
    cluster = dtjax.Cluster(n=4, delay=delays.exponential(0.5, shift=0.5))
    keys = jax.random.split(jax.random.fold_in(jax.random.key(0), 0), 2 * 2 + 3)[2 * 2 :]
    free = whole.sel(bandwidth=math.inf, encode_rate=math.inf, compressor="none", workers=4)
    for policy, rule, updates in (("bsp", policies.bsp(), 60), ("asp", policies.asp(), 240)):
        plain = jax.vmap(
            lambda key, rule=rule, updates=updates: (
                dtjax.simulate(key, cluster, rule, updates=updates).accounts.elapsed
            )
        )(keys)
        found = free.seconds_an_update.sel(policy=policy)
        np.testing.assert_allclose(found, np.asarray(plain) / updates, rtol=1e-5)


def test_what_is_not_stale_is_learned_alike_in_all_cells(whole: xr.Dataset) -> None:
    """Only the seconds differ, and encoding and serving delay every update alike."""
    fresh = whole.sel(policy=["bsp", "k-bsp"])
    assert (fresh.target_gradients == fresh.target_gradients.isel(bandwidth=0, encode_rate=0)).all()
    assert (fresh.apply_target_gradients == fresh.apply_target_gradients.isel(load=0)).all()
    encoded = fresh.sel(compressor=["sparse", "quantised"])
    longer = encoded.target_seconds.sel(encode_rate=2e4) - encoded.target_seconds.sel(
        encode_rate=math.inf
    )
    wanted = (encoded.target_updates * DENSE / 2e4).isel(encode_rate=0)
    reached = np.isfinite(wanted)
    assert reached.any()
    np.testing.assert_allclose(longer.where(reached, 0), wanted.where(reached, 0), rtol=1e-4)
    first = fresh.sel(load=0.0)
    reached = np.isfinite(first.apply_target_updates)
    assert reached.any()
    wanted = first.apply_target_seconds + first.apply_target_updates * fresh["apply"]
    served = fresh.apply_target_seconds.where(reached)
    xr.testing.assert_allclose(served, wanted.where(reached).transpose(*served.dims), rtol=1e-4)
    none = whole.target_seconds.sel(compressor="none")
    assert (none == none.isel(encode_rate=0)).all()


def test_the_closed_form_is_above_what_is_measured(whole: xr.Dataset) -> None:
    """Pushes begin while others compute: the closed form of BSP is a bound (3 runs: 15 %)."""
    one = whole.sel(policy="bsp", workers=4)
    assert (one.guess / one.seconds_an_update.mean("run") > 0.85).all()
    at = one.sel(compressor="sparse", bandwidth=3e4, encode_rate=2e4)
    compute = 0.5 + 0.5 * (1 + 1 / 2 + 1 / 3 + 1 / 4)
    wanted = compute + DENSE / 2e4 + DENSE / 3e4 + 4 * SPARSE / 3e4
    assert float(at.guess) == pytest.approx(wanted, 1e-6)


def test_the_tables(ran: Ran, whole: xr.Dataset) -> None:
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("seconds to 50% test accuracy (3 runs; ")
    assert lines[1].split()[:2] == ["policy", "workers"]
    rows = [line for line in lines if re.match(r"(bsp|k-bsp|asp) +4 ", line)]
    assert len(rows) == 12
    slow = next(row for row in rows if row.startswith("bsp") and "3e+04" in row and "3.856" in row)
    assert "none" in slow or "sparse" in slow or "quantised" in slow
    for text in (
        "bsp, 4 workers: first in 4 cells",
        "asp, 4 workers: first in 4 cells",
        "bsp, 4 workers: encoding may take",
        "asp: guessed over measured seconds an update",
        "4 workers: asp stops paying against bsp at workers x apply = ",
        "4 workers: asp stops paying against k-bsp",
        "4 workers: least median of all in 4 cells: ",
        "chosen rates are at an edge",
    ):
        assert any(line.startswith(text) or text in line for line in lines), text


def test_the_picture(ran: Ran) -> None:
    assert (ran.out / "regimes.png").read_bytes().startswith(b"\x89PNG")


def test_a_second_run_computes_what_is_missing(ran: Ran, whole: xr.Dataset) -> None:
    parts = ran.out / "parts"
    files = sorted(parts.glob("*.nc"))
    assert len(files) == 3
    lost = next(path for path in files if float(study.read(path).staleness.sum()) > 0)  # asp's
    lost.unlink()
    before = {path: path.stat().st_mtime_ns for path in files if path != lost}
    done = run(ran.env, ran.out, *SMALL, "--no-figure")
    assert done.returncode == 0, done.stderr
    assert lost.exists()
    assert {path: path.stat().st_mtime_ns for path in before} == before
    again = study.read(ran.out / "regimes.nc")
    xr.testing.assert_equal(again, whole)
    few = run(ran.env, ran.out, *SMALL, "--no-figure", "--policies", "bsp", "bsp")
    assert few.returncode == 0, few.stderr
    assert study.read(ran.out / "regimes.nc").policy.values.tolist() == ["bsp"]
    assert "asp stops" not in few.stdout


def test_a_picture_of_something_else(tmp_path: Path) -> None:
    study.write(xr.Dataset({"x": 1.0}), tmp_path / "x.nc")
    figure = [sys.executable, str(ROOT / "figures" / "regimes.py"), str(tmp_path / "x.nc")]
    done = subprocess.run(figure, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: figures/regimes.py: result must be a result of")


# Findings, by hand.


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
    found = whole.assign(regimes_tables.findings(config, whole))
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
    found = regimes_runs.neighbours(cells)
    assert found[:3] == [[0, 1, 3], [0, 1, 2, 4], [1, 2, 5]]
    assert found[10] == [7, 9, 10, 11]
    served = [cell(0, math.inf, math.inf, seconds) for seconds in (0.0, 0.3, 0.1)]
    assert regimes_runs.neighbours(served) == [[0, 2], [1, 2], [0, 1, 2]]


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--ratio 2", r"ratio must be above 0 and at most 1, got 2\.0"),
        ("--levels 0", "levels must be an integer between 1 and 65536, got 0"),
        ("--bandwidths -3", r"bandwidths must be positive, got -3\.0"),
    ],
)
def test_bad_arguments_end_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, message: str
) -> None:
    monkeypatch.setattr("dtjax.study.prepare", lambda **settings: None)
    monkeypatch.setattr("sys.argv", ["x", "--out", str(tmp_path), *arguments.split()])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    text = str(stopped.value)
    assert re.search(f"^error: .*{message}", text), text
    assert not list(tmp_path.rglob("*.nc"))
