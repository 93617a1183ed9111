"""The study of loss against time on quadratics at its smoke size: files, theory, resuming, errors.

The trainer is held against theory by 6 standard errors with a fixed key: of about 200 comparisons
one would fail by chance with probability 4e-7, were the means normal.
"""

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

import matplotlib
import numpy as np
import pytest

from dtjax.experiment import study

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "studies" / "frontier.py"
SMALL = ["--smoke", "--workers", "4", "--target", "0.2", "--policies", "asp", "ssp"]
PLANS = ["same", "deadline", "target", "switch"]


class Ran(NamedTuple):
    """A study that was run."""

    out: Path
    stdout: str
    env: dict[str, str]


def run(env: dict[str, str], out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--out", str(out), *arguments]
    return subprocess.run(
        command, env=env, cwd=out.parent, capture_output=True, text=True, timeout=200
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("frontier")
    env = os.environ | {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "MPLCONFIGDIR": matplotlib.get_cachedir(),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # most of the time is the compiler's
    }
    done = run(env, folder / "out", *SMALL)
    assert done.returncode == 0, done.stderr
    return Ran(folder / "out", done.stdout, env)


def test_the_file(ran: Ran) -> None:
    whole = study.read(ran.out / "frontier.nc")
    assert dict(whole.sizes) == {"policy": 2, "plan": 4, "run": 200, "time": 32, "bound": 3}
    assert whole.policy.values.tolist() == ["asp", "ssp"]
    assert whole.plan.values.tolist() == PLANS
    for name, dims in {
        "loss": ("run", "plan", "time"),
        "update_loss": ("run", "plan"),
        "theory_loss": ("plan", "time"),
        "z": ("plan", "time"),
        "reached": ("plan", "bound"),
        "step_before": ("plan",),
        "theory_floor": ("plan",),
    }.items():
        assert set(whole[name].dims) == {"policy", *dims}, name
    assert whole.time.attrs["units"] == whole.reached.attrs["units"] == "s"
    assert whole.time.values[0] == 0 and 10.0 in whole.time.values
    config = json.loads(whole.attrs["config"])
    assert config["workers"] == 4 and config["k"] == 2 and config["runs"] == 200
    assert json.loads(whole.attrs["versions"]) == study.versions()
    assert whole.attrs["study"] == "frontier" and whole.attrs["created"]


def test_what_is_known_and_what_is_not(ran: Ran) -> None:
    whole = study.read(ran.out / "frontier.nc")
    asp, ssp = whole.sel(policy="asp"), whole.sel(policy="ssp")
    assert np.isfinite(asp.loss).all() and (whole.diverged.sel(plan=PLANS[:3]) == 0).all()
    assert np.isfinite(asp.theory_loss.sel(plan=PLANS[:3])).all()
    assert np.isnan(asp.theory_loss.sel(plan="switch")).all()
    assert np.isfinite(asp.theory_update_loss).all() and np.isfinite(asp.theory_floor).all()
    # No theory for ssp, and no change of its step.
    for name in ("theory_loss", "theory_floor", "theory_update_loss", "z", "z_update_loss"):
        assert np.isnan(ssp[name]).all(), name
    assert np.isfinite(ssp.loss.sel(plan=PLANS[:3])).all()
    assert np.isnan(ssp.loss.sel(plan="switch")).all()
    assert (whole.loss.isel(time=0).sel(plan="same") == 0.5 * 1.2 * 9).all()


def test_the_trainer_is_where_theory_says(ran: Ran) -> None:
    asp = study.read(ran.out / "frontier.nc").sel(policy="asp")
    for name in ("z", "z_update_loss", "z_update_seconds"):
        assert np.nanmax(np.abs(asp[name])) < 6, name
    assert np.isfinite(asp.z_update_loss).all()
    compared = asp.z.sel(plan=PLANS[:3]).isel(time=slice(-10, None))
    assert np.isfinite(compared).all()
    # The best steps are no worse than the others, at what they are best at.
    at = asp.theory_loss.sel(time=10.0)
    assert at.sel(plan="deadline") <= at.sel(plan=["same", "target"]).min() * 1.02
    planned = asp.theory_planned
    assert planned.sel(plan="switch") <= planned.sel(plan="target") <= planned.min("plan") * 1.5
    assert planned.sel(plan="target") <= planned.sel(plan=["same", "deadline"]).min()


def test_the_tables(ran: Ran) -> None:
    text = ran.stdout
    assert text.count("policy  step") == 4
    assert "ssp has no theory" in text
    assert "nan" not in text
    found = re.search(r"max \|z\| = (\d+\.\d+) of (\d+) comparisons", text)
    assert found and float(found[1]) < 6
    assert (ran.out / "frontier.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_second_run_trains_nothing_and_an_unstable_step_has_a_status(ran: Ran) -> None:
    parts = ran.out / "parts"
    before = {path.name: path.stat().st_mtime_ns for path in parts.glob("*.nc")}
    assert len(before) == 2
    done = run(ran.env, ran.out, *SMALL, "--policies", "asp", "--no-figure")
    assert done.returncode == 0, done.stderr
    assert {path.name: path.stat().st_mtime_ns for path in parts.glob("*.nc")} == before
    row = next(line for line in ran.stdout.splitlines() if line.startswith("asp"))
    assert row.split() in [line.split() for line in done.stdout.splitlines()]
    done = run(ran.env, ran.out, *SMALL, "--policies", "asp", "--step", "1.9", "--no-figure")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^asp +1\.9 +unstable ", done.stdout, re.M), done.stdout
    assert "nan" not in done.stdout


SETTLED = [
    ({"policies": ("bsp", "aps")}, "policies must be one of .*did you mean 'asp'.*'aps'"),
    ({"policies": ()}, "policies must not be empty"),
    ({"workers": 0}, "workers must be an integer 1 or more, got 0"),
    ({"k": 9}, "k must be an integer between 1 and workers=8, got 9"),
    ({"runs": 1}, "runs must be an integer 2 or more, got 1"),
    ({"step": -0.1}, r"step must be positive and finite, got -0\.1"),
    ({"target": math.nan}, "target must be positive and finite, got nan"),
    ({"mean": math.inf}, "mean must be positive and finite, got inf"),
    ({"deadline": 70.0}, r"deadline must be at most horizon=60, got 70\.0"),
    ({"deadline": 1.0}, r"deadline must be at least the 2\.72 s of an update of bsp, got 1\.0"),
    ({"eigenvalues": (0.0,)}, r"eigenvalues must hold a positive one, got \(0\.0,\)"),
    ({"eigenvalues": (1.0, -1.0)}, r"eigenvalues must be non-negative and finite, got -1\.0"),
    ({"noise": -1.0}, r"noise must be non-negative and finite, got -1\.0"),
    ({"bound": -1}, "bound must be an integer 0 or more, got -1"),
]


@pytest.mark.parametrize(("wrong", "message"), SETTLED, ids=[str(wrong) for wrong, _ in SETTLED])
def test_bad_settings(wrong: dict[str, Any], message: str) -> None:
    script = runpy.run_path(str(SCRIPT), run_name="frontier")
    with pytest.raises(ValueError, match=f"frontier: {message}"):
        script["settle"](script["Config"](**wrong))


def test_errors_are_one_line_and_a_code(ran: Ran, tmp_path: Path) -> None:
    done = run(ran.env, tmp_path / "out", "--deadline", "1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*.nc"))
