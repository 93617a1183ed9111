"""The map of staleness and sparsity at its smoke size: files, numbers, resuming, errors."""

from __future__ import annotations

import math
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import dtjax
from compression_study import ROOT, SMALL, Ran, environment, run, stamps
from dtjax.experiment import study
from studies import compression_interaction as interactions

SCRIPT = ROOT / "studies" / "compression_staleness.py"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("staleness")
    env, out = environment(folder / "cache"), folder / "out"
    done = run(env, SCRIPT, out, *SMALL, "--staleness", "2", "--shares", "0.1")
    assert done.returncode == 0, done.stderr
    return Ran(out, done.stdout, env)


def test_the_map_of_staleness(ran: Ran) -> None:
    whole = ran.whole
    sizes = {"memory": 2, "staleness": 2, "share": 2, "run": 3}
    assert sizes.items() <= dict(whole.sizes).items()
    assert whole.staleness.values.tolist() == [0, 2] and whole.share.values.tolist() == [1, 0.1]
    assert np.isfinite(whole.test_loss).all() and (whole.diverged == -1).all()
    dense = whole.sel(share=1.0)  # nothing is left to remember
    np.testing.assert_array_equal(
        dense.test_loss.sel(memory="feedback"), dense.test_loss.sel(memory="none")
    )
    assert (whole.isel(evaluation=0).test_loss == whole.test_loss[0, 0, 0, :, 0]).all()
    assert whole.attrs["study"] == "compression_staleness"
    found = re.findall(r"^memory \w+: staleness and sparsity .*A = -?\d", ran.stdout, re.M)
    assert len(found) == 2 and "nan" not in ran.stdout
    assert (ran.out / "compression_staleness.png").read_bytes().startswith(b"\x89PNG")


def test_every_gradient_has_the_staleness_asked_for() -> None:
    script = runpy.run_path(str(SCRIPT), run_name="compression_staleness")
    config = script["Config"](updates=40, workers=4, staleness=(0, 3))
    for tau in (0, 3):
        trace = script["trace_of"](config, tau)
        stale = np.asarray(dtjax.staleness(trace))[:, 0]
        assert (stale == np.minimum(np.arange(40), tau)).all()
        assert (np.asarray(trace.worker)[:, 0] == np.arange(40) % 4).all()
        assert (np.asarray(trace.step)[:, 0] == np.arange(40) // 4).all()
        assert trace.slots == 4 and int(np.max(trace.slot)) <= tau


def test_a_second_map_trains_nothing(ran: Ran) -> None:
    before = stamps(ran.out / "parts")
    assert len(before) == 4
    small = [*SMALL, "--staleness", "2", "--shares", "0.1", "--memories", "none", "--no-figure"]
    done = run(ran.env, SCRIPT, ran.out, *small)
    assert done.returncode == 0, done.stderr
    assert stamps(ran.out / "parts") == before
    first = ran.stdout[ran.stdout.index("memory: none") :].splitlines()[1:5]
    assert first == done.stdout[done.stdout.index("memory: none") :].splitlines()[1:5]


def grid(combine: Any, scatter: float = 1e-4) -> np.ndarray:
    """Return losses f[3, 3, 8] of costs of staleness and of sparsity, put together somehow."""
    noise = scatter * np.random.default_rng(0).standard_normal((3, 3, 8))
    costs = np.array([0.0, 0.5, 1.0])
    return combine(costs[:, None], costs[None])[..., None] + noise


def test_how_costs_go_together() -> None:
    found = interactions.interaction(grid(lambda a, b: 0.5 + a + b, 1e-2))
    assert found.says == "add" and found.added[0] == pytest.approx(1, abs=0.05)
    found = interactions.interaction(grid(lambda a, b: 0.5 * (1 + a) * (1 + b), 1e-2))
    assert found.says == "multiply" and found.multiplied[0] == pytest.approx(1, abs=0.05)
    assert found.added[1] > 1
    found = interactions.interaction(grid(lambda a, b: 0.5 + np.maximum(a, b)))
    assert found.says.startswith("mask") and found.added[2] < 1
    found = interactions.interaction(grid(lambda a, b: 0.5 * np.exp(a + b + 2 * a * b)))
    assert found.says == "more than multiply"
    found = interactions.interaction(grid(lambda a, b: 0.5 + a * b))
    assert found.says.startswith("undecided")
    lost = grid(lambda a, b: 0.5 + a + b)
    lost[2, 2] = math.inf
    found = interactions.interaction(lost)
    assert found.says == "more than multiply" and not any(map(math.isnan, found.added))


WRONG = [
    ({"staleness": (-1,)}, "staleness must be an integer between 0 and 256, got -1"),
    ({"shares": (0.0,)}, r"shares must be above 0 and at most 1, got 0\.0"),
    ({"memories": ()}, "memories must not be empty"),
    ({"memories": ("ef21",)}, "memories must be one of feedback, none"),
    ({"rates": (math.inf,)}, "rates must be positive and finite, got inf"),
    ({"updates": 1}, "updates must be an integer 2 or more, got 1"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[str(wrong) for wrong, _ in WRONG])
def test_bad_settings_of_the_map(wrong: dict[str, Any], message: str) -> None:
    script = runpy.run_path(str(SCRIPT), run_name="compression_staleness")
    with pytest.raises(ValueError, match=f"compression_staleness: {message}"):
        script["settle"](script["Config"](**wrong))


def test_errors_are_one_line_and_a_code(ran: Ran, tmp_path: Path) -> None:
    done = run(ran.env, SCRIPT, tmp_path / "out", "--rates", "-1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*.nc"))


def test_the_figure_wants_its_own_study(tmp_path: Path) -> None:
    study.write(xr.Dataset(attrs={"study": "other"}), tmp_path / "x.nc")
    script = runpy.run_path(str(ROOT / "figures" / "compression_staleness.py"), run_name="figure")
    with pytest.raises(ValueError, match="must be a result of studies/compression_staleness.py"):
        script["main"](script["Options"](tmp_path / "x.nc", tmp_path / "x.png"))
