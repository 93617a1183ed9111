"""The general kernel: any policy, any law, any transport; one scan step an arrival."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dtjax.clock import statistics
from dtjax.clock.accounting import settle
from dtjax.clock.arrival import Record, arrive
from dtjax.clock.environment import Environment
from dtjax.clock.results import Run, Summary
from dtjax.clock.state import COUNTS, SPANS, Buffer, Clock, Counts, Spans, Tally
from dtjax.clock.statistics import Happened
from dtjax.clock.status import DONE, EXHAUSTED, STUCK, UNTIL
from dtjax.clock.trace_writer import begin, finish, write
from dtjax.clock.transport.choose import transport_of
from dtjax.core import bitset, blocked_minima, branches, random
from dtjax.core.protocols import ABSENT, COMPUTING

CHUNK = 1024
"""Arrivals between two looks at whether the run is over."""


@partial(jax.jit, static_argnames=("width", "traced"))
def start(key: jax.Array, cluster: Any, policy: Any, width: int, traced: bool = True) -> Clock:
    """Start every worker at second 0 on version 0; `traced`: a trace will be written."""
    n = cluster.n
    transport = transport_of(cluster.network, traced=traced)
    key = random.plain(key)
    workers = random.workers(key, n)
    zero = jnp.zeros((), float)
    present = jnp.ones(n, bool) if cluster.present is None else cluster.present
    states = jax.vmap(cluster.delay.init)(workers)
    states, drawn = jax.vmap(cluster.delay.draw, in_axes=(0, 0, None, None))(
        states, workers, jnp.int32(0), zero
    )
    drawn = blocked_minima.known(drawn.astype(zero.dtype))
    none, nothing = jnp.zeros(n, jnp.int32), jnp.zeros(n, zero.dtype)
    pair = (nothing, nothing)
    names = jnp.full((width, 4), -1, jnp.int32)
    times = jnp.zeros((width, 2 + len(transport.columns)), zero.dtype)
    readers = none.at[0].set(jnp.sum(present, dtype=jnp.int32))
    counts = Counts(
        step=present.astype(jnp.int32),
        read=none,
        slot=none,
        phase=jnp.where(present, COMPUTING, ABSENT).astype(jnp.int32),
    )
    clock = Clock(
        due=jnp.where(present, drawn, jnp.inf),
        counts=COUNTS.join(counts),
        spans=SPANS.join(Spans(transport.encoded(drawn), *(5 * [nothing]))),
        readers=readers,
        free=bitset.bits_of(readers == 0),
        head=jnp.int32(0),
        version=jnp.int32(0),
        pending=jnp.int32(0),
        buffer=Buffer.of(names, times),
        now=zero,
        updated=(zero, zero),
        origin=(zero, zero),
        ticks=jnp.int32(0),
        delay=states,
        policy=policy.init(n),
        tally=Tally(pair, pair, pair, none, none),
        links=None,
        key=jax.random.key_data(key),
    )
    return transport.start(clock, present)


@partial(jax.jit, static_argnames=("rows", "collect", "bins", "fresh"))
def advance(
    clock: Clock,
    cluster: Any,
    policy: Any,
    until: jax.Array,
    updates: jax.Array,
    rows: int,
    collect: str = "trace",
    bins: int = 0,
    fresh: bool = False,
) -> Run | Summary:
    """Go on from a clock until the run is over, and keep what is asked for."""
    K, first = clock.buffer.worker.shape[0], clock.version
    transport = transport_of(cluster.network, traced=collect == "trace")
    env = Environment(
        delay=cluster.delay,
        policy=policy,
        transport=transport,
        workers=random.workers(random.plain(clock.key), cluster.n),
        present=jnp.sum(clock.phase != ABSENT, dtype=jnp.int32),
        limit=first + updates,
        until=until,
    )
    events = transport.events(rows * K, cluster.n)

    def rows_of(kept: Any, clock: Clock, record: Record) -> tuple[Any, Clock]:
        return write(kept, record, first, K), clock

    def sums_of(kept: Any, clock: Clock, record: Record) -> tuple[Any, Clock]:
        clock = clock._replace(buffer=_buffer(clock, record))
        staleness = record.row - record.names[:, 2]
        happened = Happened(staleness, record.use, record.dt, record.commit, record.row - first)
        return statistics.add(kept, happened), clock

    if collect == "trace":
        clock, table, status = _play(env, clock, begin(clock, rows), rows_of, events)
        made = clock.version - first
        trace, buffer = finish(table, cluster, transport, first, made, fresh)
        clock = clock._replace(buffer=buffer)
        return Run(trace, settle(clock, transport), status, clock)
    nothing = statistics.begin(collect, bins, rows)
    clock, kept, status = _play(env, clock, nothing, sums_of, events)
    accounts = settle(clock, transport)
    left = clock.version - clock.buffer.version
    waiting = jnp.arange(K, dtype=jnp.int32) < clock.pending
    gradients = jnp.sum(accounts.useful_count, dtype=jnp.int32)
    return Summary(accounts, status, *statistics.end(kept, gradients, left, waiting))


def _play(
    env: Environment,
    clock: Clock,
    kept: Any,
    keep: Callable[[Any, Clock, Record], tuple[Any, Clock]],
    events: int,
) -> tuple[Clock, Any, jax.Array]:
    """Take arrivals until the run is over.

    Args:
        env: the machines, the policy, and the end.
        clock: to go on from.
        kept: what is kept of the run so far.
        keep: adds the records of a chunk to it.
        events: how many there are at most.

    Returns:
        The clock at the end, what is kept, and the status.
    """
    turns = max(1, -(-events // CHUNK))
    chunk = -(-events // turns)

    def step(carry: tuple[Clock, jax.Array], _: None) -> tuple[tuple[Clock, jax.Array], Record]:
        return arrive(env, carry)

    def unfinished(state: Any) -> jax.Array:
        (clock, minima), _, going = state
        due = jnp.min(minima)
        late = due > env.horizon(clock)
        return branches.any_lane(going & (clock.version < env.limit) & jnp.isfinite(due) & ~late)

    def turn(state: Any) -> Any:
        carry, kept, going = state
        (clock, minima), record = lax.scan(step, carry, length=chunk)
        going = env.transport.goes_on(going, record.going[-1])
        kept, clock = keep(kept, clock, record)
        return (clock, minima), kept, going

    places = clock.due.shape[0]
    due, minima = blocked_minima.blocked(clock.due)
    state = ((clock._replace(due=due), minima), kept, jnp.bool_(True))
    (clock, minima), kept, _ = lax.while_loop(unfinished, turn, state)
    status, now = _end(env, clock, jnp.min(minima))
    return clock._replace(due=clock.due[:places], now=now), kept, status


def _end(env: Environment, clock: Clock, due: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Say why the run ended, and when; `due`: of the event that would be next."""
    horizon, over = env.horizon(clock), clock.version >= env.limit
    idle = jnp.where(jnp.isinf(due) & jnp.isinf(horizon), STUCK, UNTIL)
    unknown = due == -jnp.inf
    status = jnp.where(over, DONE, jnp.where(unknown, EXHAUSTED, idle))
    at_end = ~over & ~unknown & jnp.isfinite(horizon)
    now = jnp.where(at_end, jnp.maximum(horizon, clock.now), clock.now)
    return status.astype(jnp.int32), now


def _buffer(clock: Clock, record: Record) -> Buffer:
    """Return the buffer after some arrivals."""
    old = clock.buffer
    here = record.use & (record.row == clock.version)
    column = jnp.where(here, record.column, old.worker.shape[0])
    new = Buffer.of(record.names, record.times)
    return jax.tree.map(lambda x, y: x.at[column].set(y, mode="drop"), old, new)
