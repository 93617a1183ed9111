"""What workers do after they have delivered, in runs without a trace: see `stream`.

A form keeps what it needs in `Stream.form`. At each arrival `deliver` says whether the deliverer
waits, then `others` starts or stops other workers: in a branch that all lanes share, since most
arrivals do not need it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dtjax.clock.fast.workers import IDLE, Fields, Stream, Workers, begun, lasted
from dtjax.core import blocked_minima, branches


class Event(NamedTuple):
    """One arrival."""

    worker: jax.Array  # i[]
    step: jax.Array  # i[] of the computation that it does next, so many has it completed
    drawn: jax.Array  # f[] seconds that this takes
    real: jax.Array  # b[] false where the run is over
    commit: jax.Array  # b[] whether the server updates
    newest: jax.Array  # i[] version after that
    bound: Any  # i[] of the policy, or None


class Free:
    """Nobody waits and nobody is stopped: ASP, k-batch-ASP."""

    swept = False

    def begin(self, present: jax.Array, drawn: jax.Array) -> Any:
        """Return what the form keeps, at second 0."""
        del present, drawn
        return ()

    def deliver(self, kept: Any, event: Event) -> tuple[Any, jax.Array | None]:
        """Return what it keeps, and whether the deliverer waits; None: never."""
        del event
        return kept, None

    def others(self, machine: Any, at: Stream, event: Event) -> Stream:
        """Start and stop others than the deliverer."""
        del machine, event
        return at

    def flush(self, kept: Any) -> tuple[Any, tuple[jax.Array | None, jax.Array | None]]:
        """Return what it keeps, and the seconds waited and stopped since last asked, f[n]."""
        return kept, (None, None)

    def stopped(self, kept: Any) -> Any:
        """Return how many computations of each worker were stopped."""
        del kept
        return 0


class Waits(NamedTuple):
    """What "held" keeps."""

    seconds: jax.Array  # f[n] length of this computation or, for who waits, of the next
    waited: jax.Array  # f[n] seconds of waits that are over


class Held(Free):
    """Who has delivered waits for the update: k-ASP."""

    swept = True

    def begin(self, present: jax.Array, drawn: jax.Array) -> Any:
        """See `Free`."""
        del present
        return Waits(drawn, jnp.zeros_like(drawn))

    def deliver(self, kept: Any, event: Event) -> tuple[Any, jax.Array | None]:
        """See `Free`."""
        return _draws(kept, event), ~event.commit

    def others(self, machine: Any, at: Stream, event: Event) -> Stream:
        """See `Free`."""
        return branches.when(event.commit, lambda at: _release(at, event.commit, event.newest), at)

    def flush(self, kept: Any) -> tuple[Any, tuple[jax.Array | None, jax.Array | None]]:
        """See `Free`."""
        return kept._replace(waited=jnp.zeros_like(kept.waited)), (kept.waited, None)


class Levels(NamedTuple):
    """What "bounded" keeps."""

    seconds: jax.Array  # f[n] as in `Waits`
    waited: jax.Array  # f[n] as in `Waits`
    slowest: jax.Array  # i[] least number of completed computations
    slow: jax.Array  # i[] workers that have completed no more


class Bounded(Held):
    """Nobody is more than `bound` computations ahead of the slowest: SSP."""

    def begin(self, present: jax.Array, drawn: jax.Array) -> Any:
        """See `Free`."""
        there = jnp.sum(present, dtype=jnp.int32)
        return Levels(drawn, jnp.zeros_like(drawn), jnp.int32(0), there)

    def deliver(self, kept: Any, event: Event) -> tuple[Any, jax.Array | None]:
        """See `Free`."""
        slow = kept.slow - (event.real & (event.step - 1 == kept.slowest))
        slowest = kept.slowest + (slow == 0)
        kept = _draws(kept._replace(slowest=slowest, slow=slow), event)
        return kept, event.step - slowest > event.bound

    def others(self, machine: Any, at: Stream, event: Event) -> Stream:
        """See `Free`: who waits is `bound` + 1 ahead, and starts when the slowest moves."""
        moved = at.form.slow == 0

        def release(at: Stream) -> Stream:
            level = machine.present & (at.workers.columns().step - 1 == at.form.slowest)
            slow = jnp.where(moved, jnp.sum(level, dtype=jnp.int32), at.form.slow)
            at = at._replace(form=at.form._replace(slow=slow))
            return _release(at, moved, event.newest)

        return branches.when(moved, release, at)


class Stops(NamedTuple):
    """What "cancelled" keeps."""

    seconds: jax.Array  # f[n] of stopped computations
    count: jax.Array  # i[n] stopped computations


class Cancelled(Free):
    """An update stops all other work, and everybody starts anew: k-batch-BSP."""

    swept = True

    def begin(self, present: jax.Array, drawn: jax.Array) -> Any:
        """See `Free`."""
        return Stops(jnp.zeros_like(drawn), jnp.zeros(present.shape, jnp.int32))

    def others(self, machine: Any, at: Stream, event: Event) -> Stream:
        """See `Free`."""
        other = jnp.arange(machine.n, dtype=jnp.int32) != event.worker
        stop = event.commit & other & machine.present

        def keep(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(lax.expand_dims(stop, range(1, new.ndim)), new, old)

        def restart(at: Stream) -> Stream:
            of, kept = at.workers.columns(), at.form
            states, drawn = machine.draw(at.delay, of.step)
            due, minima = blocked_minima.blocked(keep(at.now + drawn, at.due[: machine.n]))
            read, since = keep(event.newest, of.read), keep(begun(at.now), of.since)
            lost = jnp.where(stop, lasted(at), 0.0)
            return at._replace(
                due=due,
                minima=minima,
                workers=Workers.of(Fields(of.step + stop, read, since), swept=True),
                form=Stops(kept.seconds + lost, kept.count + stop),
                delay=jax.tree.map(keep, states, at.delay),
            )

        return branches.when(event.commit, restart, at)

    def flush(self, kept: Any) -> tuple[Any, tuple[jax.Array | None, jax.Array | None]]:
        """See `Free`."""
        return kept._replace(seconds=jnp.zeros_like(kept.seconds)), (None, kept.seconds)

    def stopped(self, kept: Any) -> Any:
        """See `Free`."""
        return kept.count


def _draws(kept: Any, event: Event) -> Any:
    """Keep the deliverer's next time, in case it waits."""
    seconds = jnp.where(event.real, event.drawn, kept.seconds[event.worker])
    return kept._replace(seconds=kept.seconds.at[event.worker].set(seconds))


def _release(at: Stream, flag: jax.Array, newest: jax.Array) -> Stream:
    """Start all who wait, where the flag is set."""
    of, kept = at.workers.columns(), at.form
    go = flag & (of.read == IDLE)
    n = go.shape[0]
    due, minima = blocked_minima.blocked(jnp.where(go, at.now + kept.seconds, at.due[:n]))
    read, since = jnp.where(go, newest, of.read), jnp.where(go, begun(at.now), of.since)
    waited = kept.waited + jnp.where(go, lasted(at), 0.0)
    return at._replace(
        due=due,
        minima=minima,
        workers=Workers.of(Fields(of.step, read, since), swept=True),
        form=kept._replace(waited=waited),
    )


FORMS = {"free": Free(), "held": Held(), "bounded": Bounded(), "cancelled": Cancelled()}
"""By the names that policies use for them: see `types.Policy`."""
