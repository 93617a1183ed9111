"""The trade-off study at a tiny size, in this process: file, tables, resuming, errors, picture."""

from __future__ import annotations

import json
import math
import runpy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from dtjax.experiment import study
from studies.tradeoff import Tradeoff

ROOT = Path(__file__).parents[2]
POLICIES, WORLDS = ("bsp", "k-asp", "asp"), ("exponential", "persistent")
COLUMNS = ["arm", "rate", "seconds to 50%", "over best", "first", "updates", "useful"]
COLUMNS += ["staleness", "accuracy"]
TINY: dict[str, Any] = {"smoke": True, "workers": 4, "data": "skewed", "runs": 3, "figure": False}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tradeoff")


@pytest.fixture(scope="module")
def whole(out: Path) -> xr.Dataset:
    return tiny(out).run(progress=False)


def tiny(out: Path, **settings: Any) -> Tradeoff:
    own: dict[str, Any] = {"out": out, "policies": POLICIES} | TINY | settings
    return Tradeoff(**own)


def table(text: str) -> list[list[str]]:
    """Return headers and rows of the first table of a text."""
    lines = text.splitlines()
    rule = next(i for i, line in enumerate(lines) if line.startswith("---"))
    ends = [len(dashes) for dashes in lines[rule].split("  ")]
    starts = np.cumsum([0, *(end + 2 for end in ends)])
    rows = [lines[rule - 1]]
    for line in lines[rule + 1 :]:
        if not line or line.split()[0] not in POLICIES or ":" in line.split()[0]:
            break
        rows.append(line)
    return [[row[a : a + n].strip() for a, n in zip(starts, ends, strict=False)] for row in rows]


def test_the_report_has_a_row_for_each_policy(out: Path, whole: xr.Dataset) -> None:
    text = tiny(out).settled().report(whole)
    for world, part in zip(WORLDS, text.split("\n\n"), strict=True):
        assert part.startswith(f"world: {world} (3 runs; ")
        headers, *rows = table(part)
        assert headers == COLUMNS and [row[0] for row in rows] == list(POLICIES)
        assert all(cell for row in rows for cell in row)
        one = whole.sel(world=world)
        for row, policy in zip(rows, POLICIES, strict=True):
            arm = one.sel(arm=policy)
            assert float(row[1]) == pytest.approx(float(arm.rate))
            assert row[4] == f"{float(arm.first_probability):.0%}"
            best = str(one.best.values) in ("", policy)
            assert (row[3] == "-") == best
        assert float(rows[0][COLUMNS.index("staleness")]) == 0
        assert float(rows[2][COLUMNS.index("staleness")]) > 2


def test_the_probabilities_of_being_first_sum_to_one(whole: xr.Dataset) -> None:
    total = whole.first_probability.sum("arm") + whole.nobody_probability
    np.testing.assert_allclose(total, 1.0, atol=1e-12)


def test_the_file_holds_raw_arrays_with_units_and_provenance(out: Path, whole: xr.Dataset) -> None:
    found = study.read(out / "tradeoff.nc")
    xr.testing.assert_identical(found, whole)
    assert dict(found.sizes).items() >= {"world": 2, "arm": 3, "run": 3, "worker": 4}.items()
    for name, dims in {
        "test_loss": ("run", "evaluation"),
        "seconds": ("run", "evaluation"),
        "useful": ("run", "worker"),
        "target_seconds": ("run",),
        "rate": (),
        "tuning_seconds": ("candidate", "tuning_run"),
        "behind_bounds": ("bound",),
    }.items():
        assert set(found[name].dims) == {"world", "arm", *dims}, name
    assert found.seconds.attrs["units"] == found.useful.attrs["units"] == "s"
    config = json.loads(found.attrs["config"])
    assert config["workers"] == 4 and config["runs"] == 3 and found.attrs["study"] == "tradeoff"


