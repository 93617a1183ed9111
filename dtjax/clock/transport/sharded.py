"""Gradients may overtake each other: getting ready and arriving are two events.

A worker has two places among the times that are due: when it gets ready, n before when it arrives,
so that the smallest place decides ties as the semantics do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dtjax.clock.state import Clock
from dtjax.clock.transport.cycles import Sending
from dtjax.clock.transport.form import Coming, Cycle, Event, Place
from dtjax.clock.transport.links import Links, Sent, Shards, Wire, moving
from dtjax.clock.transport.queued import Queued
from dtjax.core import blocked_minima, compensated
from dtjax.core.protocols import Network
from dtjax.core.worker_table import Layout


class Way(NamedTuple):
    """The way of the gradient that comes next."""

    times: Shards  # of its worker alone
    moving: jax.Array  # f[] seconds for which a shard of it was on its way, once it arrives
    sent: Sent  # once it gets ready


class Sharded(Queued):
    """The transport over a network whose `ordered` is not set."""

    def __init__(self, network: Network, *, traced: bool) -> None:
        """Prepare: the table has two times a shard."""
        super().__init__(network, traced=traced)
        self.layout = Layout(Shards, {"begin": network.servers, "end": network.servers})

    def events(self, arrivals: int, n: int) -> int:
        """An arrival has two, and n gradients may be ready at the end."""
        return 2 * arrivals + n

    def idle(self, n: int, dtype: Any) -> Shards:
        """Nobody has communicated, and nothing is on its way."""
        nothing = jnp.zeros(n, dtype)
        never = jnp.full((self.network.servers, n), jnp.inf, dtype)
        return Shards(nothing, nothing, nothing, never, never, nothing)

    def start(self, clock: Clock, present: jax.Array) -> Clock:
        """Nobody is ready, so nobody arrives."""
        clock = super().start(clock, present)
        never = jnp.full_like(clock.due, jnp.inf)
        return clock._replace(due=jnp.concatenate([clock.due, never]))

    def next_event(self, clock: Clock, minima: jax.Array) -> Coming:
        """Return the earliest gradient to get ready or to arrive."""
        n = clock.readers.shape[0]
        due, *found = blocked_minima.least(clock.due, minima)
        place = Place(*found)
        where = place.which * place.block.shape[0] + place.inside
        ready, finite = where < n, jnp.isfinite(due)
        worker = jnp.where(ready, where, where - n)
        known = jnp.minimum(worker, n - 1)
        sent = self.sent(clock, known, due)
        times = self.layout.row(clock.links.wire, known)
        arrival = jnp.where(ready, jnp.max(sent.end), due)
        way = Way(times, moving(times.begin, times.end, due), sent)
        return Coming(due, place, worker, ~ready & finite, ready & finite, arrival, way)

    def since(self, clock: Clock, coming: Coming, cycle: Cycle, before: jax.Array) -> jax.Array:
        """It got ready after its pull and `before`."""
        return clock.now - (cycle.begun - coming.way.times.pull - before)

    def carry(self, clock: Clock, event: Event, times: Wire) -> Links:
        """A delivery counts; shards that are sent occupy the ingresses."""
        queues, alive, ready, way = clock.links, event.alive, event.ready, event.coming.way
        here = jnp.where(alive | ready, event.coming.worker, clock.readers.shape[0])
        old = Wire(way.times.pull, way.times.talked, way.times.talked_low)
        kept = jax.tree.map(lambda new, old: jnp.where(alive, new, old), times, old)
        begin, end = (jnp.where(ready, x, jnp.inf) for x in (way.sent.begin, way.sent.end))
        fields = Shards(*kept, begin, end, jnp.zeros_like(clock.now))
        return queues._replace(
            free=jnp.where(ready, way.sent.free, queues.free),
            wire=self.layout.put(queues.wire, here, fields),
        )

    def schedule(
        self, clock: Clock, minima: jax.Array, event: Event, ends: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Of the two places of the worker, the one that was found is over."""
        n, coming, happens = clock.readers.shape[0], event.coming, event.alive | event.ready
        never = jnp.full_like(ends, jnp.inf)
        due, minima = blocked_minima.replace(clock.due, minima, *coming.place, never, happens)
        place = jnp.where(event.ready, coming.worker + n, coming.worker)
        time = jnp.where(event.ready, coming.arrival, ends)
        return blocked_minima.put(due, minima, place, time, happens)

    def sending(self, clock: Clock) -> Sending:
        """What has got ready was sent."""
        times = self.times(clock)
        return Sending(times.begin, times.end)

    def stopped(self, times: Shards, cancel: jax.Array) -> Shards:
        """What is on its way is lost."""
        begin, end = (jnp.where(cancel[None], jnp.inf, x) for x in (times.begin, times.end))
        return times._replace(begin=begin, end=end)

    def due(self, clock: Clock, ready: jax.Array, cancel: jax.Array) -> jax.Array:
        """What is cancelled will not arrive."""
        n = ready.shape[0]
        return jnp.concatenate([ready, jnp.where(cancel, jnp.inf, clock.due[n : 2 * n])])

    def shift(self, clock: Clock, due: jax.Array, shift: jax.Array) -> tuple[Links, jax.Array]:
        """Move the links, and what is on its way."""
        n = due.shape[0]
        queues, _ = super().shift(clock, due, shift)
        times = self.layout.columns(queues.wire)
        arrivals, low = compensated.two_sum(clock.due[n : 2 * n], times.low, -shift)
        times = times._replace(begin=times.begin - shift, end=times.end - shift, low=low)
        return queues._replace(wire=self.layout.join(times)), jnp.concatenate([due, arrivals])
