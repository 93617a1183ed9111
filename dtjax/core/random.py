"""Randomness as a virtual table: the numbers of (worker, step) depend on nothing else."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

DEFAULT = "threefry2x32"
WORLD = 0x7FFFFFFF  # the fold that no worker's index reaches: what the workers of a run share


class Worker(NamedTuple):
    """Who draws: a worker's index and its keys.

    A law draws from `key` for what is the worker's own, and from `world` for what all the workers
    of one run share (a rack, a network).
    """

    index: jax.Array  # i[]
    key: jax.Array  # key[]
    world: jax.Array  # key[]


def typed(key: jax.Array) -> jax.Array:
    """Return a typed key for a typed key or for the older uint32 pair."""
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    return jax.random.wrap_key_data(key)


def is_key(key: Any) -> bool:
    """Whether this is one random key: a typed one, or the older vector of uint32."""
    dtype = getattr(key, "dtype", None)
    if dtype is None:
        return False
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return key.ndim == 0
    return dtype == jnp.uint32 and key.ndim == 1


def are_keys(keys: Any) -> bool:
    """Whether these are random keys along one axis, at least one."""
    shape, dtype = getattr(keys, "shape", ()), getattr(keys, "dtype", None)
    if not len(shape) or not shape[0] or dtype is None:
        return False
    typed = jnp.issubdtype(dtype, jax.dtypes.prng_key)
    return len(shape) == (1 if typed else 2) and (typed or dtype == jnp.uint32)


def plain(key: jax.Array) -> jax.Array:
    """Return a key of the default generator for any key, or for the data of one.

    A run draws with it, so that its tables depend neither on a setting of JAX nor, as with other
    generators, on the number of runs.
    """
    data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    first = jax.random.wrap_key_data(data[:2], impl=DEFAULT)
    return fold(first, *(data[word] for word in range(2, data.shape[0])))


def workers(key: jax.Array, n: int) -> Worker:
    """Make the `n` workers of the run with this key: a `Worker` of arrays with leading axis n."""
    key = typed(key)
    index = jnp.arange(n, dtype=jnp.int32)
    own = jax.vmap(lambda i: jax.random.fold_in(key, i))(index)
    world = jax.random.fold_in(key, WORLD)
    return Worker(index, own, jnp.broadcast_to(world, (n,)))


def words(key: jax.Array, counter: jax.Array, salt: int = 0) -> jax.Array:
    """Return 64 random bits of (key, counter, salt) as two uint32 words.

    The words are the data of `jax.random.fold_in(key, counter)` where the key is of the default
    generator: its folded keys are the output of a block cipher, so that one call serves a draw.
    `salt` 0 is the first pair of words, others are further ones.
    """
    if _plain(key):
        data = _threefry(jax.random.key_data(key), counter)
        return _threefry(data, jnp.uint32(salt)) if salt else data
    folded = jax.random.fold_in(key, counter)
    if salt:
        folded = jax.random.fold_in(folded, salt)
    return jax.random.bits(folded, (2,), jnp.uint32)


def fold(key: jax.Array, *counters: ArrayLike) -> jax.Array:
    """Return the key of a table's entry: `jax.random.fold_in` of one counter after another."""
    for counter in counters:
        if _plain(key):
            data = _threefry(jax.random.key_data(key), jnp.uint32(counter))
            key = jax.random.wrap_key_data(data, impl=DEFAULT)
        else:
            key = jax.random.fold_in(key, counter)
    return key


def _plain(key: jax.Array) -> bool:
    return str(jax.random.key_impl(key)) == DEFAULT


def stream(key: jax.Array, count: int) -> jax.Array:
    """Return `count` uniform words of a key, u32[count]: an array of them compiles in one piece."""
    blocks = jnp.arange(-(-count // 2), dtype=jnp.uint32)
    return jax.vmap(words, in_axes=(None, 0))(key, blocks).reshape(-1)[:count]


def _threefry(key: jax.Array, counter: jax.Array) -> jax.Array:
    """Encrypt the block (0, counter) with the key, u32[2]: Threefry-2x32 with 20 rounds.

    The same words as `jax.random.fold_in`, whose rounds are a loop on CPU: in a scan whose step
    draws one number a lane, that loop takes more than half of the time.

    Reference: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
    """
    keys = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA))
    a, b = keys[0], jnp.asarray(counter).astype(jnp.uint32) + keys[1]
    for group in range(5):
        for distance in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            a = a + b
            b = (b << jnp.uint32(distance)) | (b >> jnp.uint32(32 - distance))
            b = a ^ b
        a = a + keys[(group + 1) % 3]
        b = b + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return jnp.stack([a, b])


def survival(bits: jax.Array) -> jax.Array:
    """Turn two uint32 words, `u32[2]`, into a uniform number in (0, 1), exact near 0.

    The value is (high 2^32 + low + 1/2) / 2^64, rounded to the float type: its resolution near 0
    is 2^-64, where the usual 23-bit uniforms stop at 2^-23. A law that samples through the inverse
    of its survival function therefore has its tail down to probability 5e-20; near 1 the value is
    kept at least half a unit of rounding below 1.
    """
    dtype = jnp.zeros((), float).dtype
    high = bits[0].astype(dtype) * 2.0**-32
    low = (bits[1].astype(dtype) + 0.5) * 2.0**-64
    return jnp.minimum(high + low, 1.0 - jnp.finfo(dtype).epsneg)


def uniform(key: jax.Array, counter: jax.Array, salt: int = 0) -> jax.Array:
    """Draw the uniform number of (key, counter, salt): see `survival` for its resolution."""
    return survival(words(key, counter, salt))
