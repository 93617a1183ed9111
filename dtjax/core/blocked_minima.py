"""The earliest of n times in O(sqrt n) steps: the times in blocks, and each block's minimum."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax


def known(seconds: jax.Array) -> jax.Array:
    """Return the seconds, but minus infinity for NaN, which says that a table does not hold them.

    Then they are the least of all times. Minima of NaN are not to be relied on: compiled for many
    lanes on CPU, they may drop it.
    """
    return jnp.where(jnp.isnan(seconds), -jnp.inf, seconds)


def block(n: int) -> int:
    """Return the width of a block: the power of two next to sqrt n."""
    return 2 ** max(round(math.log2(math.sqrt(n))), 0)


def blocked(times: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return times f[n] padded with infinity to whole blocks, f[B W], and their minima f[B]."""
    width = block(times.shape[0])
    padded = jnp.pad(times, (0, -times.shape[0] % width), constant_values=jnp.inf)
    return padded, jnp.min(padded.reshape(-1, width), axis=1)


def _first(values: jax.Array, least: jax.Array) -> jax.Array:
    index = jnp.arange(values.shape[0], dtype=jnp.int32)
    return jnp.min(jnp.where(values == least, index, values.shape[0] - 1))


def least(times: jax.Array, minima: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return the least time, its block, its place in the block (the first), and the block's times.

    Not `argmin`, which is scalar code on CPU under `vmap`; nor a mask of equal times, which would
    make two workers arrive at once where their times tie. No time may be NaN: see `known`.
    """
    width = times.shape[0] // minima.shape[0]
    value = jnp.min(minima)
    which = _first(minima, value)
    row = lax.dynamic_slice(times, (which * width,), (width,))
    return value, which, _first(row, value), row


def replace(
    times: jax.Array,
    minima: jax.Array,
    which: jax.Array,
    inside: jax.Array,
    row: jax.Array,
    value: jax.Array,
    flag: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Set the time that `least` found, where the flag is set."""
    width = row.shape[0]
    inside = jnp.where(flag, inside, width)
    row = jnp.where(jnp.arange(width, dtype=jnp.int32) == inside, value, row)
    here = jnp.arange(minima.shape[0], dtype=jnp.int32) == which
    times = lax.dynamic_update_slice(times, row, (which * width,))
    return times, jnp.where(here, jnp.min(row), minima)


def put(
    times: jax.Array, minima: jax.Array, index: jax.Array, value: jax.Array, flag: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Set the time at an index, where the flag is set."""
    width = times.shape[0] // minima.shape[0]
    which = jnp.minimum(index // width, minima.shape[0] - 1)
    row = lax.dynamic_slice(times, (which * width,), (width,))
    return replace(times, minima, which, index - which * width, row, value, flag)
