"""The map of stable rates at its smoke size: files, verdicts, theory, resuming, errors.

Growth is held against theory by 8 standard errors of four populations plus the bias of a logarithm,
with a fixed key; each verdict is far from the edge.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asked import Asked, asked, drawn
from dtjax import theory
from dtjax.experiment.provenance import versions
from studies import stability_report, stability_runs
from studies.stability import Stability

SMALL = Stability(smoke=True, workers=(4, 6), factors=(0.7, 1.3), policies=("asp", "ssp"))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    return asked(SMALL, tmp_path_factory.mktemp("stability"))


def test_the_file(ran: Asked) -> None:
    whole = ran.whole
    sizes = {"policy": 2, "workers": 2, "factor": 2, "island": 4, "plain": 3, "interval": 3, "n": 3}
    assert dict(whole.sizes) == sizes
    assert whole.workers.values.tolist() == [4, 6]
    assert whole.factor.values.tolist() == [0.7, 1.3]
    assert whole.n.values.tolist() == [4, 5, 6]
    for name, dims in {
        "growth": ("workers", "factor", "island"),
        "typical": ("workers", "factor", "plain"),
        "verdict": ("workers", "factor"),
        "rate": ("workers", "factor"),
        "edge": ("workers", "interval"),
        "theory_edge": ("n",),
        "constant_delay_edge": ("n",),
    }.items():
        assert set(whole[name].dims) == {"policy", *dims}, name
    assert whole.verdict.attrs["flag_meanings"].split()[:2] == ["shrinks", "grows"]
    assert whole.rate.attrs["units"] == "1 / eigenvalue"
    config = json.loads(whole.attrs["config"])
    assert config["workers"] == [4, 6] and config["particles"] == 32
    assert json.loads(whole.attrs["versions"]) == versions()
    assert whole.attrs["study"] == "stability" and whole.attrs["created"]


def test_verdicts_and_growth_are_those_of_theory(ran: Asked) -> None:
    whole = ran.whole
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
    middle = ssp.edge.sel(interval="mean")
    assert (middle > 0.5 * asp.constant_delay_edge.sel(n=[4, 6]).values).all()
    assert (middle < asp.theory_edge.sel(n=[4, 6]).values).all()


def test_the_table(ran: Asked) -> None:
    assert "every dot is on its side of the line, or undecided" in ran.report
    assert re.search(r"^asp +4 +0\.8431 ", ran.report, re.M)
    assert re.search(r"^ssp +4 +- ", ran.report, re.M)
    assert "nan" not in ran.report


def test_the_figure_is_drawn(ran: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn(ran.file, monkeypatch)


def test_another_choice_of_policies_trains_nothing(ran: Asked) -> None:
    before = ran.parts()
    assert len(before) == 2
    again = asked(dataclasses.replace(SMALL, policies=("asp",)), ran.study.folder)
    assert ran.parts() == before
    rows = [line.split() for line in ran.report.splitlines() if line.startswith("asp")]
    assert len(rows) == 2
    assert rows == [line.split() for line in again.report.splitlines() if line.startswith("asp")]


def test_a_rate_that_leaves_the_numbers_has_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diverging = dataclasses.replace(SMALL, policies=("asp",), factors=(0.7, 1e170))
    found = asked(diverging, tmp_path)
    rows = [line for line in found.report.splitlines() if line.startswith("asp")]
    assert all(re.search(r" 0\.7 +- +- +1e\+170 ", row) for row in rows) and len(rows) == 2
    assert "nan" not in found.report
    assert (found.whole.verdict.sel(factor=1e170) == 3).all()
    drawn(found.file, monkeypatch)


def test_verdicts_and_edges() -> None:
    seen = np.array([[-1.0, -2.0, -0.5], [0.2, 0.1, 0.3], [0.0, -0.1, 0.1], [math.nan] * 3])
    assert stability_report.verdicts(seen).tolist() == [0, 1, 2, 3]
    growth = np.array([[-1.0, -1.0], [-0.1, -0.1], [math.nan, math.nan]])
    middle, low, high = stability_runs.edge(np.array([0.5, 1.0, 2.0]), growth, 0)
    assert 1.0 <= middle <= 2.0 and low == middle == high
    assert math.isnan(stability_runs.edge(np.array([0.5, 1.0]), growth[:2], 0)[0])
    assert math.isnan(stability_runs.edge(np.array([0.5, 1.0]), -growth[:2], 0)[0])


def test_growth_of_policies_without_staleness() -> None:
    config = Stability()
    rates = np.array([0.5, 1.9, 2.1])
    expected = 2 * np.log(np.abs(1 - rates))
    for policy in ("bsp", "k-bsp", "k-batch-bsp"):
        found = stability_runs.exact_growth(config, policy, 8, rates)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        assert stability_runs.edges(config, policy, np.array([2, 8])).tolist() == [2, 2]


WRONG = [
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


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[str(wrong) for wrong, _ in WRONG])
def test_wrong_settings_are_errors(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"stability: {message}"):
        Stability(**wrong).settled()
