"""The state of a run without a trace: see `stream`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dtjax.clock.state import Pair

IDLE = -1
"""In place of the version read: the worker waits."""


class Fields(NamedTuple):
    """What is kept of a worker besides the end of its computation."""

    step: jax.Array  # i[] times drawn
    read: jax.Array  # i[] version read; IDLE while the worker waits
    since: jax.Array  # f[] when the worker began to compute or to wait


class Workers(NamedTuple):
    """The fields of all workers: the columns of a table of bits, or arrays of their own.

    One look-up and one write of a row cost little more than those of one number; a branch that
    changes all the workers is faster on arrays.
    """

    table: Any  # i[n, 3], or None
    fields: Any  # `Fields`, each [n], or None

    @classmethod
    def of(cls, fields: Fields, swept: bool) -> Workers:
        """Lay out fields of leading axis n, as arrays if branches sweep over them."""
        return cls(None, fields) if swept else cls(_bits(fields), None)

    def columns(self) -> Fields:
        """Return each field, [n]."""
        return _numbers(self.table) if self.fields is None else self.fields

    def row(self, index: jax.Array) -> Fields:
        """Return the fields of one worker."""
        if self.table is not None:
            return _numbers(self.table[index])
        return Fields(*(column[index] for column in self.fields))

    def put(self, index: jax.Array, new: Fields, old: Fields, flag: jax.Array) -> Workers:
        """Set the fields of one worker, where the flag is set; else they stay `old`."""
        new = Fields(*(jnp.where(flag, x, y) for x, y in zip(new, old, strict=True)))
        if self.fields is None:
            row = _bits(new)[None]
            return Workers(
                lax.dynamic_update_slice(self.table, row, (index, jnp.zeros_like(index))), None
            )
        pairs = zip(self.fields, new, strict=True)
        return Workers(None, Fields(*(column.at[index].set(x) for column, x in pairs)))


def _bits(fields: Fields) -> jax.Array:
    width = jnp.dtype(f"int{8 * fields.since.dtype.itemsize}")
    since = lax.bitcast_convert_type(fields.since, width)
    return jnp.stack([fields.step.astype(width), fields.read.astype(width), since], axis=-1)


def _numbers(bits: jax.Array) -> Fields:
    dtype = jnp.zeros((), float).dtype
    since = lax.bitcast_convert_type(bits[..., 2], dtype)
    return Fields(bits[..., 0].astype(jnp.int32), bits[..., 1].astype(jnp.int32), since)


class Stream(NamedTuple):
    """The state between two arrivals; times are relative to the origin."""

    due: jax.Array  # f[blocks] when the computation ends; infinite while there is none
    minima: jax.Array  # f[B] of the blocks of `due`
    low: jax.Array  # f[n] what `due` lost by rounding when the origin moved
    since_low: jax.Array  # f[n] what `since` did, of those who began before it moved last
    workers: Workers
    form: Any  # what the policy's form keeps
    delay: Any  # the law's state, leading axis n
    now: jax.Array  # f[]
    updated: Pair  # f[] when the last update was


def begun(now: jax.Array) -> jax.Array:
    """Return the time at which something begins now, for `Fields.since`.

    It is above 0, so that when the origin moves it shows who has begun since it moved last.
    """
    return jnp.maximum(now, jnp.finfo(now.dtype).tiny)


def kept_low(at: Stream) -> jax.Array:
    """Return what `since` lost by rounding, f[n]: nothing if that began after the last move."""
    return jnp.where(at.workers.columns().since > 0, 0.0, at.since_low)


def lasted(at: Stream) -> jax.Array:
    """Return for how long each worker has been computing or waiting, f[n]."""
    return jnp.maximum((at.now - at.workers.columns().since) - kept_low(at), 0.0)
