"""What a policy, a delay law, a network and an encoder must offer, and what they are told.

Sizes: `n` workers, `K` widest update (static), `T` updates. Kernels are written for one run;
callers `vmap`, which puts further axes in front of every array.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax

# What a worker is doing: the values of `Clock.phase`.
ABSENT, COMPUTING, HELD, BLOCKED = -1, 0, 1, 2
"""No such worker; in a cycle; waits for the next update; waits for slower workers."""

NEVER = 2**30
"""The updates that a worker has missed which has not pulled yet: more than any number of them."""


class View(NamedTuple):
    """What a policy sees at an arrival, after the arrival has been counted."""

    version: jax.Array  # i[] updates applied so far
    pending: jax.Array  # i[] gradients delivered and waiting for the next update
    present: jax.Array  # i[] workers that take part
    phase: jax.Array  # i[n]
    done: jax.Array  # i[n] completed computations; the largest integer for absent workers


class Event(NamedTuple):
    """One gradient reaches the server."""

    worker: jax.Array  # i[]
    staleness: jax.Array  # i[] updates applied since its version was read


class Decision(NamedTuple):
    """What a policy answers to an arrival."""

    use: jax.Array  # b[] the gradient goes into the next update (otherwise it is discarded)
    commit: jax.Array  # b[] the server updates now
    phase: jax.Array  # i[] the deliverer starts again (COMPUTING) or waits (HELD, BLOCKED)
    sweep: jax.Array  # b[] others may start or be cancelled now: `sweep` is asked


class Policy(Protocol):
    """A synchronisation policy. `dtjax.policies.Rule` is one; so is any object with these methods.

    S is any pytree of arrays, the same structure and types at every arrival.

    A policy whose every k-th arrival is an update may say so by a property `form`, and then has
    `k` (None: all the workers) and, if bounded, `bound`; it may then take a fast path. The forms:
    "free" (nobody waits), "held" (who has delivered waits for the update), "cancelled" (an update
    stops all other work), "bounded" (nobody is more than `bound` computations ahead of the
    slowest), "rounds" (held and cancelled, or all the workers deliver). None: none of these.
    """

    def init(self, n: int) -> Any:
        """Return the state S before the first arrival."""
        ...

    def width(self, n: int) -> int:
        """Return the largest number of gradients in one update, a Python integer."""
        ...

    def decide(self, state: Any, view: View, event: Event) -> tuple[Any, Decision]:
        """Decide on one arrival."""
        ...

    def sweep(
        self, state: Any, view: View, event: Event, decision: Decision
    ) -> tuple[jax.Array, jax.Array]:
        """Return (cancel b[n], start b[n]): whose work is stopped, and who starts now.

        Asked only where `decision.sweep`; the deliverer's own entry is ignored. With a network stop
        the work of all the others or of none: what half of a queue does is not defined.
        """
        ...


class Network(Protocol):
    """Links and server: how long things last. `dtjax.network.Network` is one; so is any pytree.

    See `dtjax.network.Network` for what its properties and numbers mean.
    """

    @property
    def servers(self) -> int:
        """How many ingresses there are, S."""
        ...

    @property
    def ordered(self) -> bool:
        """Whether gradients arrive in the order in which they got ready."""
        ...

    @property
    def shared_egress(self) -> bool:
        """Whether pulls wait for each other at the server."""
        ...

    @property
    def collective(self) -> bool:
        """Whether `apply` is an all-reduce, in which all the workers communicate."""
        ...

    @property
    def encode(self) -> jax.Array:
        """The seconds in which a worker compresses, f[]."""
        ...

    @property
    def fold(self) -> jax.Array:
        """The server's seconds for each gradient, f[]."""
        ...

    @property
    def apply(self) -> jax.Array:
        """The server's seconds for each update, f[]."""
        ...

    def push_seconds(self, worker: jax.Array, step: jax.Array, begin: jax.Array) -> jax.Array:
        """Return how long each shard occupies its ingress, f[S], if it begins at f[S] seconds."""
        ...

    def private_seconds(self, worker: jax.Array, step: jax.Array) -> jax.Array | None:
        """Return how long the worker's own link takes, f[]; None if there is none."""
        ...

    def latency_seconds(self, worker: jax.Array) -> jax.Array:
        """Return how long a shard is in the air after it was sent, f[]."""
        ...

    def pull_seconds(self, worker: jax.Array, missed: jax.Array) -> jax.Array | None:
        """Return how long the transfer of a pull takes that `missed` so many updates, f[].

        `NEVER`: it has not pulled yet. None, whatever the arguments: pulls are free.
        """
        ...

    def pull_latency_seconds(self, worker: jax.Array) -> jax.Array:
        """Return how long a pull takes besides its transfer, f[]."""
        ...


class Delay(Protocol):
    """A compute-time law. S is any pytree of arrays; memoryless laws have none: ()."""

    def init(self, worker: Any) -> Any:
        """Return the state S of one worker before its step 0."""
        ...

    def draw(
        self, state: Any, worker: Any, step: jax.Array, now: jax.Array
    ) -> tuple[Any, jax.Array]:
        """Return (S after this step, seconds f[]). NaN says: not in the table."""
        ...


class Extras(NamedTuple):
    """What an encoder may know of the gradient that it gets."""

    worker: jax.Array  # i[]
    step: jax.Array  # i[] the worker's own counter
    staleness: jax.Array  # i[]
    examples: jax.Array  # f[]
    key: jax.Array  # key[], of (worker, step)
    shared: jax.Array  # key[], of the step alone: the same for all workers


class Encoder(Protocol):
    """What a worker does to its gradient before it sends it. S is a worker's memory, any pytree.

    An encoder may also have `decode(average) -> average`, what the server does to an update's
    weighted average of messages.
    """

    def memory(self, params: Any) -> Any:
        """Return the memory S of one worker before its first gradient."""
        ...

    def encode(self, memory: Any, gradient: Any, extras: Extras) -> tuple[Any, Any]:
        """Return (S, message), the message a pytree like the gradient."""
        ...
