"""The clock against the reference event loop on random tables full of ties: every field exactly."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dtjax
from clock_cases import ROWS, SECONDS, WIDTH, N, expected, facts, full, padded, play
from dtjax.clock.status import EXHAUSTED, STUCK, UNTIL
from dtjax.policies import Rule
from oracle import schedule

UNIT = 1 / 64
RULE = ("k", "distinct", "cancel", "bound", "max_staleness")


@st.composite
def inputs(draw: st.DrawFn, *extra: float) -> dict[str, Any]:
    """Draw a table of few different times, a rule out of all there are, and an end."""
    n = draw(st.integers(1, 6))
    times = draw(st.lists(st.integers(1, 320), min_size=1, max_size=3))
    entry = st.sampled_from([*(UNIT * time for time in times), *extra])
    lengths = draw(st.lists(st.integers(5, 14), min_size=n, max_size=n))
    distinct = draw(st.booleans())
    limit = st.none() | st.integers(0, 4)
    return {
        "durations": [draw(st.lists(entry, min_size=m, max_size=m)) for m in lengths],
        "k": draw(st.integers(1, n if distinct else WIDTH)),
        "distinct": distinct,
        "cancel": draw(st.booleans()),
        "bound": draw(limit),
        "max_staleness": draw(limit),
        "updates": draw(st.integers(1, ROWS)),
        "until": draw(st.none() | st.integers(1, 1500).map(lambda i: i * UNIT)),
    }


def agree(case: dict[str, Any]) -> int | None:
    """Play one run both ways; return its status, None where the two need not agree."""
    reference = schedule(**case)
    durations, until = case["durations"], math.inf if case["until"] is None else case["until"]
    n = len(durations)
    # At `until` itself the reference goes on where the table has ended; the clock stops.
    ended = [s > len(row) for s, row in zip(reference.started, durations, strict=True)]
    if any(ended) and reference.status == "done" and reference.end == until:
        return None
    rule = full(Rule(**{name: case[name] for name in RULE}))
    run = play(padded(durations), rule, case["updates"], until, np.arange(N) < n)
    assert facts(run, n) == expected(reference, durations, case["updates"])
    return int(run.status)


@settings(max_examples=400)
@given(inputs())
def test_every_rule_gives_the_reference_schedule(case: dict[str, Any]) -> None:
    assume(agree(case) is not None)


@settings(max_examples=150)
@given(inputs(math.inf))
def test_computations_that_never_end(case: dict[str, Any]) -> None:
    assume(agree(case) is not None)


ASP: dict[str, Any] = {"k": 1, "distinct": False, "cancel": False, "max_staleness": None}
SSP = ASP | {"bound": 1}
ENDLESS = {"durations": [[1.0] * 9, [math.inf]], "updates": 9, "until": None} | SSP


def test_status() -> None:
    assert agree(ENDLESS) == STUCK
    assert agree(ENDLESS | {"until": 5.0}) == UNTIL
    assert agree(ENDLESS | {"durations": [[1.0] * 2, [3.0] * 2]}) == EXHAUSTED
    assert agree(ENDLESS | {"durations": [[1.0] * 2, []]}) == EXHAUSTED
    backup = {"distinct": True, "cancel": True, "bound": None, "until": 4.5}
    assert agree(ENDLESS | backup | {"durations": [[1.0] * 9, [math.inf] * 9]}) == UNTIL


MANY = 70  # workers: more than fit into one word of slots, or one block of times
RULES: dict[str, dict[str, Any]] = {
    "asp": SSP | {"bound": None},
    "ssp": SSP | {"bound": 2, "max_staleness": 80},
    "k-bsp": SSP | {"k": 33, "distinct": True, "cancel": True, "bound": None},
    "k-asp": SSP | {"k": 65, "distinct": True, "bound": None},
    "k-batch-bsp": SSP | {"k": 100, "cancel": True, "bound": None},
    "k-batch-asp": SSP | {"k": 9, "bound": None, "max_staleness": 5},
}


@pytest.mark.parametrize("name", RULES)
def test_many_workers_in_binary64(name: str) -> None:
    """Random times do not tie, and sums are rounded: names agree exactly, times to rounding."""
    times = np.random.default_rng(1).exponential(size=(MANY, 60))
    case: dict[str, Any] = RULES[name] | {"updates": 40}
    reference = schedule(times.tolist(), **case)
    with jax.enable_x64(True):
        rule = full(Rule(**{name: case[name] for name in RULE}))
        cluster = dtjax.Cluster(MANY, dtjax.delays.recorded(times))
        run = dtjax.simulate(jax.random.key(0), cluster, rule, updates=40, width=100)
        found = facts(run, MANY)
    wanted = expected(reference, times.tolist(), 40)
    exact = ("worker", "step", "version", "staleness", "compute")
    for name in exact:
        assert [row[name] for row in found["updates"]] == [row[name] for row in wanted["updates"]]
    for name in (
        "started",
        "useful_count",
        "discarded_count",
        "cancelled_count",
        "completed",
        "buffered",
        "status",
    ):
        assert found[name] == wanted[name], name
    for name in ("end", *SECONDS):
        assert found[name] == pytest.approx(wanted[name], rel=1e-12, abs=1e-12), name
    for a, b in zip(found["updates"], wanted["updates"], strict=True):
        assert (a["time"], *a["arrival"]) == pytest.approx((b["time"], *b["arrival"]), rel=1e-12)
