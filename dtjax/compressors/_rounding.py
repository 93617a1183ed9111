"""What the quantisers share: binary32 vectors, their scales, and stochastic rounding.

All work in binary32, the type of what they send, also where gradients are of another one. A sum
is `lanes.total` of numbers rounded before, so that the number of lanes changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.core import compensated, random

MIX = np.uint32(0x9E3779B1)  # odd: what is near differs after the product


def flat(x: jax.Array) -> jax.Array:
    """Return the entries of an array as binary32, f[d]."""
    return x.reshape(-1).astype(jnp.float32)


def norm(x: jax.Array) -> jax.Array:
    """Return the Euclidean norm over the last axis; no square overflows or underflows."""
    scale = top(x)
    squares = compensated.rounded(jnp.square(x / at_least(scale)[..., None]))
    return scale * jnp.sqrt(_halves(jnp.add, squares))


def top(x: jax.Array) -> jax.Array:
    """Return the greatest absolute value over the last axis; NaN if one is."""
    return _halves(jnp.maximum, jnp.abs(x))


def mean(x: jax.Array, count: Any = None) -> jax.Array:
    """Return the sum over the first axis by `count` (None: its length); no sum overflows."""
    power = 2.0 ** x.shape[0].bit_length()  # exact factors, that no fusion can round otherwise
    count = jnp.float32(x.shape[0]) if count is None else count
    return compensated.total(x * jnp.float32(1.0 / power)) * (jnp.float32(power) / count)


def at_least(unit: jax.Array) -> jax.Array:
    """Return a unit that can divide: 1 in place of 0. What is not a number stays."""
    return jnp.where(unit == 0, jnp.ones_like(unit), unit)


def _halves(combine: Callable[[Any, Any], Any], x: jax.Array) -> jax.Array:
    """Combine along the last axis, halves onto halves, as `lanes.total` does along the first.

    On CPU this is vector code also for a maximum, where `jnp.max` is not.
    """
    size = 1 << (x.shape[-1] - 1).bit_length()
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, size - x.shape[-1])])
    while size > 1:
        size //= 2
        x = combine(x[..., :size], x[..., size:])
    return x[..., 0]


def bits(key: jax.Array, count: int, width: int) -> jax.Array:
    """Return `count` uniform integers of `width` bits, 16..32, as u32[count].

    The 16 high bits are an integer's own, those below are common to all: half the time of a word
    for each, in a scan on CPU. Each integer is uniform, so that what is rounded with it has no
    bias. Two are dependent: events `integer < threshold` have a covariance of at most 2^-34, which
    shows only in sums of more than 2^17 entries whose probabilities are all about 2^-17.

    The common bits are of the key, which is random itself. One more block of the stream would be
    a scalar in the midst of vectors, and XLA then takes minutes to compile (84 entries, no vmap).
    """
    blocks = jnp.arange(-(-count // 4), dtype=jnp.uint32)
    words = jax.vmap(random.words, in_axes=(None, 0), out_axes=1)(key, blocks)
    own = jnp.concatenate([words & jnp.uint32(0xFFFF), words >> jnp.uint32(16)])
    seed = jax.random.key_data(key)
    common = ((seed[0] ^ seed[-1]) * MIX >> jnp.uint32(16)) & jnp.uint32(2 ** (width - 16) - 1)
    return (own.reshape(-1)[:count] << jnp.uint32(width - 16)) | common


def fractions(key: jax.Array, count: int) -> jax.Array:
    """Return uniform multiples of 2^-24 in [0, 1), f[count]."""
    return bits(key, count, 24).astype(jnp.int32).astype(jnp.float32) * jnp.float32(2.0**-24)


def stochastic(x: jax.Array, key: jax.Array) -> jax.Array:
    """Round f[d] down or up to an integer at random, so that the expectation is x to 2^-24."""
    below = jnp.floor(x)
    return below + (fractions(key, x.shape[0]) < x - below).astype(x.dtype)
