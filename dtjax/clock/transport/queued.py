"""What the transports over a network share: pulls, links, the server, and the accounts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import jax
import jax.numpy as jnp

from dtjax.clock.state import COUNTS, Clock, Pair
from dtjax.clock.trace import Transit
from dtjax.clock.transport import cycles, links
from dtjax.clock.transport.cycles import Sending
from dtjax.clock.transport.form import Coming, Cycle, Event, Fates, Stop
from dtjax.clock.transport.links import Links, Sent
from dtjax.core import compensated
from dtjax.core.protocols import ABSENT, NEVER, Network
from dtjax.core.worker_table import Layout


class Queued(ABC):
    """A transport over a network: see `form.Transport`. Subclasses say what an event is."""

    layout: Layout
    """Of `Links.wire`."""

    def __init__(self, network: Network, *, traced: bool) -> None:
        """Prepare; `traced`: a trace is kept."""
        self.network = network
        self.pulls, self.private = links.stages(network)
        there = (True, True, True, self.pulls, self.private)
        names = zip(Transit._fields, there, strict=True)
        self.columns = tuple(name for name, kept in names if kept and traced)

    @abstractmethod
    def events(self, arrivals: int, n: int) -> int:
        """Return how many events so many arrivals take at most."""

    @abstractmethod
    def schedule(
        self, clock: Clock, minima: jax.Array, event: Event, ends: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return the times that are due and their minima, after an event."""

    @abstractmethod
    def idle(self, n: int, dtype: Any) -> Any:
        """Return the fields of `layout` before the first cycle."""

    @abstractmethod
    def next_event(self, clock: Clock, minima: jax.Array) -> Coming:
        """Return the next event."""

    @abstractmethod
    def carry(self, clock: Clock, event: Event, times: links.Wire) -> Links:
        """Write down a delivery or what is sent, on the ingresses and in `wire`."""

    @abstractmethod
    def since(self, clock: Clock, coming: Coming, cycle: Cycle, before: jax.Array) -> jax.Array:
        """Return when a gradient that is delivered got ready, which took `before` seconds."""

    @abstractmethod
    def sending(self, clock: Clock) -> Sending:
        """Return what is on its way, as far as events have put it there."""

    @abstractmethod
    def stopped(self, times: Any, cancel: jax.Array) -> Any:
        """Take what is cancelled from the fields of `layout`."""

    @abstractmethod
    def due(self, clock: Clock, ready: jax.Array, cancel: jax.Array) -> jax.Array:
        """Return all the times that are due, where gradients get ready at f[n]."""

    def times(self, clock: Clock) -> Any:
        """Return the fields of `layout` of all the workers."""
        return self.layout.columns(clock.links.wire)

    def start(self, clock: Clock, present: jax.Array) -> Clock:
        """Let everybody pull version 0 before it computes."""
        n, seconds = present.shape[0], clock.at.seconds
        times = self.idle(n, seconds.dtype)
        clock = clock._replace(links=links.idle(self.network.servers, self.layout, times))
        missed, none = jnp.full(n, NEVER, jnp.int32), jnp.zeros(n, jnp.int32)
        queues, pull, own = self._pull_all(clock, present, none, missed)
        ready = jnp.where(present, clock.now + pull + seconds + own, jnp.inf)
        return clock._replace(links=queues, due=ready)

    def encoded(self, seconds: jax.Array) -> jax.Array:
        """A worker computes, and then encodes."""
        return seconds + self.network.encode

    def effect(self, clock: Clock, coming: Coming, commit: jax.Array) -> jax.Array:
        """The server takes one gradient at a time."""
        effect = jnp.maximum(coming.arrival, clock.links.server) + self.network.fold
        return effect + jnp.where(commit, self.network.apply, 0.0)

    def sent(self, clock: Clock, worker: jax.Array, due: jax.Array) -> Sent:
        """Say what becomes of a worker's gradient that gets ready."""
        step = COUNTS.number(clock.counts, "step", worker) - 1
        origin = clock.origin[0] + clock.origin[1]
        return links.send(self.network, clock.links.free, worker, step, due, origin)

    def depart(self, clock: Clock, event: Event, cycle: Cycle) -> tuple[Clock, jax.Array, Transit]:
        """Account a delivery and let its worker pull anew, or send what got ready."""
        coming, now, way = event.coming, clock.now, event.coming.way
        worker = jnp.minimum(coming.worker, clock.readers.shape[0] - 1)
        wire, step = way.times, cycle.step
        link, after = (links.own_link(self.network, worker, step - ago, now) for ago in (1, 0))
        since = self.since(clock, coming, cycle, cycle.spent + link)
        spoken = wire.pull + (link + way.moving)
        talked = compensated.two_sum(wire.talked, wire.talked_low, spoken)
        egress, pull = self._pull(clock, worker, cycle)
        queues = self.carry(clock, event, links.Wire(pull, *talked))._replace(
            egress=egress, server=jnp.where(event.alive, now, clock.links.server)
        )
        passed = Transit(
            ready=since,
            effect=now,
            moving=way.moving,
            pull=wire.pull if self.pulls else None,
            private=link if self.private else None,
        )
        return clock._replace(links=queues), now + pull + cycle.seconds + after, passed

    def _pull(self, clock: Clock, worker: jax.Array, cycle: Cycle) -> tuple[jax.Array, jax.Array]:
        """Let one worker pull; return when the egress is free, and how long it takes.

        Where others may start too, a shared egress is given out by `depart_others`.
        """
        network, queues, now = self.network, clock.links, clock.now
        seconds = network.pull_seconds(worker, cycle.missed)
        if seconds is None:
            return queues.egress, jnp.zeros_like(now)
        seconds, late = compensated.rounded(seconds), network.pull_latency_seconds(worker)
        egress, (pull,) = links.pulls(
            network, queues, seconds[None], late[None], cycle.starts[None], now
        )
        if network.shared_egress:
            egress = jnp.where(cycle.others, queues.egress, egress)
            pull = jnp.where(cycle.others, seconds + late, pull)
        return egress, pull

    def _pull_all(
        self,
        clock: Clock,
        start: jax.Array,
        step: jax.Array,
        missed: jax.Array,
        own: jax.Array | None = None,
    ) -> tuple[Links, jax.Array, jax.Array]:
        """Let several workers pull.

        Args:
            clock: the state.
            start: b[n], who pulls.
            step: i[n], of the cycle that begins.
            missed: i[n], updates since the version that each has.
            own: b[n], the worker that has just delivered and pulls already, where the egress is
                shared: it takes its turn among the others.

        Returns:
            The queues, the pulls and the workers' own links, f[n].
        """
        network, queues, now = self.network, clock.links, clock.now
        workers = jnp.arange(start.shape[0], dtype=jnp.int32)
        before = self.times(clock).pull
        seconds = jax.vmap(network.pull_seconds)(workers, missed)
        if seconds is None:
            nothing = jnp.zeros_like(before)
            return queues, nothing, links.own_links(network, workers, step, nothing)
        seconds = compensated.rounded(seconds)
        late = jax.vmap(network.pull_latency_seconds)(workers)
        if own is not None:
            seconds = jnp.where(own, before - late, seconds)
            start = start | own
        egress, pull = links.pulls(network, queues, seconds, late, start, now)
        if own is not None:  # it has counted its new step already
            step = step - own
        wire = self.layout.put_column(queues.wire, "pull", jnp.where(start, pull, before))
        queues = queues._replace(egress=egress, wire=wire)
        return queues, pull, links.own_links(network, workers, step, pull)

    def depart_others(
        self, clock: Clock, stop: Stop, seconds: jax.Array
    ) -> tuple[Links, jax.Array]:
        """Let several workers pull and compute; take out what was stopped."""
        of, again, own = clock.of, stop.start, None
        if self.network.shared_egress:
            own = stop.deliverer
            again = again | own
        missed = clock.version - of.read
        queues, pull, link = self._pull_all(clock, stop.start, of.step, missed, own)
        rest = jnp.where(stop.cancel, jnp.inf, clock.due[: seconds.shape[0]])
        ready = jnp.where(again, clock.now + pull + seconds + link, rest)
        return queues, self.due(clock, ready, stop.cancel)

    def ages(self, updated: Pair, age: jax.Array, passed: Any) -> tuple[list[jax.Array], jax.Array]:
        """The effect is later than the arrival."""
        del age
        ready, effect = ((time - updated[0]) - updated[1] for time in (passed.ready, passed.effect))
        passed = passed._replace(ready=ready, effect=effect)
        return [getattr(passed, name) for name in self.columns], effect

    def transit(self, columns: jax.Array, dt: jax.Array) -> Transit:
        """Name the columns; what is since the last update becomes what is before the next."""
        found = {name: columns[..., c] for c, name in enumerate(self.columns)}
        return Transit(
            ready=dt[:, None] - found["ready"],
            effect=dt[:, None] - found["effect"],
            moving=found["moving"],
            pull=found.get("pull"),
            private=found.get("private"),
        )

    def in_flight(self, clock: Clock, waited: Pair) -> Fates:
        """Divide the cycles under way; what nothing else accounts for was queueing."""
        times = self.times(clock)
        part = cycles.spent(self.network, clock, times.pull, self.sending(clock))
        talked = compensated.two_sum(times.talked, times.talked_low, part.talked)
        queued = cycles.rest(clock, waited, talked, part.computed)
        if self.network.collective:  # the last worker waits for its end, the others for the last
            nothing = jnp.zeros_like(queued)
            together = jnp.where(clock.phase != ABSENT, jnp.sum(queued), 0.0)
            waited = jnp.maximum(waited[0] + queued - together, 0.0), nothing
            talked, queued = (talked[0] + together, nothing), nothing
        return Fates(part.computed, waited, talked, queued)

    def drop(self, clock: Clock, cancel: jax.Array, busy: jax.Array) -> tuple[jax.Array, Links]:
        """Account what is stopped, and free the links if none of the `busy` go on."""
        queues, now = clock.links, clock.now
        times = self.times(clock)
        part = cycles.spent(self.network, clock, times.pull, self.sending(clock))
        stopped = jnp.where(cancel, part.talked, 0.0)
        talked = compensated.two_sum(times.talked, times.talked_low, stopped)
        times = self.stopped(times._replace(talked=talked[0], talked_low=talked[1]), cancel)
        idle = jnp.any(cancel) & ~jnp.any(busy & ~cancel)
        queues = queues._replace(
            free=jnp.where(idle, jnp.minimum(queues.free, now), queues.free),
            egress=jnp.where(idle, jnp.minimum(queues.egress, now), queues.egress),
            wire=self.layout.join(times),
        )
        return part.computed, queues

    def shift(self, clock: Clock, due: jax.Array, shift: jax.Array) -> tuple[Links, jax.Array]:
        """Move the links."""
        queues = clock.links
        queues = queues._replace(
            free=queues.free - shift, egress=queues.egress - shift, server=queues.server - shift
        )
        return queues, due

    def goes_on(self, going: jax.Array, happened: jax.Array) -> jax.Array:
        """What is ready in time may have its effect too late."""
        del going
        return happened
