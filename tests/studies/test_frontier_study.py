"""The study of loss against time on quadratics at its smoke size: files, theory, resuming, errors.

The trainer is held against theory by 6 standard errors with a fixed key: of about 200 comparisons
one would fail by chance with probability 4e-7, were the means normal.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any

import numpy as np
import pytest

from asked import Asked, asked, drawn
from dtjax.experiment.provenance import versions
from studies.frontier import Frontier

SMALL = Frontier(smoke=True, workers=4, target=0.2, policies=("asp", "ssp"))
PLANS = ["same", "deadline", "target", "switch"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    return asked(SMALL, tmp_path_factory.mktemp("frontier"))


def test_the_file(ran: Asked) -> None:
    whole = ran.whole
    assert dict(whole.sizes) == {"policy": 2, "plan": 4, "run": 200, "time": 32, "interval": 3}
    assert whole.policy.values.tolist() == ["asp", "ssp"]
    assert whole.plan.values.tolist() == PLANS
    for name, dims in {
        "loss": ("run", "plan", "time"),
        "update_loss": ("run", "plan"),
        "theory_loss": ("plan", "time"),
        "z": ("plan", "time"),
        "reached": ("plan", "interval"),
        "rate_before": ("plan",),
        "theory_floor": ("plan",),
    }.items():
        assert set(whole[name].dims) == {"policy", *dims}, name
    assert whole.time.attrs["units"] == whole.reached.attrs["units"] == "s"
    assert whole.time.values[0] == 0 and 10.0 in whole.time.values
    config = json.loads(whole.attrs["config"])
    assert config["workers"] == 4 and config["k"] == 2 and config["runs"] == 200
    assert json.loads(whole.attrs["versions"]) == versions()
    assert whole.attrs["study"] == "frontier" and whole.attrs["created"]


def test_what_is_known_and_what_is_not(ran: Asked) -> None:
    whole = ran.whole
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


def test_the_trainer_is_where_theory_says(ran: Asked) -> None:
    asp = ran.whole.sel(policy="asp")
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


def test_the_tables(ran: Asked) -> None:
    text = ran.report
    assert text.count("policy  rate") == 4
    assert "ssp has no theory" in text
    assert "nan" not in text
    found = re.search(r"max \|z\| = (\d+\.\d+) of (\d+) comparisons", text)
    assert found and float(found[1]) < 6


def test_the_figure_is_drawn(ran: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn(ran.file, monkeypatch)


@pytest.mark.slow
def test_another_choice_of_policies_trains_nothing(ran: Asked) -> None:
    before = ran.parts()
    assert len(before) == 2
    again = asked(dataclasses.replace(SMALL, policies=("asp",)), ran.study.folder)
    assert ran.parts() == before
    row = next(line for line in ran.report.splitlines() if line.startswith("asp"))
    assert row.split() in [line.split() for line in again.report.splitlines()]


@pytest.mark.slow
def test_an_unstable_rate_has_a_status(ran: Asked) -> None:
    unstable = dataclasses.replace(SMALL, policies=("asp",), rate=1.9)
    report = asked(unstable, ran.study.folder).report
    assert re.search(r"^asp +1\.9 +unstable ", report, re.M), report
    assert "nan" not in report


WRONG = [
    ({"policies": ("bsp", "aps")}, "policies must be one of .*did you mean 'asp'.*'aps'"),
    ({"policies": ()}, "policies must not be empty"),
    ({"workers": 0}, "workers must be an integer 1 or more, got 0"),
    ({"k": 9}, "k must be an integer between 1 and workers=8, got 9"),
    ({"runs": 1}, "runs must be an integer 2 or more, got 1"),
    ({"rate": -0.1}, r"rate must be positive and finite, got -0\.1"),
    ({"target": math.nan}, "target must be positive and finite, got nan"),
    ({"mean": math.inf}, "mean must be positive and finite, got inf"),
    ({"deadline": 70.0}, r"deadline must be above 0 and at most horizon=60, got 70\.0"),
    ({"deadline": 1.0}, r"deadline must be at least the 2\.72 s of an update of bsp, got 1\.0"),
    ({"eigenvalues": (0.0,)}, r"eigenvalues must hold a positive one, got \(0\.0,\)"),
    ({"eigenvalues": (1.0, -1.0)}, r"eigenvalues must be non-negative and finite, got -1\.0"),
    ({"noise": -1.0}, r"noise must be non-negative and finite, got -1\.0"),
    ({"bound": -1}, "bound must be an integer 0 or more, got -1"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[str(wrong) for wrong, _ in WRONG])
def test_wrong_settings_are_errors(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"frontier: {message}"):
        Frontier(**wrong).settled()


def test_settings_that_follow_from_others_are_filled_in() -> None:
    found = Frontier(workers=7, tuning_rates=9).settled()
    assert found.k == 3 and found.tuning_rates == 12
    assert Frontier(workers=1).settled().k == 1 and Frontier(k=5).settled().k == 5
