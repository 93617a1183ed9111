"""Rows of a trace under construction: arrivals scattered to where they belong."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dtjax.clock.arrival import Record
from dtjax.clock.state import Buffer, Clock
from dtjax.clock.trace import Trace
from dtjax.clock.transport.form import Transport


class Table(NamedTuple):
    """The entries so far, flat: entry (t, j) is at t K + j; one row to spare for the buffer."""

    names: jax.Array  # i[(T + 1) K, 4] worker, step, version, slot
    times: jax.Array  # f[(T + 1) K, 2..7] as `Record.times`
    dt: jax.Array  # f[T]
    into: jax.Array  # i[T]


def begin(clock: Clock, rows: int) -> Table:
    """Start with what is in the buffer."""
    names, times = clock.buffer.names, clock.buffer.times
    width = names.shape[0]
    return Table(
        jnp.full(((rows + 1) * width, 4), -1, jnp.int32).at[:width].set(names),
        jnp.zeros(((rows + 1) * width, times.shape[1]), times.dtype).at[:width].set(times),
        jnp.zeros(rows, times.dtype),
        jnp.full(rows, clock.head, jnp.int32),
    )


def write(table: Table, record: Record, first: jax.Array, width: int) -> Table:
    """Write some arrivals down; `first` is the version before the first row."""
    row = record.row - first
    entry = jnp.where(record.use, row * width + record.column, table.names.shape[0])
    made = jnp.where(record.commit, row, table.dt.shape[0])
    return Table(
        table.names.at[entry].set(record.names, mode="drop"),
        table.times.at[entry].set(record.times, mode="drop"),
        table.dt.at[made].set(record.dt, mode="drop"),
        table.into.at[made].set(record.into, mode="drop"),
    )


def finish(
    table: Table,
    cluster: Any,
    transport: Transport,
    first: jax.Array,
    made: jax.Array,
    fresh: bool,
) -> tuple[Trace, Buffer]:
    """Make the trace of the first `made` rows, and the buffer from the row after them.

    Where gradients are always `fresh`, computed at the newest version, that one alone is kept.
    """
    names, times, dt, into = table
    rows = dt.shape[0]
    width = names.shape[0] // (rows + 1)
    rest = lax.dynamic_slice_in_dim(names, made * width, width)
    ages = lax.dynamic_slice_in_dim(times, made * width, width)
    names = names[:-width].reshape(rows, width, 4)
    times = times[:-width].reshape(rows, width, -1)
    valid = (names[..., 0] >= 0) & (jnp.arange(rows) < made)[:, None]

    def entries(values: jax.Array) -> jax.Array:
        return jnp.where(valid, values, 0)

    worker = entries(names[..., 0])
    ways = transport.transit(times[..., 2:], dt)
    trace = Trace(
        dt=dt,
        worker=worker,
        step=entries(names[..., 1]),
        version=entries(names[..., 2]),
        examples=jnp.where(valid, cluster.examples[worker], 0.0),
        arrival=entries(dt[:, None] - times[..., 0]),
        compute=entries(times[..., 1]),
        slot=jnp.zeros_like(worker) if fresh else entries(names[..., 3]),
        into=jnp.zeros_like(into) if fresh else into,
        start=first,
        transit=jax.tree.map(entries, ways),
        workers=cluster.n,
        slots=1 if fresh else cluster.n,
    )
    return trace, Buffer.of(rest, ages)
