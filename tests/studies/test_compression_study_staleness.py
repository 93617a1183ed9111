"""The map of staleness and sparsity at a tiny size, in this process: numbers, resuming, errors."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import dtjax
from asked import Asked, asked, drawn
from dtjax.experiment import files
from studies import compression_interaction as interactions
from studies.compression_staleness import CompressionStaleness
from studies.compression_staleness_runs import trace_of

TINY = CompressionStaleness(smoke=True, workers=4, runs=3, staleness=(2,), shares=(0.1,))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    return asked(TINY, tmp_path_factory.mktemp("staleness"))


def test_the_map_of_staleness(ran: Asked) -> None:
    whole = ran.whole
    sizes = {"memory": 2, "staleness": 2, "share": 2, "run": 3}
    assert sizes.items() <= dict(whole.sizes).items()
    assert whole.staleness.values.tolist() == [0, 2] and whole.share.values.tolist() == [1, 0.1]
    assert np.isfinite(whole.test_loss).all() and (whole.diverged == -1).all()
    dense = whole.sel(share=1.0)  # nothing is left to remember
    np.testing.assert_array_equal(
        dense.test_loss.sel(memory="feedback"), dense.test_loss.sel(memory="none")
    )
    start = whole.isel(evaluation=0).test_loss
    assert (start == start.isel(memory=0, staleness=0, share=0)).all()
    assert whole.attrs["study"] == "compression_staleness"
    assert set(whole.coords) == {"memory", "staleness", "share", "run"}


def test_the_report_says_how_costs_go_together(ran: Asked) -> None:
    found = re.findall(r"^memory \w+: staleness and sparsity .*A = -?\d", ran.report, re.M)
    assert len(found) == 2 and "nan" not in ran.report
    one = ran.whole.sel(memory="none")
    line = ran.report[ran.report.index("memory: none") :].splitlines()[3]
    middle = np.median(interactions.losses(one)[0, 0])
    assert line.split()[:2] == ["0", f"{middle:.3g}"]


def test_the_picture_is_drawn(ran: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn(ran.file, monkeypatch)


@pytest.mark.parametrize("tau", [0, 3, 40])
def test_every_gradient_has_the_staleness_asked_for(tau: int) -> None:
    study = CompressionStaleness(updates=60, workers=4)
    trace = trace_of(study, tau)
    stale = np.asarray(dtjax.staleness(trace))[:, 0]
    assert (stale == np.minimum(np.arange(60), tau)).all()
    assert (np.asarray(trace.worker)[:, 0] == np.arange(60) % 4).all()
    assert (np.asarray(trace.step)[:, 0] == np.arange(60) // 4).all()
    assert trace.slots == (32 if tau < 32 else 64) and int(np.max(trace.slot)) <= tau


def test_a_second_map_trains_nothing(ran: Asked) -> None:
    before = ran.parts()
    assert len(before) == 4
    again = asked(dataclasses.replace(TINY, memories=("none",)), ran.study.folder)
    assert again.parts() == before
    xr.testing.assert_equal(again.whole.test_loss, ran.whole.test_loss.sel(memory=["none"]))


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
def test_wrong_settings_of_the_map_are_rejected(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"compression_staleness: {message}"):
        CompressionStaleness(**wrong).settled()


def test_the_figure_rejects_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write(xr.Dataset(attrs={"study": "other"}), tmp_path / "x.nc")
    with pytest.raises(SystemExit, match="must be a result of studies/compression_staleness.py"):
        drawn(tmp_path / "x.nc", monkeypatch, "compression_staleness")
