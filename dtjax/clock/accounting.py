"""Where the seconds went: every worker's time, by fate."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dtjax.clock.state import Clock, absolute
from dtjax.clock.transport.form import Transport
from dtjax.core import checks, compensated
from dtjax.core.protocols import ABSENT
from dtjax.core.pytree import pytree

FATES = ("useful", "discarded", "cancelled", "in_flight", "waiting", "communicating", "queueing")
"""What a second of a worker can be; they add up."""

COUNTS = ("useful_count", "discarded_count", "cancelled_count")
"""What a computation can be that is over, in the same words."""


@pytree
@dataclass(frozen=True)
class Accounts:
    """The seconds of each worker from 0 to `elapsed`: the seven fates add up to it.

    Each is measured, but for queueing, which is what the others leave.

    Batches of runs have leading axes.
    """

    useful: jax.Array  # f[n] computing gradients that are in an update
    discarded: jax.Array  # f[n] computing gradients that were thrown away at arrival
    cancelled: jax.Array  # f[n] computing what an update stopped
    in_flight: jax.Array  # f[n] computing what has none of these fates yet
    waiting: jax.Array  # f[n] idle by the policy's decision
    communicating: jax.Array  # f[n] pulling or pushing
    queueing: jax.Array  # f[n] computed, and nothing of it moving
    started: jax.Array  # i[n] computations started
    useful_count: jax.Array  # i[n] gradients in an update
    discarded_count: jax.Array  # i[n] computations whose gradient was discarded
    cancelled_count: jax.Array  # i[n] computations cancelled
    buffered: jax.Array  # i[] gradients that wait for the next update
    updates: jax.Array  # i[] updates made
    elapsed: jax.Array  # f[] seconds since the run began

    @property
    def total(self) -> jax.Array:
        """f[] worker-seconds: n x elapsed."""
        first, *others = (getattr(self, fate) for fate in FATES)
        return jnp.sum(sum(others, first), axis=-1)

    def share(self, fate: str) -> jax.Array:
        """Return a fate's share of all worker-seconds, f[]; `fate` is one of `FATES`."""
        checks.choice("share", "fate", fate, FATES)
        return jnp.sum(getattr(self, fate), axis=-1) / self.total

    @property
    def utilisation(self) -> jax.Array:
        """f[] useful seconds as a share of n x elapsed."""
        return self.share("useful")

    @property
    def gradients_per_second(self) -> jax.Array:
        """f[] gradients used a second."""
        return jnp.sum(self.useful_count, axis=-1) / self.elapsed

    @property
    def updates_per_second(self) -> jax.Array:
        """f[] updates a second."""
        return self.updates / self.elapsed

    @property
    def cancelled_share(self) -> jax.Array:
        """f[] computations cancelled, as a share of those started."""
        return jnp.sum(self.cancelled_count, axis=-1) / jnp.sum(self.started, axis=-1)

    @property
    def coverage(self) -> jax.Array:
        """f[n] each worker's share of the used gradients: whose data the model has seen."""
        return self.useful_count / jnp.maximum(
            jnp.sum(self.useful_count, axis=-1, keepdims=True), 1
        )


def settle(clock: Clock, transport: Transport) -> Accounts:
    """Make the accounts of a clock, up to its `now`."""
    n = clock.readers.shape[0]
    of, at, tally = clock.of, clock.at, clock.tally
    present = of.phase != ABSENT
    waits = jnp.where(present & ~clock.busy, clock.begun, 0.0)
    fates = transport.in_flight(clock, compensated.two_sum(*tally.waited, waits))
    nothing = jnp.zeros_like(fates.computed)

    buffer = clock.buffer
    order = jnp.arange(buffer.worker.shape[0], dtype=jnp.int32)
    owner = jnp.where(order < clock.pending, buffer.worker, n)
    held = nothing.at[owner].add(buffer.compute, mode="drop")
    kept = jnp.zeros(n, jnp.int32).at[owner].add(1, mode="drop")

    used = compensated.two_sum(at.computed, at.computed_low, -tally.discarded[0])
    used = compensated.two_sum(*used, -tally.discarded[1])
    used = compensated.two_sum(*used, -held)
    return Accounts(
        useful=used[0],
        discarded=tally.discarded[0],
        cancelled=tally.cancelled[0],
        in_flight=fates.computed + held,
        waiting=fates.waited[0],
        communicating=fates.talked[0],
        queueing=fates.queued,
        started=of.step,
        useful_count=jnp.where(present, clock.done - tally.discarded_count - kept, 0),
        discarded_count=tally.discarded_count,
        cancelled_count=tally.cancelled_count,
        buffered=clock.pending,
        updates=clock.version,
        elapsed=absolute(clock),
    )
