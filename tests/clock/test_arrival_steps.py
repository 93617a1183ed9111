"""The steps of an arrival, each alone, on a small clock made by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dtjax
from dtjax import delays, network, policies
from dtjax.clock import arrival, engine, inputs, intervene, rebase
from dtjax.clock.environment import Environment
from dtjax.clock.state import COUNTS, SPANS, Clock
from dtjax.clock.transport.choose import transport_of
from dtjax.clock.transport.form import Event
from dtjax.clock.transport.instant import Instant
from dtjax.clock.transport.links import Shards
from dtjax.clock.transport.ordered import Ordered
from dtjax.clock.transport.sharded import Sharded
from dtjax.core import blocked_minima, random
from dtjax.core.protocols import BLOCKED, COMPUTING, HELD
from dtjax.core.worker_table import Layout

SECONDS = [5.0, 2.0, 7.0]  # of every computation of workers 0, 1, 2
ORDERED = network.fixed(push=0.5, pull=0.25, fold=0.125, apply=0.0625)
SHARDED = network.fixed(push=0.5, latency=[0.0, 1.0, 0.0])


def world(
    policy: Any, links: Any = None, until: float = np.inf
) -> tuple[Environment, Clock, jax.Array]:
    """Return an environment, and the clock at second 0 with its minima."""
    cluster = dtjax.Cluster(n=3, delay=delays.deterministic(SECONDS), network=links)
    policy = inputs.canonical("test", cluster, policy)
    clock = engine.start(jax.random.key(0), cluster, policy, 3)
    env = Environment(
        delay=cluster.delay,
        policy=policy,
        transport=transport_of(links),
        workers=random.workers(random.plain(clock.key), 3),
        present=jnp.int32(3),
        limit=jnp.int32(10),
        until=jnp.asarray(until, float),
    )
    due, minima = blocked_minima.blocked(clock.due)
    return env, clock._replace(due=due), minima


def decided(env: Environment, clock: Clock, minima: jax.Array) -> tuple[Any, Any]:
    gradient = arrival.next_event(env, clock, minima)
    return gradient, arrival.decide(env, clock, gradient)


@pytest.mark.parametrize(
    ("links", "form"), [(None, Instant), (ORDERED, Ordered), (SHARDED, Sharded)]
)
def test_transport_follows_the_network(links: Any, form: Any) -> None:
    assert type(transport_of(links)) is form


def test_next_event_is_the_earliest_worker() -> None:
    env, clock, minima = world(policies.asp())
    gradient = arrival.next_event(env, clock, minima)
    assert (int(gradient.coming.worker), float(gradient.coming.arrival)) == (1, 2.0)
    assert (int(gradient.step), int(gradient.version), float(gradient.spent)) == (1, 0, 2.0)


def test_next_event_on_a_network_in_order_arrives_after_pull_and_push() -> None:
    env, clock, minima = world(policies.asp(), ORDERED)
    coming = arrival.next_event(env, clock, minima).coming
    assert (float(coming.due), float(coming.arrival)) == (2.25, 2.75)
    assert float(coming.way.moving) == 0.5
    assert bool(coming.arrives) and not bool(coming.ready)


def test_next_event_with_unequal_latencies_only_gets_ready() -> None:
    env, clock, minima = world(policies.asp(), SHARDED)
    coming = arrival.next_event(env, clock, minima).coming
    assert (int(coming.worker), float(coming.due), float(coming.arrival)) == (1, 2.0, 3.5)
    assert bool(coming.ready) and not bool(coming.arrives)


@pytest.mark.parametrize(("links", "effect"), [(None, 2.0), (ORDERED, 2.9375)])
def test_decide_asks_when_the_server_is_done(links: Any, effect: float) -> None:
    env, clock, minima = world(policies.asp(), links)
    _, verdict = decided(env, clock, minima)
    assert float(verdict.effect) == effect
    assert bool(verdict.event.alive) and bool(verdict.decision.commit)
    assert int(verdict.asked.staleness) == 0


@pytest.mark.parametrize("end", [{"until": 1.9}, {"limit": 0}])
def test_decide_lets_nothing_happen_after_the_end(end: Any) -> None:
    env, clock, minima = world(policies.asp(), until=end.get("until", np.inf))
    env = env._replace(limit=jnp.int32(end.get("limit", 10)))
    _, verdict = decided(env, clock, minima)
    assert not bool(verdict.event.alive | verdict.decision.use | verdict.decision.commit)
    assert int(verdict.worker) == 3


def test_deliver_moves_the_clock_and_gives_up_the_version() -> None:
    env, clock, minima = world(policies.asp())
    after = arrival.deliver(env, clock, *decided(env, clock, minima))
    assert float(after.now) == 2.0
    assert after.readers.tolist() == [2, 0, 0]
    assert after.tally.discarded_count.tolist() == [0, 0, 0]


def test_deliver_counts_what_is_too_stale_as_discarded() -> None:
    env, clock, minima = world(policies.asp(max_staleness=1))
    clock = clock._replace(version=jnp.int32(5))
    after = arrival.deliver(env, clock, *decided(env, clock, minima))
    assert after.tally.discarded_count.tolist() == [0, 1, 0]
    assert after.tally.discarded[0].tolist() == [0.0, 2.0, 0.0]


def test_commit_takes_a_slot_without_readers() -> None:
    env, clock, minima = world(policies.asp())
    gradient, verdict = decided(env, clock, minima)
    after = arrival.commit(arrival.deliver(env, clock, gradient, verdict), verdict)
    assert (int(after.version), int(after.head), int(after.pending)) == (1, 1, 0)
    assert float(after.updated[0]) == 2.0


def test_commit_keeps_a_gradient_until_there_are_enough() -> None:
    env, clock, minima = world(policies.k_asp(2))
    gradient, verdict = decided(env, clock, minima)
    after = arrival.commit(arrival.deliver(env, clock, gradient, verdict), verdict)
    assert (int(after.version), int(after.head), int(after.pending)) == (0, 0, 1)


@pytest.mark.parametrize(
    ("links", "due", "busy"),
    [(None, 4.0, 2.0), (ORDERED, 2.9375 + 0.25 + 2.0, 2.0)],
)
def test_restart_sets_the_end_of_the_next_cycle(links: Any, due: float, busy: float) -> None:
    env, clock, minima = world(policies.asp(), links)
    gradient, verdict = decided(env, clock, minima)
    clock = arrival.commit(arrival.deliver(env, clock, gradient, verdict), verdict)
    after, minima, _ = arrival.restart(env, clock, minima, gradient, verdict)
    assert float(after.due[1]) == due
    assert float(jnp.min(minima)) == float(jnp.min(after.due))
    assert (int(after.of.step[1]), int(after.of.read[1]), int(after.of.slot[1])) == (2, 1, 1)
    assert (float(after.at.computed[1]), float(after.at.seconds[1])) == (2.0, busy)
    assert after.readers.tolist() == [2, 1, 0]


def test_restart_lets_a_worker_wait_whose_policy_says_so() -> None:
    env, clock, minima = world(policies.bsp())
    gradient, verdict = decided(env, clock, minima)
    clock = arrival.commit(arrival.deliver(env, clock, gradient, verdict), verdict)
    after, _, _ = arrival.restart(env, clock, minima, gradient, verdict)
    assert after.phase.tolist() == [COMPUTING, HELD, COMPUTING]
    assert np.isinf(after.due[1]) and int(after.of.step[1]) == 1


def test_restart_sends_what_gets_ready_on_a_network_with_overtaking() -> None:
    env, clock, minima = world(policies.asp(), SHARDED)
    gradient, verdict = decided(env, clock, minima)
    after, _, _ = arrival.restart(env, clock, minima, gradient, verdict)
    assert bool(verdict.event.ready) and int(after.of.step[1]) == 1
    assert np.isinf(after.due[1]) and float(after.due[3 + 1]) == 3.5  # its arrival
    assert after.links.free.tolist() == [2.5]


def test_intervene_cancels_and_starts_all_others() -> None:
    env, clock, minima = world(policies.k_bsp(1))
    gradient, verdict = decided(env, clock, minima)
    clock = arrival.commit(arrival.deliver(env, clock, gradient, verdict), verdict)
    told = (verdict.view, verdict.asked, verdict.decision)
    after, minima = intervene.intervene(env, clock, minima, *told)
    assert after.tally.cancelled_count.tolist() == [1, 0, 1]
    assert after.tally.cancelled[0].tolist() == [2.0, 0.0, 2.0]
    assert after.due[:3].tolist() == [7.0, 2.0, 9.0]
    assert after.of.step.tolist() == [2, 1, 2] and after.of.read.tolist() == [1, 0, 1]
    assert float(jnp.min(minima)) == 2.0


def test_intervene_does_nothing_unless_the_policy_wants_it() -> None:
    env, clock, minima = world(policies.k_bsp(1))
    _, verdict = decided(env, clock, minima)
    decision = verdict.decision._replace(sweep=jnp.bool_(False))
    after, _ = intervene.intervene(env, clock, minima, verdict.view, verdict.asked, decision)
    jax.tree.map(np.testing.assert_array_equal, after, clock)


def test_start_blocks_who_is_cancelled_and_does_not_start() -> None:
    env, clock, _ = world(policies.asp())
    some = jnp.array([True, False, False])
    stop = intervene.Stop(some, ~some & some, ~some & some)
    _, verdict = decided(env, clock, blocked_minima.blocked(clock.due)[1])
    after, _ = intervene.start(env, clock, stop, clock.at.seconds, some, verdict.decision)
    assert after.phase.tolist() == [BLOCKED, COMPUTING, COMPUTING]
    assert np.isinf(after.due[0])


@pytest.mark.parametrize("links", [None, ORDERED, SHARDED])
def test_rebase_moves_every_time_by_now(links: Any) -> None:
    env, clock, minima = world(policies.asp(), links)
    clock = clock._replace(now=jnp.asarray(1.5, float), ticks=jnp.int32(rebase.REBASE - 1))
    still, _ = rebase.rebase(env, clock, minima, jnp.bool_(False))
    jax.tree.map(np.testing.assert_array_equal, still, clock)
    after, minima = rebase.rebase(env, clock, minima, jnp.bool_(True))
    assert (float(after.now), float(after.origin[0]), int(after.ticks)) == (0.0, 1.5, 0)
    np.testing.assert_array_equal(after.due, clock.due - 1.5)
    np.testing.assert_array_equal(after.at.since, clock.at.since - 1.5)
    assert float(jnp.min(minima)) == float(jnp.min(after.due))


def test_note_writes_down_the_version_before_the_update() -> None:
    env, clock, minima = world(policies.asp())
    gradient, verdict = decided(env, clock, minima)
    delivered = arrival.deliver(env, clock, gradient, verdict)
    after = arrival.commit(delivered, verdict)
    record = arrival.note(env, delivered, after, gradient, verdict, None)
    assert record.names.tolist() == [1, 0, 0, 0]
    assert record.times.tolist() == [2.0, 2.0]
    assert (int(record.row), int(record.into), bool(record.going)) == (0, 1, True)


def test_instant_departure_begins_the_next_computation_now() -> None:
    env, clock, minima = world(policies.asp())
    gradient, _ = decided(env, clock, minima)
    event = Event(gradient.coming, jnp.bool_(True), jnp.bool_(False))
    seconds = arrival.draw(env, clock, gradient)[1]
    due, minima = env.transport.schedule(clock, minima, event, clock.now + seconds + 2.0)
    assert due[:3].tolist() == [5.0, 4.0, 7.0] and float(jnp.min(minima)) == 4.0


def test_tables_hold_their_fields() -> None:
    _, clock, _ = world(policies.asp(), SHARDED)
    for layout, table in ((COUNTS, clock.counts), (SPANS, clock.spans)):
        fields = layout.columns(table)
        np.testing.assert_array_equal(layout.join(fields), table)
        moved = layout.put(table, jnp.int32(2), layout.row(table, jnp.int32(0)))
        for name, old, new in zip(fields._fields, fields, layout.columns(moved), strict=True):
            np.testing.assert_array_equal(new, jnp.array([old[0], old[1], old[0]]))
            np.testing.assert_array_equal(layout.column(table, name), old)
            assert float(layout.number(table, name, jnp.int32(1))) == float(old[1])
        dropped = layout.put(table, jnp.int32(3), layout.row(table, jnp.int32(0)))
        np.testing.assert_array_equal(dropped, table)


def test_tables_hold_fields_with_several_numbers_a_worker() -> None:
    _, clock, _ = world(policies.asp(), network.fixed(push=[[1.0, 2.0]] * 3, latency=[0.0, 1, 2]))
    layout = Layout(Shards, {"begin": 2, "end": 2})
    fields = layout.columns(clock.links.wire)
    assert fields.begin.shape == (2, 3) and fields.low.shape == (3,)
    fields = fields._replace(end=jnp.arange(6.0).reshape(2, 3), low=jnp.arange(3.0))
    table = layout.join(fields)
    row = layout.row(table, jnp.int32(1))
    assert row.end.tolist() == [1.0, 4.0] and float(row.low) == 1.0
    moved = layout.columns(layout.put(table, jnp.int32(0), row))
    assert moved.end.tolist() == [[1.0, 1.0, 2.0], [4.0, 4.0, 5.0]]
    ends = layout.put_column(table, "end", -fields.end)
    np.testing.assert_array_equal(layout.columns(ends).end, -fields.end)
    np.testing.assert_array_equal(layout.columns(ends).low, fields.low)
