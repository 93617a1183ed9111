"""The state of a schedule between two arrivals."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dtjax.core.protocols import ABSENT, COMPUTING
from dtjax.core.worker_table import Layout

Pair = tuple[jax.Array, jax.Array]  # a number as (high, low): twice the digits of the float type


class Buffer(NamedTuple):
    """The gradients that wait for the next update, in order of arrival; `pending` of K are used."""

    worker: jax.Array  # i[K]
    step: jax.Array  # i[K]
    version: jax.Array  # i[K]
    slot: jax.Array  # i[K]
    age: jax.Array  # f[K] seconds from the last update to the arrival
    compute: jax.Array  # f[K] seconds computed
    transit: jax.Array | None  # f[K, 3..5] as in `Record.times`; None: nothing of the kind is kept

    @classmethod
    def of(cls, names: jax.Array, times: jax.Array) -> Buffer:
        """Return what `names` and `times` of some records hold."""
        transit = times[:, 2:] if times.shape[1] > 2 else None
        return cls(*names.T, times[:, 0], times[:, 1], transit)

    @property
    def names(self) -> jax.Array:
        """As `Record.names`, i[K, 4]."""
        return jnp.stack([self.worker, self.step, self.version, self.slot], axis=1)

    @property
    def times(self) -> jax.Array:
        """As `Record.times`, f[K, 2..7]."""
        times = jnp.stack([self.age, self.compute], axis=1)
        return times if self.transit is None else jnp.concatenate([times, self.transit], axis=1)


class Counts(NamedTuple):
    """The integers of a worker, in the order of their fields in `Clock.counts`."""

    step: jax.Array  # computations started
    read: jax.Array  # version read by the computation
    slot: jax.Array  # where that version is kept
    phase: jax.Array  # COMPUTING (or pulling or pushing), HELD, BLOCKED or ABSENT


class Spans(NamedTuple):
    """The times of a worker, in the order of their fields in `Clock.spans`."""

    seconds: jax.Array  # length of this computation or, for who waits, of the next; with encoding
    computed: jax.Array  # seconds of its delivered computations
    computed_low: jax.Array  # what `computed` loses by rounding
    since: jax.Array  # when the worker began this computation, or to wait
    since_low: jax.Array  # what `since` lost by rounding when the origin moved
    due_low: jax.Array  # what `due` did


COUNTS, SPANS = Layout(Counts), Layout(Spans)
"""How `Clock.counts` and `Clock.spans` hold them."""


class Tally(NamedTuple):
    """Sums that the accounts are made of, besides `Spans.computed`."""

    discarded: Pair  # f[n] seconds of computations thrown away at arrival
    cancelled: Pair  # f[n] seconds of stopped computations
    waited: Pair  # f[n] seconds of waits that are over
    discarded_count: jax.Array  # i[n] computations thrown away at arrival
    cancelled_count: jax.Array  # i[n] computations stopped


class Clock(NamedTuple):
    """The state of a schedule between two arrivals: arrays only, so that it can be saved.

    Times are relative to `origin`. What an arrival changes of its worker lies in two tables, so
    that it costs one look-up and one write each.
    """

    due: jax.Array  # f[n] when a gradient is ready; f[2 n], then when it arrives, if that differs
    counts: jax.Array  # i[4 n] the workers' integers: see `Counts`
    spans: jax.Array  # f[6 n] the workers' times: see `Spans`
    readers: jax.Array  # i[n] computations under way on each slot's version
    free: jax.Array  # u32[ceil(n / 32)] the slots without readers, as bits
    head: jax.Array  # i[] slot of the newest version
    version: jax.Array  # i[] updates so far
    pending: jax.Array  # i[] gradients in the buffer
    buffer: Buffer  # as of the end of the last chunk; inside a chunk, in its rows
    now: jax.Array  # f[]
    updated: Pair  # f[] when the last update was
    origin: Pair  # f[] seconds since the run began
    ticks: jax.Array  # i[] arrivals since the origin moved
    delay: Any  # the law's state, leading axis n
    policy: Any  # the policy's state
    tally: Tally
    links: Any  # what the transport keeps: `transport.links.Links`; None without a network
    key: jax.Array  # u32[...] key data of the run: `resume` goes on with the same virtual tables

    @property
    def done(self) -> jax.Array:
        """Completed computations, i[n]; the largest integer for absent workers."""
        of = self.of
        done = of.step - self.tally.cancelled_count - (of.phase == COMPUTING)
        return jnp.where(of.phase == ABSENT, jnp.iinfo(jnp.int32).max, done)

    @property
    def of(self) -> Counts:
        """The workers' integers, each i[n]."""
        return COUNTS.columns(self.counts)

    @property
    def at(self) -> Spans:
        """The workers' times, each f[n]."""
        return SPANS.columns(self.spans)

    @property
    def phase(self) -> jax.Array:
        """What each worker is doing, i[n]."""
        return COUNTS.column(self.counts, "phase")

    @property
    def busy(self) -> jax.Array:
        """Who is in a cycle, b[n]."""
        return self.phase == COMPUTING

    @property
    def begun(self) -> jax.Array:
        """For how long each worker has been computing or waiting, f[n] seconds."""
        since, low = (SPANS.column(self.spans, name) for name in ("since", "since_low"))
        return (self.now - since) - low


def absolute(clock: Clock) -> jax.Array:
    """Return the seconds since the run began, rounded to the float type."""
    return clock.origin[0] + (clock.origin[1] + clock.now)
