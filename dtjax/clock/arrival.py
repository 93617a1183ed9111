"""`arrive`: one gradient reaches the server. The only place where schedules are decided."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dtjax.clock import links
from dtjax.clock.intervene import REBASE, more_readers, rebase, sweep
from dtjax.clock.state import Clock, Counts, Pair, Spans, absolute
from dtjax.cluster.delays.law import clocked
from dtjax.core import bitset, blocked_minima, branches, compensated, random, worker_table
from dtjax.core.protocols import COMPUTING, Decision, Event, View
from dtjax.core.random import Worker


class Record(NamedTuple):
    """What one arrival leaves for the trace."""

    names: jax.Array  # i[4] worker, step, version, slot
    times: jax.Array  # f[2] seconds since the last update, seconds computed; for a trace with a
    # network f[5] to f[7]: and those of `types.Transit` that there are, since the last update
    dt: jax.Array  # f[] seconds since the last update, of the effect
    use: jax.Array  # b[]
    commit: jax.Array  # b[]
    row: jax.Array  # i[] version before
    column: jax.Array  # i[] pending before
    into: jax.Array  # i[] slot of the newest version after
    going: jax.Array  # b[] whether anything happened


def _add(pair: Pair, index: jax.Array, x: jax.Array) -> Pair:
    """Add x to one entry of f[n] pairs; index n adds nothing."""
    high, low = compensated.two_sum(pair[0][index], pair[1][index], x)
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

    Where gradients may overtake each other on a network, take the next that gets ready or arrives.

    Args:
        cluster: the machines.
        policy: who decides.
        workers: the run's workers, arrays with leading axis n.
        limit: i[], the version at which the run is over.
        until: f[], seconds since the run began; what is later than that does not happen.
        present: i[], how many workers take part.
        carry: the clock, whose `due` is padded to whole blocks, and the blocks' minima.

    Returns:
        The carry and what to write down.
    """
    clock, minima = carry
    network = cluster.network
    n = clock.readers.shape[0]
    due, which, inside, block = blocked_minima.least(clock.due, minima)
    first = which * block.shape[0] + inside
    arrival, coming, ready = due, None, jnp.bool_(False)
    horizon = (until - clock.origin[0]) - clock.origin[1]
    running = (clock.version < limit) & jnp.isfinite(due)
    if network is not None:
        coming = links.coming(network, clock, first, due)
        first, arrival = coming.worker, coming.arrival
        ready = coming.ready & running & (due <= horizon)
    step, version, slot = worker_table.column(clock.counts, n, first, 3)
    spent, computed, computed_low, since, since_low = worker_table.column(clock.spans, n, first, 5)

    # The policy is asked: what it says decides how long the server takes.
    delivered = jnp.arange(n, dtype=jnp.int32) == first
    view = View(clock.version, clock.pending, present, clock.of.phase, clock.done + delivered)
    event = Event(jnp.minimum(first, n - 1), clock.version - version)
    decided, decision = policy.decide(clock.policy, view, event)
    effect = arrival
    if coming is not None:
        effect = jnp.maximum(arrival, clock.links.server) + network.fold
        effect = effect + jnp.where(decision.commit, network.apply, 0.0)
        running = running & ~coming.ready & jnp.isfinite(effect)
    alive = running & (effect <= horizon)
    decision = Decision(
        decision.use & alive, decision.commit & alive, decision.phase, decision.sweep & alive
    )
    i = jnp.where(alive, first, n)  # writes to n are dropped

    # The worker delivers: it reads its version no more.
    readers = clock.readers[slot] - 1
    here = jnp.where(alive, slot, n)
    clock = clock._replace(
        now=jnp.where(alive, effect, clock.now),
        readers=clock.readers.at[here].set(readers, mode="drop"),
        free=bitset.add_bit(clock.free, slot, alive & (readers == 0)),
    )
    tally = clock.tally
    if getattr(policy, "discards", True):
        thrown = jnp.where(decision.use, n, i)
        tally = tally._replace(
            discarded=_add(tally.discarded, thrown, spent),
            discarded_count=tally.discarded_count.at[thrown].add(1, mode="drop"),
        )

    # The server updates: a slot without readers takes the new version. At most n - 1 computations
    # are under way, so there is one.
    commit = decision.commit
    before, updated = clock, clock.updated
    head = jnp.where(commit, bitset.least_bit(clock.free), clock.head)
    clock = clock._replace(
        policy=jax.tree.map(lambda new, old: jnp.where(alive, new, old), decided, clock.policy),
        tally=tally,
        head=head,
        version=clock.version + commit,
        pending=jnp.where(commit, 0, clock.pending + decision.use),
        updated=(
            jnp.where(commit, clock.now, updated[0]),
            jnp.where(commit, 0.0, updated[1]),
        ),
    )

    # The worker starts again or waits. Its next time is drawn now, and kept if it waits; only a law
    # that looks at the clock must be drawn when the computation starts.
    starts = alive & (decision.phase == COMPUTING)
    # Its key is derived again: looked up, it would keep the compiler from vectorising the draw.
    own = random.fold(random.plain(clock.key), first)
    worker = Worker(first, own, workers.world[0])
    state, drawn = cluster.delay.draw(_pick(clock.delay, first), worker, step, absolute(clock))
    drawn = blocked_minima.known(drawn.astype(spent.dtype))
    # After an arrival that is no more than that (`alive` false) now is not the arrival's time.
    age = (jnp.where(alive, arrival, clock.now) - updated[0]) - updated[1]
    times, dt, ends = [age, spent], age, clock.now
    if coming is not None:
        drawn = drawn + network.encode
        begun = (clock.now - since) - since_low
        cycle = links.Cycle(spent, begun, step, clock.version - version, starts)
        queues, pull, link, (at, *passed) = links.move(
            network, clock, coming, cycle, due, alive, ready, decision.sweep
        )
        clock = clock._replace(links=queues)
        dt = (clock.now - updated[0]) - updated[1]
        if clock.buffer.transit is not None:
            times += [(at - updated[0]) - updated[1], dt, *passed]
        ends = clock.now + pull + drawn + link
    else:
        ends = clock.now + drawn
    ends = jnp.where(starts, ends, jnp.inf)
    if network is None or network.ordered:
        due, minima = blocked_minima.replace(clock.due, minima, which, inside, block, ends, alive)
    else:  # of the two places of the worker, the one that was found is over
        happens, never = alive | ready, jnp.full_like(ends, jnp.inf)
        due, minima = blocked_minima.replace(
            clock.due, minima, which, inside, block, never, happens
        )
        place = jnp.where(ready, first + n, first)
        due, minima = blocked_minima.put(
            due, minima, place, jnp.where(ready, arrival, ends), happens
        )
    computed, computed_low = compensated.two_sum(computed, computed_low, spent)
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
        due=due,
        counts=worker_table.put_column(clock.counts, n, i, jnp.stack(mine)),
        spans=worker_table.put_column(clock.spans, n, i, jnp.stack(span)),
        delay=jax.tree.map(lambda all_, x: all_.at[keep].set(x, mode="drop"), clock.delay, state),
    )
    clock = more_readers(clock, starts.astype(jnp.int32))
    record = Record(
        names=jnp.stack([first, step - 1, version, slot]),
        times=jnp.stack(times),
        dt=dt,
        use=decision.use,
        commit=commit,
        row=before.version,
        column=before.pending,
        into=head,
        going=alive | ready,
    )

    def others(state: tuple[Clock, jax.Array]) -> tuple[Clock, jax.Array]:
        clock, _ = state
        return sweep(cluster, policy, workers, clock, view, event, decision)

    clock, minima = branches.when(decision.sweep, others, (clock, minima))
    clock = clock._replace(ticks=clock.ticks + record.going)
    clock, minima = branches.when(clock.ticks >= max(REBASE, n), rebase, (clock, minima))
    return (clock, minima), record
