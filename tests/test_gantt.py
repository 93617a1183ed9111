"""The bars of a Gantt chart agree with the accounts, for random policies and times."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pytest

import dtjax
from dtjax import gantt
from dtjax.policies.rule import UNBOUNDED, Rule

N, ROWS, LANES = 4, 24, 48


@cache
def runs() -> tuple[Rule, Any]:
    """Simulate random rules on tables of unequal workers; some runs end at a second."""
    rng = np.random.default_rng(1)
    distinct, cancel = rng.random(LANES) < 0.5, rng.random(LANES) < 0.5
    loose = rng.random(LANES) < 0.5
    rules = Rule(
        k=rng.integers(1, N + 1, LANES).astype(np.int32),
        distinct=distinct,
        cancel=cancel,
        bound=np.where(distinct | loose, UNBOUNDED, rng.integers(0, 3, LANES)),
        max_staleness=np.where(loose, UNBOUNDED, rng.integers(0, 4, LANES)),
    )
    speed = rng.choice([1, 2, 8], (LANES, N, 1))
    tables = speed * rng.integers(1, 17, (LANES, N, 30 * ROWS)) / 16
    until = np.where(rng.random(LANES) < 0.5, np.inf, 9.0)

    @jax.jit
    @jax.vmap
    def one(rule: Any, table: Any, until: Any) -> Any:
        cluster = dtjax.Cluster(n=N, delay=dtjax.delays.recorded(table))
        return dtjax.simulate(jax.random.key(0), cluster, rule, updates=ROWS, until=until, width=N)

    run = one(rules, tables.astype(np.float32), until.astype(np.float32)).check()
    return rules, jax.tree.map(np.asarray, run)


@pytest.mark.parametrize("lane", range(LANES))
def test_bars_are_the_accounts(lane: int) -> None:
    rules, whole = runs()
    run = jax.tree.map(lambda leaf: leaf[lane], whole)
    found = gantt.bars(run, holds=bool(rules.distinct[lane]))
    accounts = run.accounts
    for w in range(N):
        mine = sorted(bar for bar in found if bar.worker == w)
        for bar in mine:
            assert -1e-4 <= bar.start <= bar.end <= accounts.elapsed + 1e-4
        for before, after in pairwise(mine):
            assert before.end <= after.start + 1e-4, (before, after)
        length = dict.fromkeys(gantt.NAMES, 0.0)
        for bar in mine:
            length[bar.fate] += bar.end - bar.start
        assert length["useful"] == pytest.approx(accounts.useful[w], abs=1e-3)
        assert length["open"] == pytest.approx(accounts.in_flight[w], abs=1e-3)
        lost = accounts.cancelled[w] + accounts.discarded[w]
        assert length["lost"] >= lost - 1e-3  # a bar of several, and the waits between them
        assert length["lost"] <= lost + accounts.waiting[w] + 1e-3
        useful = [bar for bar in mine if bar.fate == "useful"]
        assert len(useful) == accounts.used[w]
        named = sum(int(bar.label.split()[0]) for bar in mine if bar.fate == "lost")
        assert named == accounts.thrown[w] + accounts.stopped[w]


def test_the_lanes_cover_every_fate() -> None:
    _, run = runs()
    for fate in ("useful", "discarded", "cancelled", "in_flight", "waiting"):
        assert (getattr(run.accounts, fate).sum(-1) > 0).sum() > 3, fate
    assert (run.accounts.buffered > 0).any()
