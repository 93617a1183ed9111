"""What the tests of the clock share: the vectors, one padded shape for all, runs as plain facts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dtjax
from dtjax import delays, policies
from dtjax.clock.status import DONE, EXHAUSTED, STUCK, UNTIL
from dtjax.clock.trace import Trace
from dtjax.policies import Rule
from oracle import Schedule

N, STEPS, ROWS, WIDTH = 8, 52, 40, 10  # workers, columns, updates and gradients in an update
SECONDS = ["useful", "discarded", "cancelled", "in_flight", "waiting", "communicating", "queueing"]
KEY = jax.random.key(0)  # a recorded law draws nothing


@cache
def cases() -> list[dict[str, Any]]:
    """Return the vectors without communication and server seconds."""
    text = Path(__file__).with_name("schedules.json").read_text()
    return json.loads(text)[8:158]


def padded(durations: Any, n: int = N, steps: int = STEPS) -> np.ndarray:
    """Return the durations as f[n, steps], with NaN behind the end of each worker's."""
    table = np.full((n, steps), np.nan, np.float32)
    for worker, row in enumerate(durations):
        table[worker, : len(row)] = row
    return table


def rule(case: dict[str, Any]) -> Rule:
    return Rule(case["k"], case["distinct"], case["cancel"], case["bound"], case["max_stale"])


def full(rule: Rule) -> Rule:
    """Return the same rule with numbers in place of None, so that all rules have one structure."""
    bounded = Rule(1, bound=policies.UNBOUNDED, max_staleness=policies.UNBOUNDED)
    return jax.tree.map(lambda leaf: leaf[0], policies.stack([rule, bounded]))


def ends(case: dict[str, Any]) -> tuple[int, float]:
    """Return (updates, until) of a vector."""
    if case["until"] is None:
        return len(case["updates"]), np.inf
    return ROWS, case["until"]


def play(
    table: Any, rule: Rule, updates: Any, until: Any, present: Any = None, rows: int = ROWS
) -> dtjax.Run:
    """Simulate one run in the padded shapes, of the workers that are present."""
    cluster = dtjax.Cluster(len(table), delays.recorded(table), present=present)
    return dtjax.simulate(KEY, cluster, rule, updates=updates, until=until, rows=rows, width=WIDTH)


def batch(chosen: Sequence[dict[str, Any]]) -> tuple[Any, ...]:
    """Return the arguments of `play` for several vectors, each with a leading axis."""
    updates, until = zip(*(ends(case) for case in chosen), strict=True)
    present = [np.arange(N) < len(case["durations"]) for case in chosen]
    return (
        np.stack([padded(case["durations"]) for case in chosen]),
        policies.stack([rule(case) for case in chosen]),
        np.asarray(updates, np.int32),
        np.asarray(until, np.float32),
        np.stack(present),
    )


def lane(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def play_case(case: dict[str, Any]) -> dtjax.Run:
    """Simulate a vector without `vmap`, in the shapes and the structure that all of them share."""
    n = len(case["durations"])
    present = np.arange(N) < n
    return play(padded(case["durations"]), full(rule(case)), *ends(case), present)


def facts(run: dtjax.Run, n: int) -> dict[str, Any]:
    """Return what one run did as plain numbers, those of its first n workers."""
    run = jax.tree.map(np.asarray, run)
    trace, accounts = run.trace, run.accounts
    times = dtjax.seconds(trace)
    stale = np.asarray(dtjax.staleness(jax.tree.map(jnp.asarray, trace)))
    made, valid = trace.made, trace.valid
    assert made.tolist() == sorted(made, reverse=True)
    assert (valid == (np.arange(valid.shape[1]) < valid.sum(1, keepdims=True))).all()
    check_slots(trace)
    updates = []
    for t in range(made.sum()):
        j = valid[t]
        names = ("worker", "step", "version", "compute")
        row = {name: getattr(trace, name)[t, j].tolist() for name in names}
        row["staleness"] = stale[t, j].tolist()
        row["arrival"] = (times[t] - trace.arrival[t, j].astype(float)).tolist()
        updates.append({"time": times[t], **row})
    lists = {
        name: getattr(accounts, name).tolist() for name in (*SECONDS, "started", "useful_count")
    }
    lists |= {
        "discarded_count": accounts.discarded_count.tolist(),
        "cancelled_count": accounts.cancelled_count.tolist(),
    }
    lists["completed"] = np.asarray(run.clock.done).tolist()
    for name, row in lists.items():
        idle = np.iinfo(np.int32).max if name == "completed" else 0
        assert set(row[n:]) <= {idle}, name
    return {
        "updates": updates,
        "end": float(accounts.elapsed),
        "buffered": int(accounts.buffered),
        "made": int(accounts.updates),
        "status": int(run.status),
        **{name: row[:n] for name, row in lists.items()},
    }


def expected(schedule: Schedule, durations: Sequence[Sequence[float]], asked: int) -> Any:
    """Return the reference's schedule, asked for so many updates, as the same facts."""
    updates = []
    for update in schedule.updates:
        gradients = update.gradients
        names = ("worker", "step", "version", "staleness", "arrival")
        row = {name: [getattr(g, name) for g in gradients] for name in names}
        row["compute"] = [durations[g.worker][g.step] for g in gradients]
        updates.append({"time": update.time, **row})
    done = DONE if len(updates) == asked else UNTIL
    status = {"exhausted": EXHAUSTED, "stuck": STUCK, "done": done}
    names = (*SECONDS, "started", "useful_count", "completed", "buffered", "end")
    return {
        "updates": updates,
        "made": len(updates),
        "status": status[schedule.status],
        "discarded_count": schedule.discarded_count,
        "cancelled_count": schedule.cancelled_count,
        **{name: getattr(schedule, name) for name in names},
    }


def check_slots(trace: Trace) -> None:
    """Follow the slots through a whole run: each gradient finds the version that it read."""
    held = {0: 0}
    for t in range(np.asarray(trace.made).sum()):
        for j in np.nonzero(trace.valid[t])[0]:
            assert held[int(trace.slot[t, j])] == trace.version[t, j]
        assert 0 <= trace.into[t] < trace.slots
        held[int(trace.into[t])] = int(trace.start) + t + 1
