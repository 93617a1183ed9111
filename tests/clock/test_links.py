"""Links and server time: all the vectors, and random ones against the reference event loop."""

from __future__ import annotations

import math
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dtjax
from clock_cases import ROWS, N, expected, facts, full, lane, padded
from dtjax import delays, network, policies
from dtjax.clock.accounting import FATES
from dtjax.cluster.network.network import in_order
from dtjax.policies import Rule
from link_cases import arguments, links, play, vectors, wide
from oracle import schedule
from test_clock_random import RULE, UNIT, inputs
from test_schedules import meets

# An ingress more, as busy as the first, changes no time: so three do for all.
NAMES = [f"{i}-{case['policy']}" for i, case in enumerate(vectors())]
PART = 7


@cache
def one_event(index: int) -> bool:
    """Whether arrivals of a vector follow readiness."""
    return in_order(jnp.asarray(vectors()[index]["push"], float), jnp.zeros(()))


@cache
def compiled(ordered: bool) -> Any:
    return jax.jit(jax.vmap(partial(play, ordered=ordered)))


@cache
def lanes(ordered: bool) -> dict[int, Any]:
    """Play all the vectors that there are for one event a gradient, or for two."""
    some = [i for i in range(len(NAMES)) if one_event(i) or not ordered]
    runs = compiled(ordered)(*arguments([vectors()[i] for i in some]))
    runs = jax.tree.map(np.asarray, runs)
    return {i: lane(runs, place) for place, i in enumerate(some)}


@pytest.mark.bits
def test_there_are_280_vectors_and_one_compile_for_each_number_of_events() -> None:
    assert (len(lanes(False)), len(lanes(True))) == (280, 274)
    assert compiled(False)._cache_size() == compiled(True)._cache_size() == 1


@pytest.mark.bits
@pytest.mark.parametrize("index", range(len(NAMES)), ids=NAMES)
def test_vector(index: int) -> None:
    meets(lanes(False)[index], vectors()[index])
    if one_event(index):
        meets(lanes(True)[index], vectors()[index])


BOTH = [pytest.param(True, id="one event", marks=pytest.mark.slow), pytest.param(False, id="two")]


@pytest.mark.parametrize("ordered", BOTH)
def test_chunks_give_the_rows_of_the_whole(ordered: bool) -> None:
    chosen = [i for i in lanes(ordered) if i % 3 == 0]
    table, rules, updates, until, present, given_ = arguments([vectors()[i] for i in chosen])
    whole = [lanes(ordered)[i] for i in chosen]

    def go_on(clock: Any, *given: Any) -> dtjax.Run:
        table, rule, updates, until, present, numbers = given
        net = links(numbers, ordered=ordered)
        cluster = dtjax.Cluster(N, delays.recorded(table), present=present, network=net)
        more = jnp.clip(updates - clock.version, 0, PART)
        return dtjax.resume(clock, cluster, rule, updates=more, until=until, rows=PART)

    given = (table, rules, updates, until, present, given_)
    least = np.minimum(updates, PART)
    runs, further = (
        [compiled(ordered)(table, rules, least, until, present, given_)],
        jax.jit(jax.vmap(go_on)),
    )
    for _ in range(PART, ROWS, PART):
        runs.append(further(runs[-1].clock, *given))
    for place, run in enumerate(whole):
        for name in ("worker", "step", "version", "arrival", "slot", "dt", "transit"):
            parts = [
                jax.tree.map(lambda x, i=place: x[i, :PART], getattr(r.trace, name)) for r in runs
            ]
            joined = jax.tree.map(lambda *x: np.concatenate(x)[:ROWS], *parts)
            jax.tree.map(np.testing.assert_array_equal, joined, getattr(run.trace, name))
        last = lane(runs[-1], place)
        jax.tree.map(np.testing.assert_array_equal, last.accounts, run.accounts)
        jax.tree.map(np.testing.assert_array_equal, last.clock, run.clock)


@st.composite
def networks(draw: st.DrawFn, *, alike: bool) -> dict[str, Any]:
    """Draw a run on links that are busy, idle or nothing, so that all sorts of times tie."""
    case = draw(inputs())
    n, servers = len(case["durations"]), draw(st.integers(1, 3))
    seconds = st.integers(0, 96).map(lambda i: i * UNIT)
    shard = draw(st.sampled_from([st.just(0.0), seconds, st.sampled_from([0.0, 1.0])]))
    row = st.lists(shard, min_size=servers, max_size=servers)
    push = [draw(row)] * n if alike else draw(st.lists(row, min_size=n, max_size=n))
    own = st.sampled_from([0.0, 0.25, 1.0, 1.5])
    pull = draw(st.just([0.0] * n) | st.lists(own, min_size=n, max_size=n))
    rest = {name: draw(own) for name in ("latency", "fold", "apply")}
    return case | {"push": push, "pull": pull, **rest}


@cache
def single(ordered: bool) -> Any:
    return jax.jit(partial(play, ordered=ordered))


