"""No network: a gradient is at the server when it is computed, and bytes cost nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dtjax.clock.state import Clock, Pair
from dtjax.clock.transport.form import Coming, Cycle, Event, Fates, Place, Stop
from dtjax.core import blocked_minima


class Instant:
    """The transport of a cluster without a network: see `form.Transport`."""

    columns: tuple[str, ...] = ()

    def events(self, arrivals: int, n: int) -> int:
        """Each is one event."""
        del n
        return arrivals

    def start(self, clock: Clock, present: jax.Array) -> Clock:
        """Everybody computes already."""
        del present
        return clock

    def encoded(self, seconds: jax.Array) -> jax.Array:
        """Nothing is encoded."""
        return seconds

    def next_event(self, clock: Clock, minima: jax.Array) -> Coming:
        """Return the earliest computation to end: it is an arrival."""
        due, *found = blocked_minima.least(clock.due, minima)
        place = Place(*found)
        worker = place.which * place.block.shape[0] + place.inside
        arrives = jnp.bool_(True)  # if that time is finite, as an effect's must be
        return Coming(due, place, worker, arrives, jnp.bool_(False), due, None)

    def effect(self, clock: Clock, coming: Coming, commit: jax.Array) -> jax.Array:
        """The server takes no time."""
        del clock, commit
        return coming.arrival

    def depart(self, clock: Clock, event: Event, cycle: Cycle) -> tuple[Clock, jax.Array, None]:
        """The next computation begins now."""
        del event
        return clock, clock.now + cycle.seconds, None

    def schedule(
        self, clock: Clock, minima: jax.Array, event: Event, ends: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """The end of the next computation takes the place of the last one's."""
        return blocked_minima.replace(clock.due, minima, *event.coming.place, ends, event.alive)

    def ages(self, updated: Pair, age: jax.Array, passed: Any) -> tuple[list[jax.Array], jax.Array]:
        """The arrival is the effect."""
        del updated, passed
        return [], age

    def transit(self, columns: jax.Array, dt: jax.Array) -> None:
        """There is no way."""
        del columns, dt

    def in_flight(self, clock: Clock, waited: Pair) -> Fates:
        """Everybody who is busy computes."""
        nothing = jnp.zeros_like(clock.now, shape=clock.readers.shape)
        begun = jnp.where(clock.busy, clock.begun, 0.0)
        return Fates(begun, waited, (nothing, nothing), nothing)

    def drop(self, clock: Clock, cancel: jax.Array, busy: jax.Array) -> tuple[jax.Array, None]:
        """All the time since a cycle began was computing."""
        del cancel, busy
        return clock.begun, None

    def depart_others(self, clock: Clock, stop: Stop, seconds: jax.Array) -> tuple[None, jax.Array]:
        """They compute from now on."""
        rest = jnp.where(stop.cancel, jnp.inf, clock.due[: seconds.shape[0]])
        return None, jnp.where(stop.start, clock.now + seconds, rest)

    def shift(self, clock: Clock, due: jax.Array, shift: jax.Array) -> tuple[None, jax.Array]:
        """There are no queues."""
        del clock, shift
        return None, due

    def goes_on(self, going: jax.Array, happened: jax.Array) -> jax.Array:
        """What is due says it."""
        del happened
        return going
