"""Sums and products whose bits do not depend on the number of lanes, and that lose nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def rounded(x: jax.Array) -> jax.Array:
    """Return x, rounded here: the compiler may not fuse a product into a sum that follows.

    Such fusions differ with the number of lanes, and with them the last bit. A choice that depends
    on x stands in their way, also in the way of merging two factors; neither `reduce_precision`
    nor an optimisation barrier keeps a product from being fused on CPU.
    """
    return jnp.where(jnp.isfinite(x), x, x + x)


def two_sum(high: jax.Array, low: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Add x to the number high + low, elementwise, and keep what rounding would drop.

    Infinite numbers stay as they are. Reference: Knuth, TAOCP 2, 4.2.2, theorem B.
    """
    total = high + x
    back = total - high
    low_sum = low + ((high - (total - back)) + (x - back))
    renormalised = total + low_sum
    finite = jnp.isfinite(renormalised)
    rest = jnp.where(finite, low_sum - (renormalised - total), 0.0)
    return jnp.where(finite, renormalised, total), rest


def total(x: jax.Array) -> jax.Array:
    """Sum over the first axis, halves onto halves: an order that the number of lanes cannot change.

    The compiler chooses the order of `jnp.sum`, another one for another number of lanes.
    """
    size = 1 << (x.shape[0] - 1).bit_length()
    x = jnp.pad(x, [(0, size - x.shape[0])] + [(0, 0)] * (x.ndim - 1))
    while size > 1:
        size //= 2
        x = x[:size] + x[size:]
    return x[0]
