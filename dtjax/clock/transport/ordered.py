"""Gradients arrive in the order in which they got ready: one event a gradient is enough.

The whole way through the ingress and the server is known when a gradient gets ready, because
whoever is before it has been.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dtjax.clock.state import Clock
from dtjax.clock.transport.cycles import Sending
from dtjax.clock.transport.form import Coming, Cycle, Event, Place
from dtjax.clock.transport.links import Links, Sent, Wire, moving
from dtjax.clock.transport.queued import Queued
from dtjax.core import blocked_minima
from dtjax.core.worker_table import Layout


class Way(NamedTuple):
    """The way of the gradient that comes next."""

    times: Wire  # of its worker alone
    moving: jax.Array  # f[] seconds for which a shard of it was on its way
    sent: Sent


class Ordered(Queued):
    """The transport over a network whose `ordered` is set."""

    layout = Layout(Wire)

    def events(self, arrivals: int, n: int) -> int:
        """Each is one event."""
        del n
        return arrivals

    def idle(self, n: int, dtype: Any) -> Wire:
        """Nobody has communicated."""
        return Wire(*(3 * [jnp.zeros(n, dtype)]))

    def next_event(self, clock: Clock, minima: jax.Array) -> Coming:
        """Return the earliest gradient to get ready, as it arrives."""
        due, *found = blocked_minima.least(clock.due, minima)
        place = Place(*found)
        worker = place.which * place.block.shape[0] + place.inside
        known = jnp.minimum(worker, clock.readers.shape[0] - 1)
        sent = self.sent(clock, known, due)
        arrival = jnp.max(sent.end)
        times = self.layout.row(clock.links.wire, known)
        way = Way(times, moving(sent.begin, sent.end, arrival), sent)
        return Coming(due, place, worker, jnp.isfinite(due), jnp.bool_(False), arrival, way)

    def since(self, clock: Clock, coming: Coming, cycle: Cycle, before: jax.Array) -> jax.Array:
        """It is due when it is ready."""
        del clock, cycle, before
        return coming.due

    def carry(self, clock: Clock, event: Event, times: Wire) -> Links:
        """Its shards occupy the ingresses."""
        queues = clock.links
        here = jnp.where(event.alive, event.coming.worker, clock.readers.shape[0])
        return queues._replace(
            free=jnp.where(event.alive, event.coming.way.sent.free, queues.free),
            wire=self.layout.put(queues.wire, here, times),
        )

    def schedule(
        self, clock: Clock, minima: jax.Array, event: Event, ends: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """The next cycle takes the place of the last."""
        return blocked_minima.replace(clock.due, minima, *event.coming.place, ends, event.alive)

    def sending(self, clock: Clock) -> Sending:
        """Nothing is known before it arrives."""
        ready = clock.due[: clock.readers.shape[0]]
        never = jnp.full((self.network.servers, ready.shape[0]), jnp.inf, ready.dtype)
        return Sending(never, never)

    def stopped(self, times: Wire, cancel: jax.Array) -> Wire:
        """What is on its way is not written down."""
        del cancel
        return times

    def due(self, clock: Clock, ready: jax.Array, cancel: jax.Array) -> jax.Array:
        """A worker is due once."""
        del clock, cancel
        return ready
