"""What every form of a transport answers; the kernel asks nothing else about a network."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax

from dtjax.clock.state import Clock, Pair
from dtjax.clock.trace import Transit


class Place(NamedTuple):
    """Where a time lies among those that are due: see `dtjax.core.blocked_minima.least`."""

    which: jax.Array  # i[] block
    inside: jax.Array  # i[] place in it
    block: jax.Array  # f[W] its times


class Coming(NamedTuple):
    """The next event."""

    due: jax.Array  # f[] when it is
    place: Place
    worker: jax.Array  # i[] n or more: there is none
    arrives: jax.Array  # b[] its gradient arrives
    ready: jax.Array  # b[] its gradient gets ready, and arrives in an event of its own
    arrival: jax.Array  # f[] when its gradient reaches the server
    way: Any  # what the transport knows of its way


class Cycle(NamedTuple):
    """What a delivering worker did, and does next."""

    spent: jax.Array  # f[] seconds computed
    begun: jax.Array  # f[] seconds since its pull began
    step: jax.Array  # i[] of its next cycle
    missed: jax.Array  # i[] updates since the version that it has
    seconds: jax.Array  # f[] computing in its next cycle
    starts: jax.Array  # b[] it starts again
    others: jax.Array  # b[] others may start or be cancelled too


class Event(NamedTuple):
    """What the next event turned out to be."""

    coming: Coming
    alive: jax.Array  # b[] the gradient is delivered; false: nothing is
    ready: jax.Array  # b[] it gets ready


class Stop(NamedTuple):
    """Who is stopped, and who starts anew, b[n] each."""

    cancel: jax.Array
    start: jax.Array
    deliverer: jax.Array  # who has just delivered, if it computes again


class Fates(NamedTuple):
    """The seconds of the workers that depend on the transport, f[n] or pairs of them."""

    computed: jax.Array  # in cycles under way
    waited: Pair
    talked: Pair
    queued: jax.Array


class Transport(Protocol):
    """How gradients come to the server. A form is made for one network, of static structure."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of `Transit` that a trace keeps, in the order of `Record.times`."""
        ...

    def events(self, arrivals: int, n: int) -> int:
        """Return how many events so many arrivals take at most."""
        ...

    def start(self, clock: Clock, present: jax.Array) -> Clock:
        """Let everybody who is present begin its first cycle."""
        ...

    def encoded(self, seconds: jax.Array) -> jax.Array:
        """Return how long a worker is busy that computes for `seconds`."""
        ...

    def next_event(self, clock: Clock, minima: jax.Array) -> Coming:
        """Return the next event; the clock's `due` is padded to whole blocks."""
        ...

    def effect(self, clock: Clock, coming: Coming, commit: jax.Array) -> jax.Array:
        """Return when the server is done with the gradient, f[]; `commit`: it updates then."""
        ...

    def depart(
        self, clock: Clock, event: Event, cycle: Cycle
    ) -> tuple[Clock, jax.Array, Transit | None]:
        """Account a delivery and let its worker begin its next cycle, or send what got ready.

        Returns:
            The clock with its queues; when the next cycle's gradient is ready, f[]; and of the
            cycle that is over its `Transit`, `ready` and `effect` relative to the origin.
        """
        ...

    def schedule(
        self, clock: Clock, minima: jax.Array, event: Event, ends: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return the times that are due and their minima, after an event."""
        ...

    def ages(self, updated: Pair, age: jax.Array, passed: Any) -> tuple[list[jax.Array], jax.Array]:
        """Return the `columns` of a gradient, and its effect's seconds since the last update.

        Args:
            updated: when the last update before it was.
            age: f[], the arrival's seconds since then.
            passed: as `depart` returns it.
        """
        ...

    def transit(self, columns: jax.Array, dt: jax.Array) -> Transit | None:
        """Return what a trace says of the ways, from f[T, K, C] and the rows' seconds f[T]."""
        ...

    def in_flight(self, clock: Clock, waited: Pair) -> Fates:
        """Return the seconds up to now that depend on the transport."""
        ...

    def drop(self, clock: Clock, cancel: jax.Array, busy: jax.Array) -> tuple[jax.Array, Any]:
        """Stop some of the `busy` cycles, b[n].

        Returns:
            The seconds that the cycles under way had computed, f[n], and the queues.
        """
        ...

    def depart_others(self, clock: Clock, stop: Stop, seconds: jax.Array) -> tuple[Any, jax.Array]:
        """Let several workers begin a cycle of `seconds` f[n]; take out what was stopped.

        Returns:
            The queues, and all the times that are due, without padding.
        """
        ...

    def shift(self, clock: Clock, due: jax.Array, shift: jax.Array) -> tuple[Any, jax.Array]:
        """Move the origin of the queues by `shift`; `due` f[n] has been moved.

        Returns:
            The queues, and all the times that are due, without padding.
        """
        ...

    def goes_on(self, going: jax.Array, happened: jax.Array) -> jax.Array:
        """Return whether a run may go on whose last event has `happened`, or not."""
        ...
