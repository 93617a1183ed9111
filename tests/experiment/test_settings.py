"""Annotated settings: ranges, words, smoke values, order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from dtjax.experiment import POSITIVE, Distinct, OneOf, Range, Smoke, settings


@dataclass(frozen=True)
class Options:
    """Settings of every kind."""

    words: Annotated[tuple[str, ...], OneOf(("bsp", "asp")), Distinct()] = ("bsp",)
    word: Annotated[str, OneOf(("bsp", "asp"))] = "asp"
    counts: Annotated[tuple[int, ...], Range(1, 8), Distinct(ordered=True), Smoke((1,))] = (2, 1)
    k: Annotated[int | None, Range(1, "top")] = None
    top: Annotated[int, Range("counts"), Smoke(4)] = 6
    share: Annotated[float, Range(0.1, 1.0)] = 0.5
    rates: Annotated[tuple[float, ...], POSITIVE] = (0.1, 2.0)
    noise: Annotated[float, Range(0)] = 0.0
    start: Annotated[float, Range()] = 3.0
    deadline: Annotated[float, Range(0.0, "horizon", above=True)] = 1.0
    horizon: Annotated[float, Range(0.5)] = 2.0
    tail: Annotated[float, Range(1.0, above=True)] = 2.0
    smoke: bool = False


WRONG = [
    ({"words": ()}, r"words must not be empty, got \(\)"),
    (
        {"words": ("bsp", "bps")},
        r"words must be one of asp, bsp \(did you mean 'bsp'\?\), got 'bps'",
    ),
    ({"word": "psa"}, "word must be one of asp, bsp.*, got 'psa'"),
    ({"counts": (1, 9)}, "counts must be an integer between 1 and 8, got 9"),
    ({"counts": (1, 2.0)}, r"counts must be an integer between 1 and 8, got 2\.0"),
    ({"k": 0}, "k must be an integer between 1 and top=6, got 0"),
    ({"k": 7}, "k must be an integer between 1 and top=6, got 7"),
    ({"k": True}, "k must be an integer between 1 and top=6, got True"),
    ({"counts": (4, 8), "top": 3}, "top must be an integer 4 or more, got 3"),
    ({"share": 1.5}, r"share must be between 0\.1 and 1, got 1\.5"),
    ({"share": math.nan}, r"share must be between 0\.1 and 1, got nan"),
    ({"share": "much"}, r"share must be between 0\.1 and 1, got 'much'"),
    ({"rates": (0.1, 0.0)}, r"rates must be positive and finite, got 0\.0"),
    ({"rates": (math.inf,)}, "rates must be positive and finite, got inf"),
    ({"noise": -1.0}, r"noise must be non-negative and finite, got -1\.0"),
    ({"start": math.inf}, "start must be finite, got inf"),
    ({"deadline": 3.0}, r"deadline must be above 0 and at most horizon=2, got 3\.0"),
    ({"deadline": 0.0}, r"deadline must be above 0 and at most horizon=2, got 0\.0"),
    ({"horizon": 0.25, "deadline": 0.1}, r"horizon must be at least 0\.5 and finite, got 0\.25"),
    ({"tail": 1.0}, r"tail must be above 1 and finite, got 1\.0"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[str(wrong) for wrong, _ in WRONG])
def test_wrong_settings_are_named_with_rule_and_value(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^any: {message}$"):
        settings.settled(Options(**wrong), "any")


@pytest.mark.parametrize(
    "right",
    [
        {},
        {"counts": (8,), "top": 8, "k": 8},
        {"share": 1.0, "noise": 5.0, "start": -3.0, "deadline": 2.0},
        {"share": 1, "rates": (1e-300, 1e300), "tail": 1.001},
    ],
    ids=str,
)
def test_settings_within_their_ranges_stay(right: dict[str, Any]) -> None:
    found = settings.settled(Options(**right), "any")
    for name, value in right.items():
        assert getattr(found, name) == value


def test_tuples_hold_each_value_once_in_order() -> None:
    found = settings.settled(Options(words=("bsp", "asp", "bsp"), counts=(3, 1, 3)), "any")
    assert found.words == ("bsp", "asp") and found.counts == (1, 3)


def test_smoke_values_replace_defaults_alone() -> None:
    found = settings.settled(Options(smoke=True), "any")
    assert found.counts == (1,) and found.top == 4 and found.words == ("bsp",)
    told = settings.settled(Options(smoke=True, counts=(2,), k=3), "any")
    assert told.counts == (2,) and told.top == 4 and told.k == 3
    assert settings.settled(found, "any") == found
    with pytest.raises(ValueError, match="k must be an integer between 1 and top=4, got 5"):
        settings.settled(Options(smoke=True, k=5), "any")
