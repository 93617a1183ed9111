"""The trade-off study at its smoke size: files, tables, resuming, interrupting, errors."""

from __future__ import annotations

import json
import math
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pytest
import xarray as xr

from dtjax.experiment import study

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "studies" / "tradeoff.py"
POLICIES = ["bsp", "k-bsp", "k-asp", "ssp", "asp"]
WORLDS = ["exponential", "persistent"]
SMALL = ["--smoke", "--workers", "4", "--data", "skewed", "--runs", "3"]
COLUMNS = [
    "policy", "rate", "seconds to 50%", "worker-s to 50%", "accuracy", "worst class",
    "utilisation", "gradients/s", "updates/s", "staleness mean", "max", "waiting", "cancelled",
    "least share",
]  # fmt: skip


class Ran(NamedTuple):
    """A study that was run."""

    out: Path
    stdout: str
    env: dict[str, str]


def start(env: dict[str, str], out: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the study in a process of its own: the number of devices is fixed before JAX starts."""
    command = [sys.executable, str(SCRIPT), "--out", str(out), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, cwd=out.parent, stdout=pipe, stderr=pipe, text=True)


def run(env: dict[str, str], out: Path, *arguments: str) -> tuple[int, str, str]:
    process = start(env, out, *arguments)
    stdout, stderr = process.communicate(timeout=300)
    return process.returncode, stdout, stderr


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("tradeoff")
    env = os.environ | {
        "XDG_CACHE_HOME": str(folder / "cache"),  # shared, so that later runs compile little
        "MPLCONFIGDIR": matplotlib.get_cachedir(),  # fonts are found already
    }
    code, stdout, stderr = run(env, folder / "out", *SMALL, "--policies", *POLICIES)
    assert code == 0, stderr
    return Ran(folder / "out", stdout, env)


def table(stdout: str, world: str) -> dict[str, list[str]]:
    """Return the rows of a world's table by policy, and the headers by ""."""
    lines = stdout[stdout.index(f"world: {world} ") :].splitlines()
    ends = [len(dashes) for dashes in lines[2].split("  ")]
    starts = np.cumsum([0, *(end + 2 for end in ends)])
    found = {}
    for place, line in enumerate([lines[1], *lines[3:]]):
        cells = [line[a : a + n].strip() for a, n in zip(starts, ends, strict=False)]
        if place and cells[0] not in POLICIES:
            break
        found[cells[0] if place else ""] = cells
    return found


@pytest.mark.parametrize("world", WORLDS)
def test_the_table(ran: Ran, world: str) -> None:
    found = table(ran.stdout, world)
    assert found.pop("") == COLUMNS
    assert list(found) == POLICIES
    assert all(cell for row in found.values() for cell in row)
    assert f"world: {world} (3 runs; " in ran.stdout
    stale = COLUMNS.index("staleness mean")
    assert float(found["bsp"][stale]) == float(found["k-bsp"][stale]) == 0
    assert float(found["asp"][stale]) > 2
    assert float(found["bsp"][COLUMNS.index("least share")].rstrip("%")) == 25


def test_the_file(ran: Ran) -> None:
    whole = study.read(ran.out / "tradeoff.nc")
    sizes = {"world": 2, "policy": 5, "run": 3, "worker": 4, "candidate": 3, "tuning_run": 2}
    assert sizes.items() <= dict(whole.sizes).items()
    assert whole.policy.values.tolist() == POLICIES
    assert whole.world.values.tolist() == WORLDS
    assert whole.run.values.tolist() == [0, 1, 2]
    for name, dims in {
        "test_loss": ("run", "evaluation"),
        "seconds": ("run", "evaluation"),
        "gradients": ("run", "evaluation"),
        "useful": ("run", "worker"),
        "target_seconds": ("run",),
        "diverged": ("run",),
        "elapsed": ("run",),
        "rate": (),
        "tuning_seconds": ("candidate", "tuning_run"),
    }.items():
        assert set(whole[name].dims) == {"world", "policy", *dims}, name
    assert whole.seconds.attrs["units"] == whole.useful.attrs["units"] == "s"
    config = json.loads(whole.attrs["config"])
    assert config["workers"] == 4 and config["k"] == 2 and config["runs"] == 3
    assert json.loads(whole.attrs["versions"]) == study.versions()
    assert whole.attrs["study"] == "tradeoff" and whole.attrs["created"]


def test_the_numbers_agree_with_one_another(ran: Ran) -> None:
    whole = study.read(ran.out / "tradeoff.nc")
    fates = ["useful", "discarded", "cancelled", "in_flight", "waiting"]
    total = xr.concat([whole[fate] for fate in fates], "fate").sum(["fate", "worker"])
    np.testing.assert_allclose(total, 4 * whole.elapsed, rtol=1e-5)
    np.testing.assert_allclose(whole.elapsed, 25.0, rtol=1e-6)
    assert (whole.gradients.max("evaluation") == whole.useful_count.sum("worker")).all()
    assert (whole.updates.max("evaluation") == whole.update_count).all()
    assert (whole.seconds.diff("evaluation").fillna(0) >= 0).all()
    assert (whole.seconds.max("evaluation") <= 25.0).all()
    # Every policy starts from the same parameters and meets the same worlds.
    first = whole.isel(evaluation=0)
    assert (first.seconds == 0).all()
    assert (first.test_loss == first.test_loss.isel(policy=0, world=0)).all()
    assert (whole.max_staleness.sel(policy=["bsp", "k-bsp"]) == 0).all()
    assert (
        whole.useful_count.sum("worker").sel(policy="asp") >= whole.useful_count.sum("worker")
    ).all()
    assert (whole.diverged == -1).all()
    assert whole.rate.isin(whole.tried).all()


@pytest.mark.slow
def test_a_network(ran: Ran) -> None:
    """A push takes 0.1 seconds, and so does a pull."""
    out = ran.out.parent / "linked"
    linked = ["--bandwidth", "771200", "--pull", "--worlds", "exponential"]
    code, stdout, stderr = run(ran.env, out, *SMALL, *linked, "--policies", "bsp", "asp")
    assert code == 0, stderr
    found = table(stdout, "exponential")
    assert found[""] == [*COLUMNS, "communicating", "queueing", "bytes"]
    whole = study.read(out / "tradeoff.nc").sel(world="exponential")
    delivered = (whole.useful_count + whole.discarded_count).sum("worker")
    bits = 32 * (64 * 32 + 32 + 32 * 10 + 10)
    for policy in ("bsp", "asp"):
        one = whole.sel(policy=policy)
        waits = (one.bits_sent / bits - delivered.sel(policy=policy)).values
        assert ((waits >= 0) & (waits < 4) & (waits == np.round(waits))).all()
        talked = one.communicating.sum("worker") / (4 * one.elapsed)
        cells = dict(zip(found[""], found[policy], strict=True))
        assert float(cells["communicating"].rstrip("%")) == pytest.approx(
            100 * float(talked.mean()), 0.01
        )
        assert float(cells["bytes"]) == pytest.approx(float(one.bits_sent.mean()) / 8, 0.01)
    assert bits / 771_200 == 0.1
    assert (whole.communicating >= 0.999 * 0.2 * whole.useful_count).all()
    assert (whole.queueing.sum("worker") > 0).all()
    assert (out / "tradeoff.png").exists()


def test_the_picture(ran: Ran) -> None:
    assert (ran.out / "tradeoff.png").read_bytes().startswith(b"\x89PNG")


def stamps(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.nc")}


def test_a_second_run_trains_nothing(ran: Ran) -> None:
    out = Path(shutil.copytree(ran.out, ran.out.parent / "again"))
    before = stamps(out / "parts")
    assert len(before) == 10
    again = ["--worlds", "persistent", "--policies", "asp", "k-asp", "asp", "--no-figure"]
    code, stdout, stderr = run(ran.env, out, *SMALL, *again)
    assert code == 0, stderr
    assert stamps(out / "parts") == before
    first, second = (table(text, "persistent") for text in (ran.stdout, stdout))
    assert list(second) == ["", "asp", "k-asp"]
    assert all(first[name] == row for name, row in second.items() if name)
    assert study.read(out / "tradeoff.nc").policy.values.tolist() == ["asp", "k-asp"]


@pytest.mark.slow
def test_an_interrupt_keeps_what_is_done(ran: Ran) -> None:
    out = ran.out.parent / "interrupted"
    other = ["--rates", "0.1", "0.15", "0.3", "0.5", "--policies", *POLICIES, "--no-figure"]
    # Not the smoke size, which can be over before it is interrupted.
    other += ["--runs", "3", "--tuning-runs", "2", "--horizon", "400", "--block", "4"]
    process = start(ran.env, out, *other)
    deadline = time.monotonic() + 200
    while not list((out / "parts").glob("*.nc")) and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=100)
    assert process.returncode not in (0, None)
    assert stderr.strip().splitlines()[-1].startswith("interrupted: what is done is kept")
    assert "Traceback" not in stderr
    left = list(out.rglob("*"))
    assert 1 <= len([path for path in left if path.suffix == ".nc"]) < 10
    assert not [path for path in left if "partial" in path.name]
    for path in out.rglob("*.nc"):
        assert study.read(path).sizes["run"] == 3


SETTLED = [
    ({"policies": ("bsp", "k-async")}, "policies must be one of .*did you mean 'k-asp'.*'k-async'"),
    ({"worlds": ("nowhere",)}, "worlds must be one of exponential, persistent"),
    ({"policies": ()}, "policies must not be empty"),
    ({"rates": (0.1, -0.2)}, r"rates must be positive and finite, got -0\.2"),
    ({"rates": (math.nan,)}, "rates must be positive and finite, got nan"),
    ({"rates": ()}, "rates must not be empty"),
    ({"workers": 0}, "workers must be an integer 1 or more, got 0"),
    ({"k": 9}, "k must be an integer between 1 and workers=8, got 9"),
    ({"target": 1.5}, r"target must be above 0 and at most 1, got 1\.5"),
    ({"horizon": math.inf}, "horizon must be positive and finite, got inf"),
    ({"runs": 0}, "runs must be an integer 1 or more, got 0"),
    ({"payload": 8.0}, r"payload must not be given without bandwidth, got 8\.0"),
    ({"pull": True}, "pull must not be given without bandwidth, got True"),
    ({"window": -1}, "window must be an integer 0 or more, got -1"),
]


@pytest.mark.parametrize(("wrong", "message"), SETTLED, ids=[str(wrong) for wrong, _ in SETTLED])
def test_bad_settings(wrong: dict[str, Any], message: str) -> None:
    script = runpy.run_path(str(SCRIPT), run_name="tradeoff")
    with pytest.raises(ValueError, match=f"tradeoff: {message}"):
        script["settle"](script["Config"](**wrong))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--rates 0.1 -0.2 0.4", r"rates must be positive and finite, got -0\.2"),
        ("--bound -1", "bound must be an integer 0 or more, got -1"),
        ("--hidden 0", "hidden must be an integer 1 or more, got 0"),
        ("--data skewed --alpha 0", r"alpha must be positive, got 0\.0"),
        ("--bandwidth 0", r"bandwidth must be positive, got 0\.0"),
        ("--bandwidth 1 --payload -1", r"payload must be non-negative and finite, got -1\.0"),
        ("--mean 0", r"mean must be positive and finite, got 0\.0"),
        ("--worlds persistent --slow-enter 2", "enter must be above 0 and at most 1, got 2"),
    ],
)
def test_bad_arguments_end_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, message: str
) -> None:
    # In this process, with its devices and caches.
    monkeypatch.setattr("dtjax.experiment.study.prepare", lambda **settings: None)
    monkeypatch.setattr("sys.argv", ["x", "--smoke", "--out", str(tmp_path), *arguments.split()])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    text = str(stopped.value)
    assert re.search(f"^error: .*{message}", text), text
    assert "\n" not in text
    assert not list(tmp_path.rglob("*.nc"))


@pytest.mark.parametrize("arguments", ["--out file/sub", "--out file", "--policies nothing"])
def test_errors_are_one_line_and_a_code(ran: Ran, tmp_path: Path, arguments: str) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, str(SCRIPT), "--smoke", *arguments.split()]
    done: Any = subprocess.run(
        command, env=ran.env, cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
