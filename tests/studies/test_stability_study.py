"""The map of stable steps at its smoke size: files, verdicts, theory, resuming, errors.

Growth is held against theory by 8 standard errors of four populations plus the bias of a logarithm,
with a fixed key; each verdict is far from the edge.
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

from dtjax import theory
from dtjax.experiment import study

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "studies" / "stability.py"
SMALL = ["--smoke", "--workers", "2", "4", "6", "--factors", "0.7", "1.3"]
SMALL += ["--policies", "asp", "ssp"]


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
    folder = tmp_path_factory.mktemp("stability")
    env = os.environ | {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "MPLCONFIGDIR": matplotlib.get_cachedir(),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # most of the time is the compiler's
    }
    done = run(env, folder / "out", *SMALL)
    assert done.returncode == 0, done.stderr
    return Ran(folder / "out", done.stdout, env)


def test_the_file(ran: Ran) -> None:
    whole = study.read(ran.out / "stability.nc")
    sizes = {"policy": 2, "workers": 2, "factor": 2, "island": 4, "plain": 3, "bound": 3, "n": 3}
    assert dict(whole.sizes) == sizes
    assert whole.workers.values.tolist() == [4, 6]
    assert whole.factor.values.tolist() == [0.7, 1.3]
    assert whole.n.values.tolist() == [4, 5, 6]
    for name, dims in {
        "growth": ("workers", "factor", "island"),
        "typical": ("workers", "factor", "plain"),
        "verdict": ("workers", "factor"),
        "step": ("workers", "factor"),
        "edge": ("workers", "bound"),
        "theory_edge": ("n",),
        "constant_delay_edge": ("n",),
    }.items():
        assert set(whole[name].dims) == {"policy", *dims}, name
    assert whole.verdict.attrs["flag_meanings"].split()[:2] == ["shrinks", "grows"]
    assert whole.step.attrs["units"] == "1 / eigenvalue"
    config = json.loads(whole.attrs["config"])
    assert config["workers"] == [4, 6] and config["particles"] == 32
    assert json.loads(whole.attrs["versions"]) == study.versions()
    assert whole.attrs["study"] == "stability" and whole.attrs["created"]


def test_verdicts_and_growth_are_those_of_theory(ran: Ran) -> None:
    whole = study.read(ran.out / "stability.nc")
    assert np.isfinite(whole.growth).all() and np.isfinite(whole.typical).all()
    asp, ssp = whole.sel(policy="asp"), whole.sel(policy="ssp")
    assert (asp.verdict.sel(factor=0.7) == 0).all() and (asp.verdict.sel(factor=1.3) == 1).all()
    edges = theory.exponential_asp_stability_edge([4, 5, 6])
    np.testing.assert_allclose(asp.theory_edge, edges, rtol=1e-12)
    np.testing.assert_allclose(
        asp.constant_delay_edge, theory.constant_delay_stability_edge([3, 4, 5]), rtol=1e-12
    )
    error = asp.growth.std("island", ddof=1) / 2
    assert (abs(asp.growth.mean("island") - asp.theory_growth) < 8 * error + 0.01).all()
    # By the logarithm's concavity, a typical run grows less than the mean square.
    assert (asp.typical.mean("plain") < asp.growth.mean("island")).all()
    assert np.isnan(ssp.theory_edge).all() and np.isnan(ssp.t).all()
    middle = ssp.edge.sel(bound="mean")
    assert (middle > 0.5 * asp.constant_delay_edge.sel(n=[4, 6]).values).all()
    assert (middle < asp.theory_edge.sel(n=[4, 6]).values).all()


def test_the_table(ran: Ran) -> None:
    assert "every dot is on its side of the line, or undecided" in ran.stdout
    assert re.search(r"^asp +4 +0\.8431 ", ran.stdout, re.M)
    assert re.search(r"^ssp +4 +- ", ran.stdout, re.M)
    assert "nan" not in ran.stdout
    assert (ran.out / "stability.png").read_bytes().startswith(b"\x89PNG")


def test_a_second_run_trains_nothing(ran: Ran) -> None:
    parts = ran.out / "parts"
    before = {path.name: path.stat().st_mtime_ns for path in parts.glob("*.nc")}
    assert len(before) == 4
    done = run(ran.env, ran.out, *SMALL, "--policies", "asp", "--no-figure")
    assert done.returncode == 0, done.stderr
    assert {path.name: path.stat().st_mtime_ns for path in parts.glob("*.nc")} == before
    rows = [line.split() for line in ran.stdout.splitlines() if line.startswith("asp")]
    assert len(rows) == 2
    assert rows == [line.split() for line in done.stdout.splitlines() if line.startswith("asp")]


def test_a_step_that_leaves_the_numbers_has_a_status(ran: Ran) -> None:
    out = ran.out.parent / "diverged"
    done = run(ran.env, out, *SMALL, "--policies", "asp", "--factors", "0.7", "1e170", "--figure")
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("asp")]
    assert all(re.search(r" 0\.7 +- +- +1e\+170 ", row) for row in rows) and len(rows) == 2
    assert "nan" not in done.stdout
    whole = study.read(out / "stability.nc")
    assert (whole.verdict.sel(factor=1e170) == 3).all()


def test_verdicts_and_edges() -> None:
    runs = runpy.run_path(str(ROOT / "studies" / "stability_runs.py"))
    seen = np.array([[-1.0, -2.0, -0.5], [0.2, 0.1, 0.3], [0.0, -0.1, 0.1], [math.nan] * 3])
    assert runs["verdicts"](seen).tolist() == [0, 1, 2, 3]
    growth = np.array([[-1.0, -1.0], [-0.1, -0.1], [math.nan, math.nan]])
    middle, low, high = runs["edge"](np.array([0.5, 1.0, 2.0]), growth, 0)
    assert 1.0 <= middle <= 2.0 and low == middle == high
    assert math.isnan(runs["edge"](np.array([0.5, 1.0]), growth[:2], 0)[0])
    assert math.isnan(runs["edge"](np.array([0.5, 1.0]), -growth[:2], 0)[0])


def test_growth_of_policies_without_staleness() -> None:
    runs = runpy.run_path(str(ROOT / "studies" / "stability_runs.py"))
    config = runpy.run_path(str(SCRIPT), run_name="stability")["Config"]()
    steps = np.array([0.5, 1.9, 2.1])
    expected = 2 * np.log(np.abs(1 - steps))
    for policy in ("bsp", "k-bsp", "k-batch-bsp"):
        found = runs["exact_growth"](config, policy, 8, steps)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        assert runs["edges"](config, policy, np.array([2, 8])).tolist() == [2, 2]


SETTLED = [
    ({"policies": ("aps",)}, "policies must be one of .*did you mean 'asp'.*'aps'"),
    ({"policies": ()}, "policies must not be empty"),
    ({"workers": ()}, "workers must not be empty"),
    ({"workers": (1,)}, "workers must be an integer between 2 and 1024, got 1"),
    ({"factors": (0.5, 0.0)}, r"factors must be positive and finite, got 0\.0"),
    ({"factors": (math.nan,)}, "factors must be positive and finite, got nan"),
    ({"k": 0}, "k must be an integer 1 or more, got 0"),
    ({"islands": 1}, "islands must be an integer 2 or more, got 1"),
    ({"particles": 1}, "particles must be an integer 2 or more, got 1"),
    ({"length": 10**6}, "length must be an integer between 1 and 1024, got 1000000"),
    ({"bound": -1}, "bound must be an integer 0 or more, got -1"),
]


@pytest.mark.parametrize(("wrong", "message"), SETTLED, ids=[str(wrong) for wrong, _ in SETTLED])
def test_bad_settings(wrong: dict[str, Any], message: str) -> None:
    script = runpy.run_path(str(SCRIPT), run_name="stability")
    with pytest.raises(ValueError, match=f"stability: {message}"):
        script["settle"](script["Config"](**wrong))


def test_errors_are_one_line_and_a_code(ran: Ran, tmp_path: Path) -> None:
    done = run(ran.env, tmp_path / "out", "--factors", "-1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*.nc"))
