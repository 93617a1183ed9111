"""A set of n small numbers as bits, with its least member in O(n / 32) steps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def bits_of(members: jax.Array) -> jax.Array:
    """Pack b[n] into u32[ceil(n / 32)]."""
    padded = jnp.pad(members, (0, -members.shape[0] % 32)).reshape(-1, 32)
    weights = jnp.uint32(1) << jnp.arange(32, dtype=jnp.uint32)
    return jnp.sum(jnp.where(padded, weights, jnp.uint32(0)), axis=1, dtype=jnp.uint32)


def set_bit(words: jax.Array, member: jax.Array, value: jax.Array) -> jax.Array:
    """Put `member` into the set or take it out."""
    here = jnp.arange(words.shape[0], dtype=jnp.int32) == member // 32
    mask = jnp.where(here, jnp.uint32(1) << (member % 32).astype(jnp.uint32), jnp.uint32(0))
    return jnp.where(value, words | mask, words & ~mask)


def add_bit(words: jax.Array, member: jax.Array, flag: jax.Array) -> jax.Array:
    """Put `member` into the set where the flag is set; else leave the set as it is."""
    here = (jnp.arange(words.shape[0], dtype=jnp.int32) == member // 32) & flag
    mask = jnp.where(here, jnp.uint32(1) << (member % 32).astype(jnp.uint32), jnp.uint32(0))
    return words | mask


def least_bit(words: jax.Array) -> jax.Array:
    """Return the least member of the set, which must not be empty."""
    index = jnp.arange(words.shape[0], dtype=jnp.int32)
    inside = lax.population_count((words & -words) - jnp.uint32(1)).astype(jnp.int32)
    members = jnp.where(words != 0, index * 32 + inside, jnp.iinfo(jnp.int32).max)
    return jnp.min(members)
