"""The largest entries of a vector, found without sorting."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dtjax.core import branches

SLICES = 16
"""Vectors are reduced in so many slices, put together first: on CPU one sum or maximum over all the
entries runs at half or a third of the speed."""


def magnitudes(x: jax.Array) -> jax.Array:
    """Return integers in the order of the magnitudes of an array, i[d], NaN above infinity."""
    size = jnp.abs(x.astype(jnp.promote_types(x.dtype, jnp.float32))).reshape(-1)
    return lax.bitcast_convert_type(size, jnp.dtype(f"int{8 * size.dtype.itemsize}"))


def all_finite(x: jax.Array) -> jax.Array:
    """Whether every entry is finite, b[]."""
    infinite = magnitudes(jnp.asarray(jnp.inf, x.dtype))[0]
    return _maximum(magnitudes(x)) < infinite


def _maximum(bits: jax.Array) -> jax.Array:
    """Return the largest of integers, none below 0; -1 of none."""
    padded = jnp.pad(bits, (0, -bits.size % SLICES), constant_values=-1)
    return jnp.max(functools.reduce(jnp.maximum, jnp.split(padded, SLICES)), initial=-1)


@jax.jit  # so that outside of kernels its loops are compiled once, not at every call
def largest(x: jax.Array, k: Any) -> jax.Array:
    """Mark the k entries of largest magnitude of a vector, the first ones where they tie.

    NaN is larger than infinity. Sorting is slow on CPU under `vmap`; here the level above which k
    entries are is found by halving: magnitudes as integers have the order of the numbers. All lanes
    share one loop, which ends when each has such a level, after 31 turns at most.

    Args:
        x: f[d].
        k: i[] between 1 and d, traced or not.

    Returns:
        b[d], with exactly k set.

    Example:
        >>> largest(jnp.array([1.0, -3.0, 2.0, -2.0]), 2).tolist()
        [False, True, True, False]
    """
    bits, k = magnitudes(x), jnp.asarray(k, jnp.int32)
    low, high, many, few = _search(bits, k)
    # What is above `low` is `many` entries; where that is more than k, several tie at `high`.
    above, level = bits > high, bits == high

    def first(chosen: jax.Array) -> jax.Array:
        order = jnp.where(level, jnp.arange(x.size, 0, -1, dtype=jnp.int32), 0)
        # Where nothing ties the search has an end at once, and does not hold up other lanes.
        some = jnp.where(many > k, k - few, x.size)
        last = _search(order, some)[0]
        return jnp.where(many > k, above | (order > last), chosen)

    return branches.when(many > k, first, bits > low)


def _search(bits: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Search a level with k entries above it; of integers, none below 0.

    Args:
        bits: i[d].
        k: i[], at most d.

    Returns:
        Levels low < high, and how many entries are above each: at low k, or more than k with all
        the others equal to high.
    """
    padded = jnp.pad(bits, (0, -bits.size % SLICES), constant_values=-1)

    def unfinished(state: Any) -> jax.Array:
        low, high, many, _ = state
        return branches.any_lane((high - low > 1) & (many != k))

    def halve(state: Any) -> Any:
        low, high, many, few = state
        middle = low + (high - low) // 2
        slices = jnp.split(padded, SLICES)  # here: as a part of the loop's state they are slower
        above = sum((part > middle).astype(jnp.int32) for part in slices)
        found = jnp.sum(above, dtype=jnp.int32)
        live = (high - low > 1) & (many != k)  # the lane; others may be
        up, down = live & (found >= k), live & (found < k)
        low, high = jnp.where(up, middle, low), jnp.where(down, middle, high)
        return low, high, jnp.where(up, found, many), jnp.where(down, found, few)

    low, high = jnp.asarray(-1, bits.dtype), _maximum(bits)
    return lax.while_loop(unfinished, halve, (low, high, jnp.int32(bits.size), jnp.int32(0)))
