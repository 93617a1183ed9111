"""The search for learning rates, against answers that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtjax.training.rate_search import RateSearch

OPTIMA = {"low": 0.1, "middle": 1.0, "high": 16.0}


def told(search: RateSearch, optima: dict[str, float], asked: list[Any]) -> RateSearch:
    """Answer until nothing is asked: seconds are octaves away from the optimum."""
    while wanted := search.ask():
        asked.append(wanted)
        for cell, rate in wanted:
            search.tell(cell, rate, [abs(np.log2(rate / optima[cell]))] * 3, [0.0] * 3)
    return search


def test_many_cells_are_searched_at_once() -> None:
    asked: list[Any] = []
    search = told(RateSearch(dict.fromkeys(OPTIMA, (0.5, 1.0, 2.0))), OPTIMA, asked)
    choices = search.choices()
    assert {cell: choice.rate for cell, choice in choices.items()} == {
        "low": 0.125,
        "middle": 1.0,
        "high": 16.0,
    }
    assert all(choice.warning == "" for choice in choices.values())
    assert len(asked) == 3  # the grids, two by two beyond both edges, two more above
    assert asked[0] == [(cell, rate) for cell in OPTIMA for rate in (0.5, 1.0, 2.0)]
    assert asked[1] == [("low", 0.125), ("low", 0.25), ("high", 4.0), ("high", 8.0)]
    assert choices["high"].tried.tolist() == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    assert choices["high"].seconds.shape == (7, 3)


def test_no_rate_is_asked_twice() -> None:
    asked: list[Any] = []
    told(RateSearch(dict.fromkeys(OPTIMA, (0.5, 1.0, 2.0))), OPTIMA, asked)
    flat = [one for turn in asked for one in turn]
    assert len(flat) == len(set(flat))


def test_an_edge_that_may_not_grow_is_a_warning() -> None:
    search = told(RateSearch({"high": (1.0, 2.0)}, widenings=0), OPTIMA, [])
    assert search.choices()["high"].warning == "the best rate, 2, is the highest that was tried"


def test_quality_decides_where_no_rate_reaches_the_target() -> None:
    search = RateSearch({"cell": (1.0, 2.0, 4.0)})
    for (cell, rate), quality in zip(search.ask(), ([0.1], [0.3], [-np.inf]), strict=True):
        search.tell(cell, rate, [np.inf], quality)
    assert search.ask() == [] and search.choices()["cell"].rate == 2.0


def test_pools_judge_a_cell_by_the_runs_of_others() -> None:
    """Of a's own runs rate 2 is best, of a's and b's together rate 1."""
    seconds = {("a", 1.0): [3.0], ("a", 2.0): [2.0], ("b", 1.0): [1.0], ("b", 2.0): [9.0]}
    rates = dict.fromkeys("ab", (1.0, 2.0))
    found = {}
    for pools in (None, {"a": "ab", "b": "b"}):
        search = RateSearch(rates, widenings=0, pools=pools)
        wanted = search.ask()
        assert len(wanted) == 4
        for one in wanted:
            search.tell(*one, seconds[one], [0.0])
        found[pools is None] = search.choices()
    assert found[True]["a"].rate == 2.0
    assert found[False]["a"].rate == 1.0 and found[False]["a"].seconds.shape == (2, 2)


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ((), "rates must not be empty"),
        ((0.1, -0.2), r"rates must be positive and finite, got -0\.2"),
        ((np.nan,), "rates must be positive and finite, got nan"),
    ],
)
def test_bad_rates(rates: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"RateSearch: {message}"):
        RateSearch({"cell": rates})


def test_choices_need_all_answers() -> None:
    search = RateSearch({"cell": (1.0,)})
    with pytest.raises(ValueError, match=r"RateSearch\.choices: tell must have said all asked"):
        search.choices()
