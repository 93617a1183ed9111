"""The general kernel: any policy, any law, one scan step an arrival."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dtjax.clock import links, statistics
from dtjax.clock.accounting import settle
from dtjax.clock.arrival import Record, arrive
from dtjax.clock.results import Run, Summary
from dtjax.clock.state import Buffer, Clock, Counts, Spans, Tally
from dtjax.clock.statistics import Happened
from dtjax.clock.status import DONE, EXHAUSTED, STUCK, UNTIL
from dtjax.clock.trace_writer import begin, finish, write
from dtjax.core import bitset, blocked_minima, branches, random
from dtjax.core.protocols import ABSENT, COMPUTING, NEVER

CHUNK = 1024
"""Arrivals between two looks at whether the run is over."""


@partial(jax.jit, static_argnames=("width", "traced"))
def start(key: jax.Array, cluster: Any, policy: Any, width: int, traced: bool = True) -> Clock:
    """Start every worker at second 0 on version 0; `traced`: a trace will be written."""
    n = cluster.n
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
    some, times = jnp.full(width, -1, jnp.int32), jnp.zeros(width, zero.dtype)
    readers = none.at[0].set(jnp.sum(present, dtype=jnp.int32))
    counts = Counts(
        step=present.astype(jnp.int32),
        read=none,
        slot=none,
        phase=jnp.where(present, COMPUTING, ABSENT).astype(jnp.int32),
    )
    seconds = jnp.where(present, drawn, jnp.inf)
    transit = None
    if cluster.network is not None:
        columns = 3 + sum(links.stages(cluster.network))
        transit = jnp.zeros((width, columns), zero.dtype) if traced else None
        drawn = drawn + cluster.network.encode
    clock = Clock(
        due=seconds,
        counts=jnp.concatenate(counts),
        spans=jnp.concatenate(Spans(drawn, *(5 * [nothing]))),
        readers=readers,
        free=bitset.bits_of(readers == 0),
        head=jnp.int32(0),
        version=jnp.int32(0),
        pending=jnp.int32(0),
        buffer=Buffer(some, some, some, some, times, times, transit),
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
    return clock if cluster.network is None else _pull(cluster.network, clock, present, drawn)


def _pull(network: Any, clock: Clock, present: jax.Array, drawn: jax.Array) -> Clock:
    """Let every worker pull version 0 before it computes."""
    n = present.shape[0]
    clock = clock._replace(links=links.begin(network, n, drawn.dtype))
    missed = jnp.full(n, NEVER, jnp.int32)
    first = jnp.zeros(n, jnp.int32)
    queues, pull, own = links.begin_cycles(network, clock, present, first, missed)
    due = jnp.where(present, clock.now + pull + drawn + own, jnp.inf)
    if not network.ordered:
        due = jnp.concatenate([due, jnp.full(n, jnp.inf, due.dtype)])
    return clock._replace(due=due, links=queues)


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
    n, K = cluster.n, clock.buffer.worker.shape[0]
    workers = random.workers(random.plain(clock.key), n)
    first = clock.version
    limit = first + updates
    events = rows * K
    if cluster.network is not None and not cluster.network.ordered:
        events = 2 * events + n
    turns = max(1, -(-events // CHUNK))
    chunk = -(-events // turns)

    due, minima = blocked_minima.blocked(clock.due)
    present = jnp.sum(clock.of.phase != ABSENT, dtype=jnp.int32)
    step = partial(arrive, cluster, policy, workers, limit, until, present)

    def unfinished(state: Any) -> jax.Array:
        (clock, minima), _, going = state
        due = jnp.min(minima)
        late = due > (until - clock.origin[0]) - clock.origin[1]
        return branches.any_lane(going & (clock.version < limit) & jnp.isfinite(due) & ~late)

    def turn(state: Any) -> Any:
        (clock, minima), kept, going = state
        (clock, minima), record = lax.scan(lambda c, _: step(c), (clock, minima), length=chunk)
        if cluster.network is not None:  # what is ready in time may have its effect too late
            going = record.going[-1]
        if collect == "trace":
            return (clock, minima), write(kept, record, first, K), going
        clock = clock._replace(buffer=_buffer(clock, record))
        staleness = record.row - record.names[:, 2]
        happened = Happened(staleness, record.use, record.dt, record.commit, record.row - first)
        return (clock, minima), statistics.add(kept, happened), going

    kept: Any = begin(clock, rows) if collect == "trace" else statistics.begin(collect, bins, rows)
    places = clock.due.shape[0]
    state = ((clock._replace(due=due), minima), kept, jnp.bool_(True))
    (clock, minima), kept, _ = lax.while_loop(unfinished, turn, state)

    next_due = jnp.min(minima)
    horizon = (until - clock.origin[0]) - clock.origin[1]
    over = clock.version >= limit
    idle = jnp.where(jnp.isinf(next_due) & jnp.isinf(horizon), STUCK, UNTIL)
    unknown = next_due == -jnp.inf
    status = jnp.where(over, DONE, jnp.where(unknown, EXHAUSTED, idle))
    at_end = ~over & ~unknown & jnp.isfinite(horizon)
    clock = clock._replace(
        due=clock.due[:places],
        now=jnp.where(at_end, jnp.maximum(horizon, clock.now), clock.now),
    )
    status = status.astype(jnp.int32)
    if collect == "trace":
        trace, buffer = finish(kept, cluster, first, clock.version - first, fresh)
        clock = clock._replace(buffer=buffer)
        return Run(trace, settle(clock, cluster.network), status, clock)
    accounts = settle(clock, cluster.network)
    left = clock.version - clock.buffer.version
    waiting = jnp.arange(K, dtype=jnp.int32) < clock.pending
    gradients = jnp.sum(accounts.useful_count, dtype=jnp.int32)
    return Summary(accounts, status, *statistics.end(kept, gradients, left, waiting))


def _buffer(clock: Clock, record: Record) -> Buffer:
    """Return the buffer after some arrivals."""
    old = clock.buffer
    here = record.use & (record.row == clock.version)
    column = jnp.where(here, record.column, old.worker.shape[0])
    transit = None if old.transit is None else record.times[:, 2:]
    new = Buffer(*record.names.T, *record.times[:, :2].T, transit)
    return jax.tree.map(lambda x, y: x.at[column].set(y, mode="drop"), old, new)