def agree(case: dict[str, Any], *, ordered: bool) -> bool:
    """Play one run both ways; return whether the two need to agree."""
    reference = schedule(**case)
    durations, until = case["durations"], math.inf if case["until"] is None else case["until"]
    n = len(durations)
    ended = [s > len(row) for s, row in zip(reference.started, durations, strict=True)]
    if any(ended) and reference.status == "done":
        return False  # the clock stops where the table ends, though `until` comes first
    pull = np.zeros(N, np.float32)
    pull[:n] = case["pull"]
    given = (wide(case["push"]), pull, case["latency"], case["fold"], case["apply"])
    rule = full(Rule(**{name: case[name] for name in RULE}))
    present = np.arange(N) < n
    run = single(ordered)(
        padded(durations), rule, case["updates"], np.float32(until), present, given
    )
    assert facts(run, n) == expected(reference, durations, case["updates"])
    return True


@settings(max_examples=200)
@given(networks(alike=True))
def test_one_event_gives_the_reference_schedule(case: dict[str, Any]) -> None:
    assume(agree(case, ordered=True))


@settings(max_examples=300)
@given(networks(alike=False))
def test_two_events_give_the_reference_schedule(case: dict[str, Any]) -> None:
    assume(agree(case, ordered=False))


MANY = 70
RULES: dict[str, Any] = {
    "asp": policies.asp(),
    "bsp": policies.bsp(),
    "ssp": policies.ssp(2, 80),
    "k-bsp": policies.k_bsp(33),
    "k-asp": policies.k_asp(65),
    "k-batch-bsp": policies.k_batch_bsp(100),
    "k-batch-asp": policies.k_batch_asp(9, 5),
}


@pytest.mark.parametrize("ordered", [True, False], ids=["one event", "two"])
@pytest.mark.parametrize("name", RULES)
def test_many_workers_in_binary64(name: str, ordered: bool) -> None:
    """Random times do not tie, and sums are rounded: names agree exactly, times to rounding."""
    rng = np.random.default_rng(1)
    times = rng.exponential(size=(MANY, 60))
    push = np.tile(rng.uniform(0, 0.02, (1 if ordered else MANY, 2)), (MANY if ordered else 1, 1))
    pull = rng.uniform(0, 0.2, MANY)
    rule = RULES[name]
    seconds = {"push": push, "pull": pull, "latency": 0.01, "fold": 0.004, "apply": 0.02}
    reference = schedule(
        times.tolist(),
        k=MANY if rule.k is None else rule.k,
        distinct=rule.distinct,
        cancel=rule.cancel,
        bound=rule.bound,
        max_staleness=rule.max_staleness,
        updates=30,
        push=push.tolist(),
        pull=pull.tolist(),
        latency=0.01,
        fold=0.004,
        apply=0.02,
    )
    with jax.enable_x64(True):
        net = links([*seconds.values()], ordered=ordered)
        cluster = dtjax.Cluster(MANY, dtjax.delays.recorded(times), network=net)
        run = dtjax.simulate(jax.random.key(0), cluster, full(rule), updates=30, width=100)
        found = facts(run, MANY)
    wanted = expected(reference, times.tolist(), 30)
    for key in ("worker", "step", "version", "staleness", "compute"):
        assert [row[key] for row in found["updates"]] == [row[key] for row in wanted["updates"]]
    for key in (
        "started",
        "useful_count",
        "discarded_count",
        "cancelled_count",
        "completed",
        "buffered",
        "status",
    ):
        assert found[key] == wanted[key], key
    for key in ("end", "useful", "discarded", "cancelled", "in_flight", "waiting"):
        assert found[key] == pytest.approx(wanted[key], rel=1e-11, abs=1e-11), key
    for key in ("communicating", "queueing"):
        assert found[key] == pytest.approx(wanted[key], rel=1e-10, abs=1e-11), key
    for a, b in zip(found["updates"], wanted["updates"], strict=True):
        assert (a["time"], *a["arrival"]) == pytest.approx((b["time"], *b["arrival"]), rel=1e-12)


SMALL = [policies.asp(), policies.k_bsp(3), policies.k_asp(5), policies.k_batch_bsp(9)]


@pytest.mark.parametrize("rule", SMALL, ids=["asp", "k-bsp", "k-asp", "k-batch-bsp"])
def test_seconds_add_up_over_a_long_run(rule: Rule) -> None:
    net = network.star(payload=1.0, bandwidth=20.0, latency=0.01, servers=2, pull=3.0)
    cluster = dtjax.Cluster(n=8, delay=delays.exponential(1.0), network=net)
    run = dtjax.simulate(
        jax.random.key(3), cluster, rule, updates=9000, until=1500.0, collect="statistics"
    )
    total = sum(np.asarray(getattr(run.accounts, fate), np.float64) for fate in FATES)
    np.testing.assert_allclose(total, float(run.accounts.elapsed), rtol=2e-6)