def test_the_numbers_agree_with_one_another(whole: xr.Dataset) -> None:
    fates = ["useful", "discarded", "cancelled", "in_flight", "waiting"]
    total = xr.concat([whole[fate] for fate in fates], "fate").sum(["fate", "worker"])
    np.testing.assert_allclose(total, 4 * whole.elapsed, rtol=1e-5)
    np.testing.assert_allclose(whole.elapsed, 25.0, rtol=1e-6)
    assert (whole.gradients.max("evaluation") == whole.useful_count.sum("worker")).all()
    assert (whole.updates.max("evaluation") == whole.update_count).all()
    assert (whole.seconds.max("evaluation") <= 25.0).all()
    first = whole.isel(evaluation=0)
    assert (first.test_loss == first.test_loss.isel(arm=0, world=0)).all()
    assert (whole.max_staleness.sel(arm="bsp") == 0).all()
    used = whole.useful_count.sum("worker")
    assert (used.sel(arm="asp") >= used).all()
    assert whole.rate.isin(whole.tried).all()


def test_a_second_run_trains_nothing(
    out: Path, whole: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dtjax.compare", None)
    again = tiny(out, worlds=("persistent",), policies=("asp", "bsp"), shown=0.2)
    found = again.run(progress=False)
    assert found.arm.values.tolist() == ["asp", "bsp"]
    same = whole.sel(world=["persistent"], arm=["asp", "bsp"])
    xr.testing.assert_equal(found.target_seconds, same.target_seconds)
    # Another accuracy needs no training: less of it is reached no later.
    assert (found.median_seconds <= same.median_seconds).all()
    assert "seconds to 20%" in again.report(found)


@pytest.mark.slow
def test_a_network_adds_a_column_and_bytes(tmp_path: Path) -> None:
    """A push takes 0.1 seconds, and so does a pull."""
    settings = {"bandwidth": 771_200.0, "pull": True, "worlds": ("exponential",)}
    linked = tiny(tmp_path, policies=("bsp", "asp"), **settings)
    found = linked.run(progress=False)
    headers, *rows = table(linked.settled().report(found))
    assert "link" in headers and len(headers) == 10
    one = found.sel(world="exponential")
    delivered = (one.useful_count + one.discarded_count).sum("worker")
    waits = one.bits_sent / (32 * (64 * 32 + 32 + 32 * 10 + 10)) - delivered
    assert ((waits >= 0) & (waits < 4) & (waits == np.round(waits))).all()
    assert (one.communicating >= 0.999 * 0.2 * one.useful_count).all()
    for row, policy in zip(rows, ("bsp", "asp"), strict=True):
        arm = one.sel(arm=policy)
        share = ((arm.communicating + arm.queueing).sum("worker") / (4 * arm.elapsed)).mean()
        assert row[headers.index("link")] == f"{float(share):.0%}"


@cache
def figure() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "figures" / "tradeoff.py"), run_name="tradeoff")


def test_the_picture_is_drawn(out: Path, whole: xr.Dataset) -> None:
    del whole
    picture = out / "tradeoff.png"
    figure()["main"](figure()["Options"](out / "tradeoff.nc", picture))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_figure_rejects_other_files(tmp_path: Path) -> None:
    study.write(xr.Dataset({"x": 1.0}), tmp_path / "other.nc")
    with pytest.raises(ValueError, match=r"must be a result of studies/tradeoff\.py"):
        figure()["main"](figure()["Options"](tmp_path / "other.nc"))


WRONG = [
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
    ({"window": -1}, "window must be an integer 0 or more, got -1"),
    ({"bandwidth": 0.0}, "bandwidth must be positive and finite, got 0"),
    ({"slow_enter": 2.0}, "slow_enter must be above 0 and at most 1, got 2"),
    ({"hidden": (0,)}, "hidden must be an integer 1 or more, got 0"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[str(wrong) for wrong, _ in WRONG])
def test_wrong_settings_are_rejected(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"tradeoff: {message}"):
        Tradeoff(**wrong).settled()


def test_pulls_need_a_bandwidth(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pull must not be given without bandwidth, got True"):
        tiny(tmp_path, pull=True).run(progress=False)
    assert not list(tmp_path.rglob("*.nc"))
