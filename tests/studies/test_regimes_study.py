"""The map of regimes at its smoke size: files, clocks, tables, resuming, errors."""

from __future__ import annotations

import json
import math
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import matplotlib
import numpy as np
import pytest
import xarray as xr

import dtjax
from dtjax import delays, policies
from dtjax.experiment import study

ROOT = Path(__file__).parents[2]
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
    none = free.sel(compressor="none")
    assert (none.seconds_an_update == nothing.apply_seconds_an_update).all()
    fresh = {"policy": ["bsp", "k-bsp"]}  # the rates of asp are chosen with other neighbours
    assert (none.target_seconds.sel(fresh) == nothing.apply_target_seconds.sel(fresh)).all()
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


@pytest.mark.slow
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
    monkeypatch.setattr("dtjax.experiment.study.prepare", lambda **settings: None)
    monkeypatch.setattr("sys.argv", ["x", "--out", str(tmp_path), *arguments.split()])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    text = str(stopped.value)
    assert re.search(f"^error: .*{message}", text), text
    assert not list(tmp_path.rglob("*.nc"))
