"""Several numbers a worker in one table, f[C n], field after field.

One look-up and one write a worker, while a field of all the workers is one contiguous slice.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def column(table: jax.Array, n: int, index: jax.Array, fields: int) -> jax.Array:
    """Return one worker's numbers in the first fields."""
    return table[index + n * jnp.arange(fields, dtype=jnp.int32)]


def put_column(table: jax.Array, n: int, index: jax.Array, values: jax.Array) -> jax.Array:
    """Set the C numbers of one worker; index n sets nothing."""
    places = index + n * jnp.arange(table.shape[0] // n, dtype=jnp.int32)
    return table.at[jnp.where(index < n, places, table.shape[0])].set(values, mode="drop")
