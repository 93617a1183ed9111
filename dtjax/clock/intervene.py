"""What an arrival does to other workers than the deliverer: some are stopped, some start."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dtjax.clock.environment import Environment
from dtjax.clock.state import COUNTS, SPANS, Clock, Counts, absolute
from dtjax.clock.transport.form import Stop
from dtjax.cluster.delays.law import clocked
from dtjax.core import bitset, blocked_minima, branches, compensated
from dtjax.core.protocols import ABSENT, BLOCKED, COMPUTING, HELD, Decision, Event, View


def intervene(
    env: Environment,
    clock: Clock,
    minima: jax.Array,
    view: View,
    event: Event,
    decision: Decision,
) -> tuple[Clock, jax.Array]:
    """Cancel and start others than the deliverer, where the policy wants to be asked."""

    def others(state: tuple[Clock, jax.Array]) -> tuple[Clock, jax.Array]:
        clock, _ = state
        other, stop = choose(env, clock, view, event, decision)
        clock = cancel(env, account(clock, stop), stop)
        clock, seconds = draw(env, clock, stop)
        return start(env, clock, stop, seconds, other, decision)

    return branches.when(decision.sweep, others, (clock, minima))


def choose(
    env: Environment, clock: Clock, view: View, event: Event, decision: Decision
) -> tuple[jax.Array, Stop]:
    """Ask the policy whom to cancel and to start; return also who could be, b[n]."""
    n, phase = clock.readers.shape[0], clock.phase
    other = decision.sweep & (jnp.arange(n, dtype=jnp.int32) != event.worker)
    other = other & (phase != ABSENT)
    view = view._replace(phase=phase, done=clock.done)
    cancel, start = env.policy.sweep(clock.policy, view, event, decision)
    cancel = cancel & other & clock.busy
    start = start & other & (cancel | (phase != COMPUTING))
    return other, Stop(cancel, start, decision.sweep & clock.busy & ~other)


def account(clock: Clock, stop: Stop) -> Clock:
    """Count who is cancelled, and the waits that are over."""
    tally = clock.tally
    over = jnp.where(stop.start & ~stop.cancel, clock.begun, 0.0)
    tally = tally._replace(
        cancelled_count=tally.cancelled_count + stop.cancel,
        waited=compensated.two_sum(*tally.waited, over),
    )
    return clock._replace(tally=tally)


def cancel(env: Environment, clock: Clock, stop: Stop) -> Clock:
    """Stop computations: their versions have fewer readers, their seconds are counted."""
    n, slot = clock.readers.shape[0], COUNTS.column(clock.counts, "slot")
    others = clock.busy & ~stop.deliverer

    def forget(state: tuple[Any, ...]) -> tuple[Any, ...]:
        readers, _, cancelled, _ = state
        gone = jnp.where(stop.cancel, slot, n)
        readers = readers.at[gone].add(-1, mode="drop")
        computed, queues = env.transport.drop(clock, stop.cancel, others)
        cancelled = compensated.two_sum(*cancelled, jnp.where(stop.cancel, computed, 0.0))
        return readers, bitset.bits_of(readers == 0), cancelled, queues

    state = (clock.readers, clock.free, clock.tally.cancelled, clock.links)
    readers, free, cancelled, queues = branches.when(jnp.any(stop.cancel), forget, state)
    tally = clock.tally._replace(cancelled=cancelled)
    return clock._replace(readers=readers, free=free, tally=tally, links=queues)


def draw(env: Environment, clock: Clock, stop: Stop) -> tuple[Clock, jax.Array]:
    """Draw the times that are not known; return the seconds of everybody's computation, f[n].

    Who was cancelled has no time drawn yet for its next computation; who waited has, unless the
    law looks at the clock.
    """
    need = stop.start if clocked(env.delay) else stop.cancel
    step = COUNTS.column(clock.counts, "step")

    def fresh(state: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
        laws, seconds = state
        states, drawn = jax.vmap(env.delay.draw, in_axes=(0, 0, 0, None))(
            laws, env.workers, step, absolute(clock)
        )
        drawn = env.transport.encoded(blocked_minima.known(drawn.astype(seconds.dtype)))
        keep = jax.tree.map(lambda new, old: jnp.where(_like(need, new), new, old), states, laws)
        return keep, jnp.where(need, drawn, seconds)

    before = SPANS.column(clock.spans, "seconds")
    laws, seconds = branches.when(jnp.any(need), fresh, (clock.delay, before))
    return clock._replace(delay=laws), seconds


def start(
    env: Environment,
    clock: Clock,
    stop: Stop,
    seconds: jax.Array,
    other: jax.Array,
    decision: Decision,
) -> tuple[Clock, jax.Array]:
    """Let some start computations of `seconds`; who was cancelled and does not waits."""
    of, at, starts = clock.of, clock.at, stop.start
    waits = stop.cancel & ~starts
    late = (of.phase == HELD) & decision.commit  # the update that it waited for has come
    idle = jnp.where(waits | (other & late), BLOCKED, of.phase)
    queues, due = env.transport.depart_others(clock, stop, seconds)
    times, minima = blocked_minima.blocked(due)
    of = Counts(
        step=of.step + starts,
        read=jnp.where(starts, clock.version, of.read),
        slot=jnp.where(starts, clock.head, of.slot),
        phase=jnp.where(starts, COMPUTING, idle),
    )
    at = at._replace(
        seconds=seconds,
        since=jnp.where(starts | waits, clock.now, at.since),
        since_low=jnp.where(starts | waits, 0.0, at.since_low),
        due_low=jnp.where(starts, 0.0, at.due_low),
    )
    counts, spans = COUNTS.join(of), SPANS.join(at)
    clock = clock._replace(due=times, links=queues, counts=counts, spans=spans)
    return more_readers(clock, jnp.sum(starts, dtype=jnp.int32)), minima


def more_readers(clock: Clock, more: jax.Array) -> Clock:
    """Count `more` computations that read the newest version."""
    readers = clock.readers[clock.head] + more
    return clock._replace(
        readers=clock.readers.at[clock.head].set(readers),
        free=bitset.set_bit(clock.free, clock.head, readers == 0),
    )


def _like(mask: jax.Array, leaf: jax.Array) -> jax.Array:
    return lax.expand_dims(mask, range(1, leaf.ndim))
