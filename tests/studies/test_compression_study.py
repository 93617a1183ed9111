"""The study of compressors at a tiny size, in this process: numbers, tables, resuming, errors."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr

import dtjax
from asked import Asked, asked, drawn
from dtjax import delays, policies
from dtjax.experiment import files
from dtjax.experiment.provenance import versions
from studies import compression_report as report
from studies.compression import Compression

SETTINGS = ["identity", "top-k:0.1", "top-k:0.1 + feedback"]
PARAMETERS = 64 * 32 + 32 + 32 * 10 + 10
TINY = Compression(smoke=True, workers=4, runs=3, compressors=("top-k:0.1",))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    return asked(TINY, tmp_path_factory.mktemp("compression"))


def test_the_file(ran: Asked) -> None:
    whole = ran.whole
    sizes = {"setting": 3, "run": 3, "bandwidth": 14, "candidate": 2, "tuning_run": 2}
    assert sizes.items() <= dict(whole.sizes).items()
    assert whole.setting.values.tolist() == SETTINGS
    assert whole.memory.values.tolist() == ["none", "none", "feedback"]
    for name, dims in {
        "test_loss": ("run", "evaluation"),
        "error": ("run", "evaluation"),
        "seconds": ("bandwidth", "run", "evaluation"),
        "target_seconds": ("bandwidth", "run"),
        "target_updates": ("run",),
        "target_bytes": ("run",),
        "bits": (),
        "rate": (),
        "break_even": (),
        "break_even_bounds": ("bound",),
        "first_probability": ("reported",),
    }.items():
        assert set(whole[name].dims) == {"setting", *dims}, name
    assert whole.seconds.attrs["units"] == "s" and whole.bandwidth.attrs["units"] == "bit s-1"
    config = json.loads(whole.attrs["config"])
    assert config["workers"] == 4 and config["runs"] == 3
    assert json.loads(whole.attrs["versions"]) == versions()
    assert whole.attrs["study"] == "compression" and whole.attrs["created"]
    assert whole.verdict.values[:2].tolist() == [-1, -1]  # no memory


def test_updates_of_a_training_are_those_of_the_clock(ran: Asked) -> None:
    updates = ran.whole.updates.transpose("setting", "run", "evaluation").values
    assert (updates == np.minimum(8 * np.arange(updates.shape[-1]), 60)).all()
    reached = ran.whole.target_updates.values
    assert np.isin(reached[np.isfinite(reached)], updates).all()


def test_bits_and_bytes(ran: Asked) -> None:
    whole = ran.whole
    kept = [int(0.1 * size) for size in (64 * 32, 32, 32 * 10, 10)]
    expected = {"identity": 32 * PARAMETERS, "top-k:0.1": 64 * sum(kept)}
    for setting, text in zip(whole.setting.values, whole.compressor.values, strict=True):
        assert float(whole.bits.sel(setting=setting)) == expected[str(text)]
    reached = whole.target_updates.transpose("setting", "run").values
    gradients = np.where(np.isfinite(reached), reached * 4, np.inf)
    found = whole.target_bytes.transpose("setting", "run").values
    np.testing.assert_allclose(found, gradients * whole.bits.values[:, None] / 8, rtol=1e-12)
    assert (whole.gradients == 4 * whole.updates).all()
    assert np.isfinite(reached[0]).any()


def test_seconds_without_limit_are_those_without_a_network(ran: Asked) -> None:
    whole = ran.whole
    fast = whole.seconds.transpose("setting", "bandwidth", "run", "evaluation").values[:, -1]
    assert np.isinf(whole.bandwidth.values[-1])
    cluster = dtjax.Cluster(n=4, delay=delays.exponential(0.5, shift=0.5))
    root = jax.random.fold_in(jax.random.key(0), 0)
    for place, key in enumerate(jax.random.split(root, 5)[2:]):
        one = dtjax.simulate(key, cluster, policies.bsp(), updates=60)
        times = np.append(0.0, dtjax.seconds(one.trace))
        expected = times[whole.updates.values[0, place].astype(int)]
        wide = np.broadcast_to(expected, fast[:, place].shape)
        np.testing.assert_allclose(fast[:, place], wide, rtol=1e-5)
        # What is trained on is what the clock makes, whatever it is that times decide.
        assert (np.sort(one.trace.worker, axis=1) == np.arange(4)).all()
        for name in ("step", "version"):
            assert (np.asarray(getattr(one.trace, name)) == np.arange(60)[:, None]).all()


def test_seconds_fall_with_the_bandwidth_and_rise_with_the_bits(ran: Asked) -> None:
    whole = ran.whole.transpose("setting", "bandwidth", "run", "evaluation", ...)
    assert (np.diff(whole.seconds.values, axis=1) <= 1e-6).all()
    assert (whole.seconds.values[0] >= whole.seconds.values[1]).all()
    reached, updates = whole.target_seconds.values, whole.target_updates.values[:, None]
    assert (np.isfinite(reached) == np.isfinite(updates)).all()
    ends = whole.seconds.values[0, :, 0, -1]  # at the slowest, all time is transfer
    slow = 60 * 5 * whole.bits.values[0] / whole.bandwidth.values[0]
    assert ends[0] == pytest.approx(slow, rel=0.01)


def test_what_is_lost_of_messages(ran: Asked) -> None:
    whole = ran.whole
    error = {name: whole.mean_error.sel(setting=name).values for name in SETTINGS}
    assert (error["identity"] == 0).all()
    declared = float(whole.declared.sel(setting="top-k:0.1"))
    assert declared == pytest.approx(1 - 3 / 32)
    for name in SETTINGS[1:]:
        assert (error[name] > 0).all() and (error[name] < declared).all()
    carried = whole.mean_carried.transpose("setting", "run").values
    np.testing.assert_allclose(carried[:2], 1.0, rtol=1e-5)
    assert (carried[2] > 1).all()  # a residual is added


@pytest.mark.slow
def test_a_memory_of_an_unbiased_compressor_hurts(ran: Asked) -> None:
    own = dataclasses.replace(TINY, compressors=("random-k:0.1",))
    found = asked(own, ran.study.folder)
    whole, kept = found.whole, "random-k:0.1 + feedback"
    assert float(whole.bits[1]) == 32 * sum(int(0.1 * size) for size in (2048, 32, 320, 10))
    for name in ("random-k:0.1", kept):
        assert float(whole.declared.sel(setting=name)) == pytest.approx(32 / 3 - 1)
        error = whole.mean_error.sel(setting=name)
        np.testing.assert_allclose(error, 2048 / int(0.1 * 2048) - 1, rtol=0.35)
    assert int(whole.verdict.sel(setting=kept)) == report.VERDICTS.index(report.HURTS)
    mine, top = (
        whole.mean_carried.sel(setting=kept),
        ran.whole.mean_carried.sel(setting=SETTINGS[2]),
    )
    assert (mine.values > top.values).all()
    assert re.search(r"^feedback hurts: random-k:0.1", found.report, re.M)


def test_the_report(ran: Asked) -> None:
    lines = ran.report.splitlines()
    rows = [line for line in lines if re.match(r"(identity|top-k:0.1) +\w+ +\w+", line)]
    assert len(rows) == 3 + 1
    assert "s, dense = 0.1" in ran.report and "break-even" in ran.report
    assert re.search(r"^feedback (helps|makes no clear difference to): top-k:0.1", ran.report, re.M)
    assert "nan" not in ran.report and "inf" not in ran.report


def test_who_is_first_at_a_bandwidth(ran: Asked) -> None:
    """By the least median seconds, here where a dense gradient's transfer takes ten means."""
    place = int(np.argmin(abs(ran.whole.ratio.values - 10.0)))
    times = ran.whole.target_seconds.transpose("setting", "bandwidth", "run").values[:, place]
    best = SETTINGS[int(np.argmin(np.median(times, axis=-1)))]
    at = ran.whole.sel(reported=10.0)
    assert str(at.best.values) == best != "identity"
    total = ran.whole.first_probability.sum("setting") + ran.whole.nobody_probability
    np.testing.assert_allclose(total, 1.0, atol=1e-12)
    late = np.median(times[0]) - np.median(times[SETTINGS.index(best)])
    assert float(at.behind.sel(setting="identity")) == pytest.approx(late)
    assert f"dense = 10: {best} is first, with probability " in ran.report


