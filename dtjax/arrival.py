"""`arrive`: one gradient reaches the server. The only place where schedules are decided."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dtjax import keys, lanes
from dtjax.delays.law import clocked
from dtjax.keys import Worker
from dtjax.state import Clock, Counts, Pair, Spans, absolute
from dtjax.types import ABSENT, BLOCKED, COMPUTING, HELD, Decision, Event, View

REBASE = 64
"""Arrivals after which the origin of time moves to now. It bounds the rounding of a time by that of
the seconds that 64 arrivals (n, if that is more) take, however long the run is."""


class Record(NamedTuple):
    """What one arrival leaves for the trace."""

    names: jax.Array  # i[4] worker, step, version, slot
    times: jax.Array  # f[2] seconds from the last update to the arrival, seconds computed
    use: jax.Array  # b[]
    commit: jax.Array  # b[]
    row: jax.Array  # i[] version before
    column: jax.Array  # i[] pending before
    into: jax.Array  # i[] slot of the newest version after


def _add(pair: Pair, index: jax.Array, x: jax.Array) -> Pair:
    """Add x to one entry of f[n] pairs; index n adds nothing."""
    high, low = lanes.two_sum(pair[0][index], pair[1][index], x)
    return pair[0].at[index].set(high, mode="drop"), pair[1].at[index].set(low, mode="drop")


def _pick(tree: Any, index: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def arrive(
    cluster: Any,
    policy: Any,
    workers: Worker,
    limit: jax.Array,
    until: jax.Array,
    present: jax.Array,
    carry: tuple[Clock, jax.Array],
) -> tuple[tuple[Clock, jax.Array], Record]:
    """Take the next arrival, unless the run is over: then nothing changes.

    Args:
        cluster: the machines.
        policy: who decides.
        workers: the run's workers, arrays with leading axis n.
        limit: i[], the version at which the run is over.
        until: f[], seconds since the run began; arrivals later than that do not happen.
        present: i[], how many workers take part.
        carry: the clock, whose `due` is padded to whole blocks, and the blocks' minima.

    Returns:
        The carry and what to write down.
    """
    clock, minima = carry
    n = clock.readers.shape[0]
    due, which, inside, block = lanes.least(clock.due, minima)
    first = which * block.shape[0] + inside
    horizon = (until - clock.origin[0]) - clock.origin[1]
    alive = (clock.version < limit) & (due <= horizon) & jnp.isfinite(due)
    i = jnp.where(alive, first, n)  # writes to n are dropped
    clock = clock._replace(now=jnp.where(alive, due, clock.now))
    age = (clock.now - clock.updated[0]) - clock.updated[1]
    step, version, slot = lanes.column(clock.counts, n, first, 3)
    spent, computed, computed_low = lanes.column(clock.spans, n, first, 3)

    # The worker delivers: it reads its version no more, and is asked about.
    readers = clock.readers[slot] - 1
    here = jnp.where(alive, slot, n)
    clock = clock._replace(
        readers=clock.readers.at[here].set(readers, mode="drop"),
        free=lanes.add_bit(clock.free, slot, alive & (readers == 0)),
    )
    delivered = jnp.arange(n, dtype=jnp.int32) == i
    view = View(clock.version, clock.pending, present, clock.of.phase, clock.done + delivered)
    event = Event(jnp.minimum(first, n - 1), clock.version - version)
    decided, decision = policy.decide(clock.policy, view, event)
    decision = Decision(
        decision.use & alive, decision.commit & alive, decision.phase, decision.sweep & alive
    )
    tally = clock.tally
    if getattr(policy, "discards", True):
        thrown = jnp.where(decision.use, n, i)
        tally = tally._replace(
            discarded=_add(tally.discarded, thrown, spent),
            thrown=tally.thrown.at[thrown].add(1, mode="drop"),
        )

    # The server updates: a slot without readers takes the new version. At most n - 1 computations
    # are under way, so there is one.
    commit = decision.commit
    record = Record(
        names=jnp.stack([first, step - 1, version, slot]),
        times=jnp.stack([age, spent]),
        use=decision.use,
        commit=commit,
        row=clock.version,
        column=clock.pending,
        into=jnp.where(commit, lanes.least_bit(clock.free), clock.head),
    )
    clock = clock._replace(
        policy=jax.tree.map(lambda new, old: jnp.where(alive, new, old), decided, clock.policy),
        tally=tally,
        head=record.into,
        version=clock.version + commit,
        pending=jnp.where(commit, 0, clock.pending + decision.use),
        updated=(
            jnp.where(commit, clock.now, clock.updated[0]),
            jnp.where(commit, 0.0, clock.updated[1]),
        ),
    )

    # The worker starts again or waits. Its next time is drawn now, and kept if it waits; only a law
    # that looks at the clock must be drawn when the computation starts.
    starts = alive & (decision.phase == COMPUTING)
    # Its key is derived again: looked up, it would keep the compiler from vectorising the draw.
    own = keys.fold(keys.plain(clock.key), first)
    worker = Worker(first, own, workers.world[0])
    state, drawn = cluster.delay.draw(_pick(clock.delay, first), worker, step, absolute(clock))
    drawn = drawn.astype(spent.dtype)
    ends = jnp.where(starts, clock.now + drawn, jnp.inf)
    times, minima = lanes.replace(clock.due, minima, which, inside, block, ends, alive)
    computed, computed_low = lanes.two_sum(computed, computed_low, spent)
    none = jnp.zeros_like(drawn)
    span = Spans(drawn, computed, computed_low, clock.now, none, none)
    mine = Counts(
        step=step + starts,
        read=jnp.where(starts, clock.version, version),
        slot=jnp.where(starts, clock.head, slot),
        phase=decision.phase,
    )
    keep = jnp.where(starts, i, n) if clocked(cluster.delay) else i
    clock = clock._replace(
        due=times,
        counts=lanes.put_column(clock.counts, n, i, jnp.stack(mine)),
        spans=lanes.put_column(clock.spans, n, i, jnp.stack(span)),
        delay=jax.tree.map(lambda all_, x: all_.at[keep].set(x, mode="drop"), clock.delay, state),
    )
    clock = _more_readers(clock, starts.astype(jnp.int32))

    def others(state: tuple[Clock, jax.Array]) -> tuple[Clock, jax.Array]:
        clock, _ = state
        return _sweep(cluster, policy, workers, clock, view, event, decision)

    clock, minima = lanes.when(decision.sweep, others, (clock, minima))
    clock = clock._replace(ticks=clock.ticks + alive)
    clock, minima = lanes.when(clock.ticks >= max(REBASE, n), _rebase, (clock, minima))
    return (clock, minima), record


def _more_readers(clock: Clock, more: jax.Array) -> Clock:
    """Count `more` computations that read the newest version."""
    readers = clock.readers[clock.head] + more
    return clock._replace(
        readers=clock.readers.at[clock.head].set(readers),
        free=lanes.set_bit(clock.free, clock.head, readers == 0),
    )


def _sweep(
    cluster: Any,
    policy: Any,
    workers: Worker,
    clock: Clock,
    view: View,
    event: Event,
    decision: Decision,
) -> tuple[Clock, jax.Array]:
    """Cancel and start others than the deliverer, where the policy says so."""
    n = clock.readers.shape[0]
    of, at = clock.of, clock.at
    other = decision.sweep & (jnp.arange(n, dtype=jnp.int32) != event.worker)
    other = other & (of.phase != ABSENT)
    view = view._replace(phase=of.phase, done=clock.done)
    cancel, start = policy.sweep(clock.policy, view, event, decision)
    cancel = cancel & other & (of.phase == COMPUTING)
    start = start & other & (cancel | (of.phase != COMPUTING))
    due = clock.due[:n]

    begun = clock.begun
    tally = clock.tally
    clock = clock._replace(
        tally=tally._replace(
            cancelled=lanes.two_sum(*tally.cancelled, jnp.where(cancel, begun, 0.0)),
            stopped=tally.stopped + cancel,
            waited=lanes.two_sum(*tally.waited, jnp.where(start & ~cancel, begun, 0.0)),
        )
    )

    def forget(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        gone = jnp.where(cancel, of.slot, n)
        readers = state[0].at[gone].add(-1, mode="drop")
        return readers, lanes.bits_of(readers == 0)

    readers, free = lanes.when(jnp.any(cancel), forget, (clock.readers, clock.free))
    clock = clock._replace(readers=readers, free=free)

    # Who was cancelled has no time drawn yet for its next computation; who waited has, unless the
    # law looks at the clock.
    need = start if clocked(cluster.delay) else cancel

    def draw(state: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
        laws, seconds = state
        fresh, drawn = jax.vmap(cluster.delay.draw, in_axes=(0, 0, 0, None))(
            laws, workers, of.step, absolute(clock)
        )
        keep = jax.tree.map(lambda new, old: jnp.where(_like(need, new), new, old), fresh, laws)
        return keep, jnp.where(need, drawn.astype(seconds.dtype), seconds)

    laws, seconds = lanes.when(jnp.any(need), draw, (clock.delay, at.seconds))
    waits = cancel & ~start
    late = (of.phase == HELD) & decision.commit  # the update that it waited for has come
    idle = jnp.where(waits | (other & late), BLOCKED, of.phase)
    due = jnp.where(start, clock.now + seconds, jnp.where(waits, jnp.inf, due))
    times, minima = lanes.blocked(due)
    of = Counts(
        step=of.step + start,
        read=jnp.where(start, clock.version, of.read),
        slot=jnp.where(start, clock.head, of.slot),
        phase=jnp.where(start, COMPUTING, idle),
    )
    at = at._replace(
        seconds=seconds,
        since=jnp.where(start | waits, clock.now, at.since),
        since_low=jnp.where(start | waits, 0.0, at.since_low),
        due_low=jnp.where(start, 0.0, at.due_low),
    )
    clock = clock._replace(
        due=times, counts=jnp.concatenate(of), spans=jnp.concatenate(at), delay=laws
    )
    return _more_readers(clock, jnp.sum(start, dtype=jnp.int32)), minima


def _like(mask: jax.Array, leaf: jax.Array) -> jax.Array:
    return lax.expand_dims(mask, range(1, leaf.ndim))


def _rebase(state: tuple[Clock, jax.Array]) -> tuple[Clock, jax.Array]:
    """Move the origin to now, in the lanes whose turn it is."""
    clock, _ = state
    n = clock.readers.shape[0]
    turn = clock.ticks >= max(REBASE, n)
    shift = jnp.where(turn, clock.now, 0.0)
    at = clock.at
    due, due_low = lanes.two_sum(clock.due[:n], at.due_low, -shift)
    since, since_low = lanes.two_sum(at.since, at.since_low, -shift)
    at = at._replace(since=since, since_low=since_low, due_low=due_low)
    times, minima = lanes.blocked(due)
    clock = clock._replace(
        due=times,
        spans=jnp.concatenate(at),
        updated=lanes.two_sum(*clock.updated, -shift),
        origin=lanes.two_sum(*clock.origin, shift),
        now=clock.now - shift,
        ticks=jnp.where(turn, 0, clock.ticks),
    )
    return clock, minima
