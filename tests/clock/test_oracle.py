"""The reference simulator meets the shared vectors exactly, and the worked numbers."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from oracle import Schedule, schedule

TESTS = Path(__file__).parents[1]
PLACES = (
    TESTS / "support/schedules.json",
    TESTS.parents[1] / "shared/cases/schedules.json",
)
# With neither file the list is empty, and pytest skips a test that is parametrised over nothing.
CASES: list[dict[str, Any]] = next((json.loads(p.read_text()) for p in PLACES if p.exists()), [])
ACCOUNTS = ["useful", "discarded", "cancelled", "in_flight", "waiting", "communicating", "queueing"]
RULE = ("k", "distinct", "cancel", "bound")
CLUSTER = ("push", "pull", "latency", "fold", "apply")


def play(case: dict[str, Any], durations: list[list[Any]]) -> Schedule:
    return schedule(
        durations,
        **{name: case[name] for name in RULE + CLUSTER},
        max_staleness=case["max_stale"],
        until=case["until"],
        updates=len(case["updates"]) if case["until"] is None else None,
    )


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{i}-{case['policy']}") for i, case in enumerate(CASES)]
)
def test_vector(case: dict[str, Any]) -> None:
    run = play(case, case["durations"])
    found = [
        {
            "time": update.time,
            "worker": [g.worker for g in update.gradients],
            "staleness": [g.staleness for g in update.gradients],
            "arrival": [g.arrival for g in update.gradients],
        }
        for update in run.updates
    ]
    assert found == case["updates"]
    for name in ["end", "started", "buffered", *ACCOUNTS]:
        assert getattr(run, name) == case[name], name
    assert run.status == "done"
    n = len(case["durations"])
    assert sum(sum(getattr(run, name)) for name in ACCOUNTS) == n * run.end
    # Every computation that was started has one fate, and counts agree with the updates.
    for worker in range(n):
        gradients = [g for u in run.updates for g in u.gradients if g.worker == worker]
        assert run.useful_count[worker] == len(gradients)
        assert all(a.step < b.step for a, b in zip(gradients, gradients[1:], strict=False))
        ended = run.completed[worker] + run.cancelled_count[worker]
        assert run.started[worker] - ended in (0, 1)
    delivered = sum(run.useful_count) + sum(run.discarded_count) + run.buffered
    assert sum(run.completed) == delivered
    for version, update in enumerate(run.updates):
        assert all(g.staleness == version - g.version >= 0 for g in update.gradients)


@pytest.mark.parametrize(
    ("rule", "times", "used"),
    [
        ((3, True, False, None), [7, 14], 6),
        ((1, False, False, None), [2, 4, 5, 6, 7, 8, 10, 10, 12, 14, 14, 15], 12),
        ((1, False, False, 1), [2, 4, 5, 7, 9, 10, 14, 15], 8),
        ((2, True, True, None), [5, 10, 15], 6),
        ((2, False, True, None), [4, 8, 12], 6),
        ((2, True, False, None), [5, 7, 10, 14], 8),
        ((2, False, False, None), [4, 6, 8, 10, 14, 15], 12),
    ],
    ids=["bsp", "asp", "ssp-1", "k-bsp-2", "k-batch-bsp-2", "k-asp-2", "k-batch-asp-2"],
)
def test_worked_numbers(rule: tuple[Any, ...], times: list[int], used: int) -> None:
    run = worked(rule, until=15)
    assert [update.time for update in run.updates] == times
    assert sum(run.useful_count) == used
    assert run.status == "done"
    assert run.end == 15


def worked(rule: tuple[Any, ...], **ends: Any) -> Schedule:
    return schedule([[2] * 9, [5] * 4, [7] * 4], **dict(zip(RULE, rule, strict=True)), **ends)


def test_worked_facts() -> None:
    bsp = worked((3, True, False, None), updates=1)
    assert (sum(bsp.useful), 3 * bsp.end) == (14, 21)
    asp = worked((1, False, False, None), until=15)
    assert next(g for u in asp.updates for g in u.gradients if g.worker == 2).staleness == 4
    for until, waited, started in [(4, 0, 2), (6.5, 2.5, 2), (7, 3, 3), (8, 3, 3)]:
        ssp = worked((1, False, False, 1), until=until)
        assert (ssp.waiting[0], ssp.started[0]) == (waited, started)
    backup = worked((2, True, True, None), until=15)
    assert (backup.useful_count[2], backup.cancelled[2], backup.cancelled_count[2]) == (0, 15, 3)
    batches = worked((2, False, True, None), until=15)
    assert (batches.useful_count, batches.buffered) == ([6, 0, 0], 1)
    k_asp = worked((2, True, False, None), until=15)
    assert k_asp.buffered == 1
    assert {g.staleness for u in k_asp.updates for g in u.gradients} == {0, 1}


def test_last_update_may_start_a_step_without_a_duration() -> None:
    rule: dict[str, Any] = {"k": 1, "distinct": False, "cancel": False}
    table = [[1, 1], [4, 4]]
    done = schedule(table, **rule, updates=2)
    assert (done.status, done.end, done.started) == ("done", 2, [3, 1])
    for stopped in (schedule(table, **rule), schedule(table, **rule, updates=3, until=9)):
        assert (stopped.status, stopped.end, stopped.started) == ("exhausted", 2, [3, 1])
    assert schedule(table, **rule, until=2).status == "done"
    assert schedule(table, **rule, updates=9, until=1.5).end == 1.5
    assert schedule([[], [1]], **rule, updates=1).status == "exhausted"


def test_stuck_when_nothing_can_arrive() -> None:
    rule: dict[str, Any] = {"k": 1, "distinct": False, "cancel": False, "bound": 1}
    table = [[1] * 5, [math.inf]]
    stuck = schedule(table, **rule, updates=9)
    assert (stuck.status, stuck.end, stuck.completed) == ("stuck", 2, [2, 0])
    waited = schedule(table, **rule, updates=9, until=5)
    assert (waited.status, waited.waiting, waited.in_flight) == ("done", [3, 0], [0, 5])


def test_fractions_stay_exact() -> None:
    third = Fraction(1, 3)
    run = schedule([[third] * 4] * 2, k=2, distinct=True, cancel=False, updates=3)
    assert run.end == 1
    assert run.useful == [1, 1]


def test_arrivals_at_one_instant_are_ordered_by_worker_not_by_link() -> None:
    # The vectors lack this tie: 1 was on the link first, 0 becomes ready just as 1 arrives.
    table, push = [[3, 9], [1, 9]], [[0], [2]]
    run = schedule(table, k=1, distinct=False, cancel=False, updates=2, push=push)
    assert [(u.time, u.gradients[0].worker) for u in run.updates] == [(3, 0), (3, 1)]
