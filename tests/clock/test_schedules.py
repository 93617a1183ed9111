"""The clock meets the shared vectors exactly: as lanes of one compile, one by one, in chunks."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dtjax
from clock_cases import (
    ROWS,
    SECONDS,
    N,
    batch,
    cases,
    ends,
    facts,
    full,
    lane,
    padded,
    play,
    play_case,
    rule,
)
from dtjax import delays, policies
from dtjax.clock.status import DONE, UNTIL

NAMES = [f"{8 + i}-{case['policy']}" for i, case in enumerate(cases())]
PART = 7  # rows of a chunk


def meets(run: dtjax.Run, case: dict[str, Any]) -> None:
    """Hold every expected field of a vector against one run."""
    found = facts(run, len(case["durations"]))
    names = ("time", "worker", "staleness", "arrival")
    assert [{name: row[name] for name in names} for row in found["updates"]] == case["updates"]
    for name in ("end", "started", "buffered", *SECONDS):
        assert found[name] == case[name], name
    assert found["status"] == (DONE if case["until"] is None else UNTIL)
    for row in found["updates"]:
        for worker, step, seconds in zip(row["worker"], row["step"], row["compute"], strict=True):
            assert seconds == case["durations"][worker][step]


@cache
def together() -> Any:
    """Return the one compiled function for all the vectors."""
    return jax.jit(jax.vmap(play))


@cache
def lanes() -> tuple[dtjax.Run, int]:
    """Play all the vectors as lanes; return the runs and how many compiles it took."""
    runs = together()(*batch(cases()))
    return jax.tree.map(np.asarray, runs), together()._cache_size()


def test_there_are_150_vectors_and_one_compile_plays_them_all() -> None:
    assert len(cases()) == 150
    assert lanes()[1] == 1


@pytest.mark.parametrize("index", range(len(NAMES)), ids=NAMES)
def test_lane(index: int) -> None:
    meets(lane(lanes()[0], index), cases()[index])


@pytest.mark.parametrize("index", range(len(NAMES)), ids=NAMES)
def test_single(index: int) -> None:
    """Without `vmap`; with 1 and 5 workers for exactly that many, else among absent ones."""
    case = cases()[index]
    n = len(case["durations"])
    if n in (1, 5):
        run = play(padded(case["durations"], n), full(rule(case)), *ends(case))
    else:
        run = play_case(case)
    meets(run, case)


def test_chunks_give_the_rows_of_the_whole() -> None:
    whole, _ = lanes()
    tables, rules, updates, until, present = batch(cases())

    def go_on(clock: Any, *given: Any) -> dtjax.Run:
        table, rule, updates, until, present = given
        cluster = dtjax.Cluster(N, delays.recorded(table), present=present)
        more = jnp.clip(updates - clock.version, 0, PART)
        return dtjax.resume(clock, cluster, rule, updates=more, until=until, rows=PART)

    given = (tables, rules, updates, until, present)
    first = together()(tables, rules, np.minimum(updates, PART), until, present)
    runs, further = [first], jax.jit(jax.vmap(go_on))
    for _ in range(PART, ROWS, PART):
        runs.append(further(runs[-1].clock, *given))
    for name in ("worker", "step", "version", "examples", "arrival", "compute", "slot", "dt"):
        parts = [np.asarray(getattr(run.trace, name))[:, :PART] for run in runs]
        assert np.array_equal(np.concatenate(parts, 1)[:, :ROWS], getattr(whole.trace, name)), name
    into = np.concatenate([run.trace.into[:, :PART] for run in runs], axis=1)[:, :ROWS]
    assert np.array_equal(into[whole.trace.made], whole.trace.into[whole.trace.made])
    last = runs[-1]
    for a, b in zip(jax.tree.leaves(last.accounts), jax.tree.leaves(whole.accounts), strict=True):
        assert np.array_equal(a, b)
    for a, b in zip(jax.tree.leaves(last.clock), jax.tree.leaves(whole.clock), strict=True):
        assert np.array_equal(a, b, equal_nan=True)


# The worked table: compute times 2, 5, 7, events through t = 15.

WORKED = [
    (policies.bsp(), [7, 14], 6),
    (policies.asp(), [2, 4, 5, 6, 7, 8, 10, 10, 12, 14, 14, 15], 12),
    (policies.ssp(1), [2, 4, 5, 7, 9, 10, 14, 15], 8),
    (policies.k_bsp(2), [5, 10, 15], 6),
    (policies.k_batch_bsp(2), [4, 8, 12], 6),
    (policies.k_asp(2), [5, 7, 10, 14], 8),
    (policies.k_batch_asp(2), [4, 6, 8, 10, 14, 15], 12),
]


NAMES = ("bsp", "asp", "ssp", "k-bsp", "k-batch-bsp", "k-asp", "k-batch-asp")


@cache
def worked(index: int, until: float = 15.0, updates: int = ROWS) -> tuple[Any, dict[str, Any]]:
    """Play one line of the table; all the lines share a compile."""
    table = padded([[2.0] * 12, [5.0] * 12, [7.0] * 12])
    given, *_ = WORKED[index]
    run = play(table, full(given), updates, until, np.arange(N) < 3)
    return run, facts(run, 3)


@pytest.mark.parametrize("index", range(7), ids=NAMES)
def test_worked_table(index: int) -> None:
    _, times, used = WORKED[index]
    run, found = worked(index)
    assert [row["time"] for row in found["updates"]] == times
    assert sum(found["useful_count"]) == used
    assert found["end"] == 15
    assert float(run.accounts.total) == 45


def test_worked_facts() -> None:
    bsp, _ = worked(0, np.inf, 1)
    assert float(bsp.accounts.utilisation) == pytest.approx(14 / 21)
    assert float(bsp.accounts.gradients_per_second) == pytest.approx(3 / 7)
    assert float(bsp.accounts.updates_per_second) == pytest.approx(1 / 7)
    _, asp = worked(1)
    third = [row for row in asp["updates"] if row["worker"] == [2]]
    assert third[0]["staleness"] == [4]
    for until, waited, started in [(4.0, 0, 2), (6.5, 2.5, 2), (7.0, 3, 3), (8.0, 3, 3)]:
        _, ssp = worked(2, until)
        assert (ssp["waiting"][0], ssp["started"][0]) == (waited, started)
    backup, found = worked(3)
    assert (found["useful_count"][2], found["cancelled"][2], found["cancelled_count"][2]) == (
        0,
        15,
        3,
    )
    assert float(backup.accounts.coverage[2]) == 0
    _, batches = worked(4)
    assert (batches["useful_count"], batches["buffered"]) == ([6, 0, 0], 1)
    _, k_asp = worked(5)
    assert k_asp["buffered"] == 1
    assert {s for row in k_asp["updates"] for s in row["staleness"]} == {0, 1}


def test_a_gradient_read_at_version_12_and_used_at_17_has_staleness_5() -> None:
    table = padded([[1.0] * 20, [11.5, 5.0, 9.0]])
    found = facts(play(table, full(policies.asp()), 19, np.inf, np.arange(N) < 2), 2)
    row = next(row for row in found["updates"] if row["worker"] == [1] and row["step"] == [1])
    assert (row["version"], row["staleness"]) == ([12], [5])
