"""What an arrival changes of all the workers: who is stopped, who starts, and the origin."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dtjax.clock import cycles, links
from dtjax.clock.state import Clock, Counts, absolute
from dtjax.cluster.delays.law import clocked
from dtjax.core import bitset, blocked_minima, branches, compensated
from dtjax.core.protocols import ABSENT, BLOCKED, COMPUTING, HELD, Decision, Event, View
from dtjax.core.random import Worker

REBASE = 64
"""Arrivals after which the origin of time moves to now. It bounds the rounding of a time by that of
the seconds that 64 arrivals (n, if that is more) take, however long the run is."""


def more_readers(clock: Clock, more: jax.Array) -> Clock:
    """Count `more` computations that read the newest version."""
    readers = clock.readers[clock.head] + more
    return clock._replace(
        readers=clock.readers.at[clock.head].set(readers),
        free=bitset.set_bit(clock.free, clock.head, readers == 0),
    )


def sweep(
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
    busy = other & (of.phase == COMPUTING)
    cancel = cancel & busy
    start = start & other & (cancel | (of.phase != COMPUTING))
    due = clock.due[:n]

    begun = clock.begun
    tally = clock.tally
    clock = clock._replace(
        tally=tally._replace(
            cancelled_count=tally.cancelled_count + cancel,
            waited=compensated.two_sum(*tally.waited, jnp.where(start & ~cancel, begun, 0.0)),
        )
    )
    network = cluster.network

    def forget(state: tuple[Any, ...]) -> tuple[Any, ...]:
        readers, _, cancelled, queues = state
        gone = jnp.where(cancel, of.slot, n)
        readers = readers.at[gone].add(-1, mode="drop")
        computed = begun
        if network is not None:
            computed, queues = cycles.drop(network, clock, cancel, busy)
        cancelled = compensated.two_sum(*cancelled, jnp.where(cancel, computed, 0.0))
        return readers, bitset.bits_of(readers == 0), cancelled, queues

    state = (clock.readers, clock.free, clock.tally.cancelled, clock.links)
    readers, free, cancelled, queues = branches.when(jnp.any(cancel), forget, state)
    tally = clock.tally._replace(cancelled=cancelled)
    clock = clock._replace(readers=readers, free=free, tally=tally, links=queues)

    # Who was cancelled has no time drawn yet for its next computation; who waited has, unless the
    # law looks at the clock.
    need = start if clocked(cluster.delay) else cancel

    def draw(state: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
        laws, seconds = state
        fresh, drawn = jax.vmap(cluster.delay.draw, in_axes=(0, 0, 0, None))(
            laws, workers, of.step, absolute(clock)
        )
        drawn = blocked_minima.known(drawn.astype(seconds.dtype))
        if network is not None:
            drawn = drawn + network.encode
        keep = jax.tree.map(lambda new, old: jnp.where(_like(need, new), new, old), fresh, laws)
        return keep, jnp.where(need, drawn, seconds)

    laws, seconds = branches.when(jnp.any(need), draw, (clock.delay, at.seconds))
    waits = cancel & ~start
    late = (of.phase == HELD) & decision.commit  # the update that it waited for has come
    idle = jnp.where(waits | (other & late), BLOCKED, of.phase)
    ends, again = clock.now + seconds, start
    if network is not None:
        own, missed = None, clock.version - of.read
        if network.shared_egress:
            own = decision.sweep & (of.phase == COMPUTING) & ~other
            again = start | own
        queues, pull, link = links.begin_cycles(network, clock, start, of.step, missed, own)
        clock = clock._replace(links=queues)
        ends = clock.now + pull + seconds + link
    due = jnp.where(again, ends, jnp.where(cancel, jnp.inf, due))
    if network is not None and not network.ordered:
        due = jnp.concatenate([due, jnp.where(cancel, jnp.inf, clock.due[n : 2 * n])])
    times, minima = blocked_minima.blocked(due)
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
    return more_readers(clock, jnp.sum(start, dtype=jnp.int32)), minima


def _like(mask: jax.Array, leaf: jax.Array) -> jax.Array:
    return lax.expand_dims(mask, range(1, leaf.ndim))


def rebase(state: tuple[Clock, jax.Array]) -> tuple[Clock, jax.Array]:
    """Move the origin to now, in the lanes whose turn it is."""
    clock, _ = state
    n = clock.readers.shape[0]
    turn = clock.ticks >= max(REBASE, n)
    shift = jnp.where(turn, clock.now, 0.0)
    at = clock.at
    due, due_low = compensated.two_sum(clock.due[:n], at.due_low, -shift)
    queues = clock.links
    if queues is not None:
        queues, arrivals = links.shifted(queues, clock.due, n, shift)
        due = jnp.concatenate([due, arrivals])
    since, since_low = compensated.two_sum(at.since, at.since_low, -shift)
    at = at._replace(since=since, since_low=since_low, due_low=due_low)
    times, minima = blocked_minima.blocked(due)
    clock = clock._replace(
        due=times,
        spans=jnp.concatenate(at),
        links=queues,
        updated=compensated.two_sum(*clock.updated, -shift),
        origin=compensated.two_sum(*clock.origin, shift),
        now=clock.now - shift,
        ticks=jnp.where(turn, 0, clock.ticks),
    )
    return clock, minima
