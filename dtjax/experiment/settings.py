"""Settings of a study: what their annotations say, and how they are held against it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints


@dataclass(frozen=True)
class Range:
    """The numbers that a setting may be, one by one where it is a tuple; None stays None.

    Args:
        low: the least, or the name of the setting that says it (of a tuple: its least).
        high: the largest, or the name of the setting that says it.
        above: whether `low` itself is left out.
    """

    low: float | str = -math.inf
    high: float | str = math.inf
    above: bool = False


POSITIVE = Range(0.0, above=True)


@dataclass(frozen=True)
class OneOf:
    """The words that a setting may be, one by one where it is a tuple."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Smoke:
    """The value of a smoke run, where a setting has its default."""

    value: Any


@dataclass(frozen=True)
class Grid:
    """Each distinct value of this tuple is computed in a cell of its own, along `name`.

    Args:
        name: of the dimension.
        ordered: whether the values are sorted.
    """

    name: str
    ordered: bool = False


@dataclass(frozen=True)
class Analysis:
    """Cells do not read this setting, so that another value computes none of them anew."""


@dataclass(frozen=True)
class Distinct:
    """A tuple in which each value stands once, in the order given or sorted."""

    ordered: bool = False


def hints(study: Any) -> dict[str, Any]:
    """Return the annotation of each setting of a study, or of its class."""
    owner = study if isinstance(study, type) else type(study)
    found = get_type_hints(owner, include_extras=True)
    return {field.name: found[field.name] for field in dataclasses.fields(owner)}


def marks(study: Any) -> dict[str, tuple[Any, ...]]:
    """Return what the annotation of each setting says beside its type."""
    return {name: getattr(hint, "__metadata__", ()) for name, hint in hints(study).items()}


def marked(study: Any, kind: type) -> dict[str, Any]:
    """Return the settings that have a mark of this kind, with the mark."""
    found = {
        name: [m for m in every if isinstance(m, kind)] for name, every in marks(study).items()
    }
    return {name: own[0] for name, own in found.items() if own}


def settled(study: Any, name: str) -> Any:
    """Return a study with its smoke values, its tuples in order, and every setting checked.

    Args:
        study: a dataclass whose annotations hold marks; `smoke` says whether it is a smoke run.
        name: of the study, for errors.

    Raises:
        ValueError: naming the study, the setting, the rule and the value.
    """
    if study.smoke:
        defaults = {field.name: field.default for field in dataclasses.fields(study)}
        own = {
            setting: mark.value
            for setting, mark in marked(study, Smoke).items()
            if getattr(study, setting) == defaults[setting]
        }
        study = dataclasses.replace(study, **own)
    _check(study, name)
    tuples = {}
    for setting, mark in (marked(study, Distinct) | marked(study, Grid)).items():
        once = tuple(dict.fromkeys(getattr(study, setting)))
        tuples[setting] = tuple(sorted(once)) if mark.ordered else once
    return dataclasses.replace(study, **tuples)


def _check(study: Any, name: str) -> None:
    """Hold every setting against its marks."""
    from dtjax.core import checks

    types = hints(study)
    for setting, every in marks(study).items():
        value = getattr(study, setting)
        if value == ():
            raise checks.fail(name, setting, "must not be empty", value)
        whole = int in set(_kinds(types[setting]))
        for one in value if isinstance(value, tuple) else (value,):
            for mark in every if one is not None else ():
                if isinstance(mark, OneOf):
                    checks.choice(name, setting, one, mark.names)
                elif isinstance(mark, Range):
                    _in_range(study, name, setting, one, mark, whole)


def _kinds(hint: Any) -> Iterator[Any]:
    """Walk through the types that a type is made of."""
    yield hint
    for part in get_args(hint):
        yield from _kinds(part)


def _in_range(study: Any, name: str, setting: str, value: Any, mark: Range, whole: bool) -> None:
    from dtjax.core import checks

    low, _ = _limit(study, mark.low, min)
    high, high_name = _limit(study, mark.high, max)
    if whole:
        most = None if high == math.inf else int(high)
        checks.integer(name, setting, value, low=int(low), high=most, high_name=high_name)
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    inside = number and math.isfinite(value) and low <= value <= high
    if not inside or (mark.above and value == low):
        raise checks.fail(name, setting, _rule(low, high, high_name, mark.above), value)


def _limit(study: Any, limit: float | str, of_tuple: Any) -> tuple[float, str]:
    """Return the number of a limit, and the name of the setting that says it."""
    if not isinstance(limit, str):
        return limit, ""
    value = getattr(study, limit)
    return (of_tuple(value) if isinstance(value, tuple) else value), f"{limit}="


def _rule(low: float, high: float, high_name: str, above: bool) -> str:
    """Say a range of floats in words."""
    if high < math.inf:
        first = f"above {low:g} and at most" if above else f"between {low:g} and"
        return f"must be {first} {high_name}{high:g}"
    if low == -math.inf:
        return "must be finite"
    if low == 0.0:
        return "must be positive and finite" if above else "must be non-negative and finite"
    return f"must be {'above' if above else 'at least'} {low:g} and finite"