def test_the_picture_is_drawn(ran: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn(ran.file, monkeypatch)


def test_other_bandwidths_train_nothing(ran: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ran.parts()
    assert len(before) == 3
    monkeypatch.setattr("dtjax.compare", None)
    other: dict[str, Any] = {"memories": ("none",), "ratios": (3.0,), "encode": 0.5}
    again = asked(dataclasses.replace(TINY, **other), ran.study.folder)
    assert again.parts() == before
    new, old = again.whole, ran.whole
    assert new.setting.values.tolist() == SETTINGS[:2]
    for name in ("test_loss", "target_updates", "rate"):
        xr.testing.assert_equal(new[name], old[name].sel(setting=new.setting))
    # Half a second of encoding a round, but for dense gradients.
    ends = [one.seconds.transpose("setting", "bandwidth", ...).values[:, -1] for one in (new, old)]
    spent = ends[0] - ends[1][:2]
    updates = new.updates.transpose("setting", "run", "evaluation").values
    np.testing.assert_allclose(spent, updates * np.array([0, 0.5])[:, None, None], atol=1e-3)


WRONG = [
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
def test_wrong_settings_are_rejected(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"compression: {message}"):
        Compression(**wrong).settled()


def test_the_figure_rejects_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write(xr.Dataset(attrs={"study": "other"}), tmp_path / "x.nc")
    with pytest.raises(SystemExit, match="must be a result of studies/compression.py"):
        drawn(tmp_path / "x.nc", monkeypatch, "compression")
