"""`arrive`: one gradient reaches the server. The only place where schedules are decided."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dtjax.clock.environment import Environment
from dtjax.clock.intervene import intervene, more_readers
from dtjax.clock.rebase import rebase
from dtjax.clock.state import COUNTS, SPANS, Clock, Counts, Pair, Spans, absolute
from dtjax.clock.trace import Transit
from dtjax.clock.transport.form import Coming, Cycle, Event
from dtjax.cluster.delays.law import clocked
from dtjax.core import bitset, blocked_minima, compensated, random
from dtjax.core.protocols import COMPUTING, Decision, View
from dtjax.core.protocols import Event as Asked
from dtjax.core.random import Worker


class Record(NamedTuple):
    """What one arrival leaves for the trace."""

    names: jax.Array  # i[4] worker, step, version, slot
    times: jax.Array  # f[2] seconds since the last update, seconds computed; for a trace with a
    # network f[5] to f[7]: and those of `Transit` that there are, since the last update
    dt: jax.Array  # f[] seconds since the last update, of the effect
    use: jax.Array  # b[]
    commit: jax.Array  # b[]
    row: jax.Array  # i[] version before
    column: jax.Array  # i[] pending before
    into: jax.Array  # i[] slot of the newest version after
    going: jax.Array  # b[] whether anything happened


class Gradient(NamedTuple):
    """The next event: whose gradient, and what its worker did."""

    coming: Coming
    step: jax.Array  # i[] of the worker's next computation
    version: jax.Array  # i[] that it read
    slot: jax.Array  # i[] where that version is kept
    spent: jax.Array  # f[] seconds computed
    computed: Pair  # f[] seconds of its computations delivered before
    since: Pair  # f[] when its cycle began


class Verdict(NamedTuple):
    """What is decided on a gradient."""

    view: View
    asked: Asked
    decision: Decision  # nothing, unless it is delivered
    state: Any  # the policy's, if it is delivered
    effect: jax.Array  # f[] when the server is done with it
    event: Event  # whether it is delivered or gets ready
    worker: jax.Array  # i[] whose is delivered; n, where writes are dropped: nobody's


def arrive(
    env: Environment, carry: tuple[Clock, jax.Array]
) -> tuple[tuple[Clock, jax.Array], Record]:
    """Take the next arrival, unless the run is over: then nothing changes.

    Where gradients may overtake each other on a network, take the next that gets ready or arrives.

    Args:
        env: the machines, the policy, and the end.
        carry: the clock, whose `due` is padded to whole blocks, and the blocks' minima.

    Returns:
        The carry and what to write down.
    """
    before, minima = carry
    gradient = next_event(env, before, minima)
    verdict = decide(env, before, gradient)
    delivered = deliver(env, before, gradient, verdict)
    committed = commit(delivered, verdict)
    clock, minima, passed = restart(env, committed, minima, gradient, verdict)
    record = note(env, delivered, clock, gradient, verdict, passed)
    clock, minima = intervene(env, clock, minima, verdict.view, verdict.asked, verdict.decision)
    return rebase(env, clock, minima, record.going), record


def next_event(env: Environment, clock: Clock, minima: jax.Array) -> Gradient:
    """Find the next event, and look up its worker."""
    coming = env.transport.next_event(clock, minima)
    step, version, slot = COUNTS.first(clock.counts, coming.worker, 3)
    spent, computed, computed_low, since, since_low = SPANS.first(clock.spans, coming.worker, 5)
    return Gradient(
        coming, step, version, slot, spent, (computed, computed_low), (since, since_low)
    )


def decide(env: Environment, clock: Clock, gradient: Gradient) -> Verdict:
    """Ask the policy: what it says decides how long the server takes."""
    coming, n = gradient.coming, clock.readers.shape[0]
    delivered = jnp.arange(n, dtype=jnp.int32) == coming.worker
    view = View(clock.version, clock.pending, env.present, clock.phase, clock.done + delivered)
    asked = Asked(jnp.minimum(coming.worker, n - 1), clock.version - gradient.version)
    state, decision = env.policy.decide(clock.policy, view, asked)
    effect, horizon = env.transport.effect(clock, coming, decision.commit), env.horizon(clock)
    running = clock.version < env.limit
    alive = running & coming.arrives & jnp.isfinite(effect) & (effect <= horizon)
    ready = running & coming.ready & (coming.due <= horizon)
    decision = Decision(
        decision.use & alive, decision.commit & alive, decision.phase, decision.sweep & alive
    )
    worker = jnp.where(alive, coming.worker, n)
    return Verdict(view, asked, decision, state, effect, Event(coming, alive, ready), worker)


def deliver(env: Environment, clock: Clock, gradient: Gradient, verdict: Verdict) -> Clock:
    """Let the gradient reach the server: its worker reads its version no more."""
    alive, n = verdict.event.alive, clock.readers.shape[0]
    readers = clock.readers[gradient.slot] - 1
    here = jnp.where(alive, gradient.slot, n)
    tally = clock.tally
    if getattr(env.policy, "discards", True):
        thrown = jnp.where(verdict.decision.use, n, verdict.worker)
        tally = tally._replace(
            discarded=_add(tally.discarded, thrown, gradient.spent),
            discarded_count=tally.discarded_count.at[thrown].add(1, mode="drop"),
        )
    return clock._replace(
        now=jnp.where(alive, verdict.effect, clock.now),
        readers=clock.readers.at[here].set(readers, mode="drop"),
        free=bitset.add_bit(clock.free, gradient.slot, alive & (readers == 0)),
        policy=jax.tree.map(
            lambda new, old: jnp.where(alive, new, old), verdict.state, clock.policy
        ),
        tally=tally,
    )


def commit(clock: Clock, verdict: Verdict) -> Clock:
    """Let the server update, or keep the gradient for an update.

    A slot without readers takes the new version. At most n - 1 computations are under way, so there
    is one.
    """
    use, made = verdict.decision.use, verdict.decision.commit
    return clock._replace(
        head=jnp.where(made, bitset.least_bit(clock.free), clock.head),
        version=clock.version + made,
        pending=jnp.where(made, 0, clock.pending + use),
        updated=(
            jnp.where(made, clock.now, clock.updated[0]),
            jnp.where(made, 0.0, clock.updated[1]),
        ),
    )


def draw(env: Environment, clock: Clock, gradient: Gradient) -> tuple[Any, jax.Array]:
    """Draw how long the worker's next computation takes: the law's state, and seconds f[]."""
    worker = gradient.coming.worker
    # Its key is derived again: looked up, it would keep the compiler from vectorising the draw.
    own = random.fold(random.plain(clock.key), worker)
    mine = jax.tree.map(lambda leaf: leaf[worker], clock.delay)
    drawer = Worker(worker, own, env.workers.world[0])
    state, drawn = env.delay.draw(mine, drawer, gradient.step, absolute(clock))
    return state, blocked_minima.known(drawn.astype(gradient.spent.dtype))


def restart(
    env: Environment, clock: Clock, minima: jax.Array, gradient: Gradient, verdict: Verdict
) -> tuple[Clock, jax.Array, Transit | None]:
    """Let the worker start again or wait; return also how its gradient came.

    Its next time is drawn now, and kept if it waits; only a law that looks at the clock must be
    drawn when the computation starts.
    """
    n, decision, step = clock.readers.shape[0], verdict.decision, gradient.step
    starts = verdict.event.alive & (decision.phase == COMPUTING)
    state, drawn = draw(env, clock, gradient)
    seconds, spent = env.transport.encoded(drawn), gradient.spent
    begun = (clock.now - gradient.since[0]) - gradient.since[1]
    missed = clock.version - gradient.version
    cycle = Cycle(spent, begun, step, missed, seconds, starts, decision.sweep)
    clock, ends, passed = env.transport.depart(clock, verdict.event, cycle)
    ends = jnp.where(starts, ends, jnp.inf)
    due, minima = env.transport.schedule(clock, minima, verdict.event, ends)
    none = jnp.zeros_like(seconds)
    computed = compensated.two_sum(*gradient.computed, spent)
    span = Spans(seconds, *computed, clock.now, none, none)
    mine = Counts(
        step=step + starts,
        read=jnp.where(starts, clock.version, gradient.version),
        slot=jnp.where(starts, clock.head, gradient.slot),
        phase=decision.phase,
    )
    keep = jnp.where(starts, verdict.worker, n) if clocked(env.delay) else verdict.worker
    clock = clock._replace(
        due=due,
        counts=COUNTS.put(clock.counts, verdict.worker, mine),
        spans=SPANS.put(clock.spans, verdict.worker, span),
        delay=jax.tree.map(lambda all_, x: all_.at[keep].set(x, mode="drop"), clock.delay, state),
    )
    return more_readers(clock, starts.astype(jnp.int32)), minima, passed


def note(
    env: Environment,
    before: Clock,
    clock: Clock,
    gradient: Gradient,
    verdict: Verdict,
    passed: Transit | None,
) -> Record:
    """Write the event down; `before`: the clock after the delivery, before the update."""
    coming, alive, ready = verdict.event
    updated = before.updated
    # After an arrival that is no more than that (`alive` false) now is not the arrival's time.
    age = (jnp.where(alive, coming.arrival, clock.now) - updated[0]) - updated[1]
    more, dt = env.transport.ages(updated, age, passed)
    return Record(
        names=jnp.stack([coming.worker, gradient.step - 1, gradient.version, gradient.slot]),
        times=jnp.stack([age, gradient.spent, *more]),
        dt=dt,
        use=verdict.decision.use,
        commit=verdict.decision.commit,
        row=before.version,
        column=before.pending,
        into=clock.head,
        going=alive | ready,
    )


def _add(pair: Pair, index: jax.Array, x: jax.Array) -> Pair:
    """Add x to one entry of f[n] pairs; index n adds nothing."""
    high, low = compensated.two_sum(pair[0][index], pair[1][index], x)
    return pair[0].at[index].set(high, mode="drop"), pair[1].at[index].set(low, mode="drop")
