"""The study of compressors at its smoke size: files, numbers, tables, resuming, errors."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr

import dtjax
from compression_study import ROOT, SMALL, Ran, command, environment, run, stamps
from dtjax import delays, policies
from dtjax.experiment import study
from studies import compression_report as report
from studies import compression_runs as runs

SCRIPT = ROOT / "studies" / "compression.py"
ALL = ["--compressors", "top-k:0.1", "random-k:0.1", "--memories", "none", "feedback", "ef21"]
SETTINGS = ["identity", "top-k:0.1", "top-k:0.1 + feedback", "top-k:0.1 + ef21"]
SETTINGS += ["random-k:0.1", "random-k:0.1 + feedback"]
PARAMETERS = 64 * 32 + 32 + 32 * 10 + 10


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("compression")
    env, out = environment(folder / "cache"), folder / "out"
    done = run(env, SCRIPT, out, *SMALL, *ALL)
    assert done.returncode == 0, done.stderr
    return Ran(out, done.stdout, env)


def test_the_file(ran: Ran) -> None:
    whole = ran.whole
    sizes = {"setting": 6, "run": 3, "bandwidth": 14, "candidate": 2, "tuning_run": 2}
    assert sizes.items() <= dict(whole.sizes).items()
    assert whole.setting.values.tolist() == SETTINGS
    assert whole.memory.values.tolist() == ["none", "none", "feedback", "ef21", "none", "feedback"]
    for name, dims in {
        "test_loss": ("run", "evaluation"),
        "error": ("run", "evaluation"),
        "seconds": ("bandwidth", "run", "evaluation"),
        "target_seconds": ("bandwidth", "run"),
        "target_updates": ("run",),
        "target_bytes": ("run",),
        "bits": (),
        "rate": (),
    }.items():
        assert set(whole[name].dims) == {"setting", *dims}, name
    assert whole.seconds.attrs["units"] == "s" and whole.bandwidth.attrs["units"] == "bit s-1"
    config = json.loads(whole.attrs["config"])
    assert config["workers"] == 4 and config["runs"] == 3
    assert json.loads(whole.attrs["versions"]) == study.versions()
    assert whole.attrs["study"] == "compression" and whole.attrs["created"]
    assert set(whole.break_even.dims) == {"setting", "bound"}
    verdicts = dict(zip(SETTINGS, whole.verdict.values.tolist(), strict=True))
    assert verdicts["identity"] == verdicts["top-k:0.1"] == -1  # no memory
    assert verdicts["random-k:0.1 + feedback"] == report.VERDICTS.index(report.HURTS)


def test_bits_and_bytes(ran: Ran) -> None:
    whole = ran.whole
    kept = [int(0.1 * size) for size in (64 * 32, 32, 32 * 10, 10)]
    expected = {"identity": 32 * PARAMETERS, "top-k:0.1": 64 * sum(kept)}
    expected["random-k:0.1"] = 32 * sum(kept)
    for setting, text in zip(whole.setting.values, whole.compressor.values, strict=True):
        assert float(whole.bits.sel(setting=setting)) == expected[str(text)]
    reached = whole.target_updates.transpose("setting", "run").values
    gradients = np.where(np.isfinite(reached), reached * 4, np.inf)
    found = whole.target_bytes.transpose("setting", "run").values
    np.testing.assert_allclose(found, gradients * whole.bits.values[:, None] / 8, rtol=1e-12)
    assert (whole.gradients == 4 * whole.updates).all()
    assert np.isfinite(reached[0]).any()


def test_seconds_without_limit_are_those_without_a_network(ran: Ran) -> None:
    whole = ran.whole
    fast = whole.seconds.transpose("setting", "bandwidth", "run", "evaluation").values[:, -1]
    assert np.isinf(whole.bandwidth.values[-1])
    cluster = dtjax.Cluster(n=4, delay=delays.exponential(0.5, shift=0.5))
    root = jax.random.fold_in(jax.random.key(0), 0)
    for place, key in enumerate(jax.random.split(root, 5)[2:]):
        one = dtjax.simulate(key, cluster, policies.bsp(), updates=60)
        times = np.append(0.0, dtjax.seconds(one.trace))
        expected = times[whole.updates.values[0, place].astype(int)]
        np.testing.assert_allclose(fast[:, place], np.broadcast_to(expected, fast[:, place].shape),
                                   rtol=1e-5)  # fmt: skip
        # What is trained on is what the clock makes, whatever it is that times decide.
        mine = runs.bsp_trace(4, 60, 16)
        order = np.argsort(one.trace.worker, axis=1)
        for name in ("worker", "step", "version"):
            clocked = np.take_along_axis(np.asarray(getattr(one.trace, name)), order, axis=1)
            assert (clocked == np.asarray(getattr(mine, name))).all()


def test_seconds_fall_with_the_bandwidth_and_rise_with_the_bits(ran: Ran) -> None:
    whole = ran.whole.transpose("setting", "bandwidth", "run", "evaluation", ...)
    assert (np.diff(whole.seconds.values, axis=1) <= 1e-6).all()
    assert (whole.seconds.values[0] >= whole.seconds.values[1]).all()
    reached, updates = whole.target_seconds.values, whole.target_updates.values[:, None]
    assert (np.isfinite(reached) == np.isfinite(updates)).all()
    ends = whole.seconds.values[0, :, 0, -1]  # at the slowest, all time is transfer
    slow = 60 * 5 * whole.bits.values[0] / whole.bandwidth.values[0]
    assert ends[0] == pytest.approx(slow, rel=0.01)


def test_what_is_lost_of_messages(ran: Ran) -> None:
    whole = ran.whole
    error = {name: report.mean_error(whole.sel(setting=name)) for name in SETTINGS}
    assert (error["identity"] == 0).all()
    k = int(0.1 * 2048)
    for name in ("random-k:0.1", "random-k:0.1 + feedback"):
        bound = float(whole.declared.sel(setting=name))
        assert bound == pytest.approx(32 / 3 - 1)
        np.testing.assert_allclose(error[name], 2048 / k - 1, rtol=0.35)
    declared = float(whole.declared.sel(setting="top-k:0.1"))
    assert declared == pytest.approx(1 - 3 / 32)
    for name in SETTINGS[1:4]:
        assert (error[name] > 0).all() and (error[name] < declared).all()
    carried = {name: report.mean_error(whole.sel(setting=name), "carried") for name in SETTINGS}
    np.testing.assert_allclose(carried["top-k:0.1"], 1.0, rtol=1e-5)
    assert (carried["random-k:0.1 + feedback"] > carried["top-k:0.1 + feedback"]).all()


def test_the_tables_and_the_picture(ran: Ran) -> None:
    lines = ran.stdout.splitlines()
    rows = [
        line for line in lines if re.match(r"(identity|top-k:0.1|random-k:0.1) +\w+ +\w+", line)
    ]
    assert len(rows) == 6 + 3
    assert "s, dense = 0.1" in ran.stdout and "break-even" in ran.stdout
    assert re.search(r"^feedback (helps|makes no clear difference to): top-k:0.1", ran.stdout, re.M)
    assert "nan" not in ran.stdout and "inf" not in ran.stdout
    assert (ran.out / "compression.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_other_bandwidths_train_nothing(ran: Ran) -> None:
    parts = ran.out / "parts"
    before = stamps(parts)
    assert len(before) == 7
    more = ["--compressors", "random-k:0.1", "--ratios", "3", "--encode", "0.5", "--no-figure"]
    whole, other = ran.whole, ran.out.parent / "other"
    (other / "parts").mkdir(parents=True)
    for path in parts.glob("*.nc"):
        os.link(path, other / "parts" / path.name)
    done = run(ran.env, SCRIPT, other, *SMALL, *more)
    assert done.returncode == 0, done.stderr
    after = stamps(other / "parts")
    assert len(after) == 8 and before.items() <= after.items()
    again = Ran(other, done.stdout, ran.env).whole
    assert again.setting.values.tolist() == [SETTINGS[0], *SETTINGS[4:]]
    for name in ("test_loss", "target_updates", "rate"):
        xr.testing.assert_equal(again[name], whole[name].sel(setting=again.setting))
    # Half a second of encoding a round, but for dense gradients.
    ends = [
        one.seconds.transpose("setting", "bandwidth", ...).values[:, -1] for one in (again, whole)
    ]
    spent = ends[0] - ends[1][[0, 4, 5]]
    updates = again.updates.transpose("setting", "run", "evaluation").values
    np.testing.assert_allclose(spent, updates * np.array([0, 0.5, 0.5])[:, None, None], atol=1e-3)


@pytest.mark.slow
def test_an_interrupt_keeps_what_is_done(ran: Ran) -> None:
    out = ran.out.parent / "interrupted"
    # Not the smoke size, which can be over before it is interrupted.
    other = ["--workers", "4", "--runs", "8", "--updates", "400", *ALL, "--no-figure"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command(SCRIPT, out, *other),
        env=ran.env,
        cwd=out.parent,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )
    deadline = time.monotonic() + 200
    while not list((out / "parts").glob("*.nc")) and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=100)
    assert process.returncode not in (0, None)
    assert stderr.strip().splitlines()[-1].startswith("interrupted: what is done is kept")
    assert "Traceback" not in stderr
    assert 1 <= len(stamps(out / "parts")) < 7
    assert not [path for path in out.rglob("*") if "partial" in path.name]


WRONG = [
    ({"policy": "asp"}, "policy must be bsp: .* one training does not do .*'asp'"),
    ({"compressors": ()}, "compressors must not be empty"),
    ({"compressors": ("top_k:0.1",)}, "compressors must be one of .*did you mean 'top-k'"),
    ({"compressors": ("top-k",)}, "compressors must be top-k:NUMBER, got 'top-k'"),
    ({"compressors": ("int8:3",)}, "compressors must be int8 without a number, got 'int8:3'"),
    ({"compressors": ("qsgd:2.5",)}, r"compressors must be qsgd:NUMBER.*got 'qsgd:2\.5'"),
    ({"memories": ("some",)}, "memories must be one of .*got 'some'"),
    ({"ratios": (1.0, 0.0)}, r"ratios must be positive and finite, got 0\.0"),
    ({"encode": -1.0}, r"encode must be non-negative and finite, got -1\.0"),
    ({"rates": ()}, "rates must not be empty"),
    ({"target": 0.0}, r"target must be above 0 and at most 1, got 0\.0"),
    ({"runs": 0}, "runs must be an integer 1 or more, got 0"),
    ({"window": -1}, "window must be an integer 0 or more, got -1"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[str(wrong) for wrong, _ in WRONG])
def test_bad_settings(wrong: dict[str, Any], message: str) -> None:
    script = runpy.run_path(str(SCRIPT), run_name="compression")
    with pytest.raises(ValueError, match=f"compression: {message}"):
        script["settle"](script["Config"](**wrong))


def test_errors_are_one_line_and_a_code(ran: Ran, tmp_path: Path) -> None:
    done = run(ran.env, SCRIPT, tmp_path / "out", "--rates", "-1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*.nc"))


def test_the_figure_wants_its_own_study(tmp_path: Path) -> None:
    study.write(xr.Dataset(attrs={"study": "other"}), tmp_path / "x.nc")
    script = runpy.run_path(str(ROOT / "figures" / "compression.py"), run_name="figure")
    with pytest.raises(ValueError, match="must be a result of studies/compression.py"):
        script["main"](script["Options"](tmp_path / "x.nc", tmp_path / "x.png"))
