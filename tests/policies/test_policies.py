"""Policies: which are the same, what they keep to, and rules as numbers.

Tables are random multiples of 1/64 with ties, so that equal schedules are equal bit for bit.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dtjax
from clock_cases import ROWS, WIDTH, N, facts, full, padded, play
from dtjax import delays, policies, theory
from dtjax.core.protocols import COMPUTING, HELD, Event, View
from dtjax.policies import FACTORIES, UNBOUNDED, Rule

STEPS = 40
TABLES = range(8)  # seeds


def table(seed: int, n: int) -> np.ndarray:
    """Make a table whose times tie often; worker 0 is the fastest."""
    random = np.random.default_rng(seed)
    return random.choice([16, 32, 48, 64, 200], (n, STEPS)) * (1 + np.arange(n)[:, None] % 3) / 64


def run(rule: Rule, seed: int, n: int = 4, updates: int = 12) -> dict[str, Any]:
    """Play n workers."""
    found = play(padded(table(seed, n)), full(rule), updates, np.inf, np.arange(N) < n)
    return facts(found, n)


def arrivals(found: dict[str, Any]) -> dict[tuple[int, int], float]:
    """Return when each (worker, step) that was used arrived."""
    rows = ("worker", "step", "arrival")
    each = (zip(*(row[name] for name in rows), strict=True) for row in found["updates"])
    return {(worker, step): arrival for row in each for worker, step, arrival in row}


SAME = {
    "k-BSP(n) is BSP": (policies.k_bsp(4), policies.bsp()),
    "k-ASP(n) is BSP": (policies.k_asp(4), policies.bsp()),
    "k-ASP(1) is ASP": (policies.k_asp(1), policies.asp()),
    "k-batch-ASP(1) is ASP": (policies.k_batch_asp(1), policies.asp()),
    "k-batch-BSP(1) is k-BSP(1)": (policies.k_batch_bsp(1), policies.k_bsp(1)),
    "SSP without a bound is ASP": (policies.ssp(int(UNBOUNDED)), policies.asp()),
    "SSP(steps) is ASP": (policies.ssp(STEPS), policies.asp()),
    "k-BSP ignoring is k-ASP with cut-off 0": (
        policies.k_bsp(2, preempt=False),
        policies.k_asp(2, max_staleness=0),
    ),
    "k-batch-BSP ignoring is k-batch-ASP with cut-off 0": (
        policies.k_batch_bsp(3, preempt=False),
        policies.k_batch_asp(3, max_staleness=0),
    ),
    "a cut-off that nothing reaches": (policies.asp(1000), policies.asp()),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_schedule(name: str) -> None:
    one, other = SAME[name]
    for seed in TABLES:
        assert run(one, seed) == run(other, seed)


@pytest.mark.parametrize("rule", [policies.k_batch_asp(4), policies.k_batch_bsp(4)])
def test_n_batches_are_not_bsp(rule: Rule) -> None:
    assert any(
        run(rule, seed)["updates"] != run(policies.bsp(), seed)["updates"] for seed in TABLES
    )


def test_ssp_0_has_the_completion_times_of_bsp() -> None:
    for seed in TABLES:
        ssp, bsp = run(policies.ssp(0), seed, updates=32), run(policies.bsp(), seed, updates=8)
        assert arrivals(ssp) == arrivals(bsp)
        assert len(ssp["updates"]) == 4 * len(bsp["updates"])


def test_a_wider_bound_never_delays_a_completion() -> None:
    for seed in TABLES:
        times = [arrivals(run(policies.ssp(bound), seed, updates=ROWS)) for bound in (0, 1, 2, 5)]
        for tight, wide in zip(times, times[1:], strict=False):
            assert all(wide[name] <= tight[name] for name in tight.keys() & wide.keys())


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_ssp_keeps_to_its_bounds(bound: int) -> None:
    for seed in TABLES:
        found = run(policies.ssp(bound), seed, updates=ROWS)
        stale = [s for row in found["updates"] for s in row["staleness"]]
        assert max(stale) <= theory.ssp_staleness_bound(4, bound)
        assert max(found["completed"]) - min(found["completed"]) <= bound + 1


@pytest.mark.parametrize(
    "rule",
    [
        policies.bsp(),
        policies.k_bsp(2),
        policies.k_batch_bsp(3),
        policies.k_bsp(2, preempt=False),
        policies.k_batch_bsp(3, preempt=False),
    ],
)
def test_the_bsp_family_has_no_staleness(rule: Rule) -> None:
    for seed in TABLES:
        found = run(rule, seed)
        assert {s for row in found["updates"] for s in row["staleness"]} == {0}
        assert all(
            len(row["worker"]) == (4 if rule.k is None else rule.k) for row in found["updates"]
        )


def test_a_preempting_server_stops_and_an_ignoring_one_throws_away() -> None:
    for seed in TABLES:
        stops, ignores = run(policies.k_bsp(2), seed), run(policies.k_bsp(2, preempt=False), seed)
        assert sum(stops["discarded_count"]) == sum(ignores["cancelled_count"]) == 0
        assert (
            sum(stops["cancelled_count"]) == 12 * 2
        )  # at each of 12 updates those who have not delivered
        assert sum(ignores["discarded_count"]) > 0 == sum(ignores["cancelled"])


@pytest.mark.parametrize("cutoff", [0, 1, 3])
def test_max_staleness_discards_older_gradients(cutoff: int) -> None:
    for seed in TABLES:
        found = run(policies.asp(cutoff), seed, n=6, updates=30)
        stale = {s for row in found["updates"] for s in row["staleness"]}
        assert max(stale) <= cutoff
        assert sum(found["discarded_count"]) > 0
        assert sum(found["waiting"]) == 0


def test_equal_constant_times_have_closed_forms() -> None:
    """n mini-batches arrive at each multiple of the compute time."""
    seconds, n = 0.75, 5
    constant = padded([[seconds] * STEPS] * n)
    for k in (1, 3, 5, 7):
        asp = play(constant, full(policies.k_batch_asp(k)), 8, np.inf, np.arange(N) < n)
        times = dtjax.seconds(asp.trace)[:8]
        for j, time in enumerate(times, 1):
            assert time == theory.deterministic_k_batch_asp_seconds(n, k, j, seconds)
        bsp = play(constant, full(policies.k_batch_bsp(k)), 8, np.inf, np.arange(N) < n)
        each = theory.deterministic_k_batch_bsp_seconds(n, k, seconds)
        assert np.array_equal(bsp.trace.dt[:8], np.full(8, each))
    asp = facts(play(constant, full(policies.asp()), ROWS, np.inf, np.arange(N) < n), n)
    assert {s for row in asp["updates"][n:] for s in row["staleness"]} == {n - 1}


# Rules as numbers.


def test_rules_of_the_factories() -> None:
    for name, factory in FACTORIES.items():
        assert factory is getattr(policies, name.replace("-", "_"))
    assert Rule(None, True) == policies.bsp()
    assert Rule(1) == policies.asp()
    assert Rule(1, bound=2, max_staleness=3) == policies.ssp(2, 3)
    assert Rule(2, True, True) == policies.k_bsp(2)
    assert Rule(2, True, False, None, 0) == policies.k_bsp(2, preempt=False)
    assert Rule(2, False, True) == policies.k_batch_bsp(2)
    assert Rule(2, True, max_staleness=4) == policies.k_asp(2, 4)
    assert Rule(2) == policies.k_batch_asp(2)


def test_width_is_the_largest_k() -> None:
    assert policies.bsp().width(6) == 6
    assert policies.k_asp(np.array([1, 5, 2])).width(6) == 5
    assert Rule(UNBOUNDED).width(6) == 6
    assert policies.k_batch_asp(9).width(6) == 9


def test_stack_keeps_none_where_all_have_none() -> None:
    plain = policies.stack([policies.bsp(), policies.k_asp(2)])
    assert plain.bound is None and plain.max_staleness is None
    assert plain.k.tolist() == [UNBOUNDED, 2]
    mixed = policies.stack([policies.ssp(3), policies.asp(2)])
    assert mixed.bound.tolist() == [3, UNBOUNDED]
    assert mixed.max_staleness.tolist() == [UNBOUNDED, 2]


def test_a_rule_is_asked_one_arrival_at_a_time() -> None:
    """k-ASP(2), the second distinct worker arrives: the server updates, the waiting one starts."""
    rule = policies.k_asp(jnp.int32(2))
    phase = jnp.array([COMPUTING, HELD, COMPUTING], jnp.int32)
    view = View(jnp.int32(4), jnp.int32(1), jnp.int32(3), phase, jnp.array([3, 2, 2], jnp.int32))
    event = Event(jnp.int32(0), jnp.int32(1))
    state, decision = jax.jit(rule.decide)(rule.init(3), view, event)
    assert (bool(decision.use), bool(decision.commit)) == (True, True)
    assert int(decision.phase) == COMPUTING and bool(decision.sweep)
    cancel, start = rule.sweep(state, view, event, decision)
    assert (cancel.tolist(), start.tolist()) == ([False] * 3, [False, True, False])


def test_all_present_workers_where_k_stands_for_all() -> None:
    """BSP among lanes of other policies waits for the workers of its own lane."""
    for n in (1, 3, 6):
        found = run(policies.bsp(), 1, n=n, updates=5)
        assert [sorted(row["worker"]) for row in found["updates"]] == [list(range(n))] * 5


def test_weights_of_unequal_batches_reach_the_trace() -> None:
    examples = jnp.arange(1.0, N + 1)
    law = delays.recorded(padded(table(0, N)))
    cluster = dtjax.Cluster(N, law, examples=examples, present=np.ones(N, bool))
    key, rule = jax.random.key(0), full(policies.k_batch_asp(3))
    made = dtjax.simulate(key, cluster, rule, updates=6, until=math.inf, rows=ROWS, width=WIDTH)
    trace = made.trace
    expected = jnp.where(trace.valid, examples[trace.worker], 0.0)
    assert (trace.examples == expected).all() and (trace.valid.sum(1)[:6] == 3).all()
