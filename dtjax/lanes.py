"""Small pieces that keep kernels fast and exact under `vmap`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

T = TypeVar("T")


@jax.custom_batching.custom_vmap
def any_lane(flag: jax.Array) -> jax.Array:
    """Return the flag itself; under `vmap`, whether it is set in any lane, the same for all.

    A predicate that differs by lane makes JAX compute both branches and select the whole state. One
    that all lanes share stays a real branch; the lanes that did not ask are masked inside.
    """
    return flag


@any_lane.def_vmap
def _any_lane_rule(axis_size: int, in_batched: list[bool], flag: jax.Array) -> Any:
    del axis_size
    return any_lane(jnp.any(flag, axis=0) if in_batched[0] else flag), False


def when(flag: jax.Array, change: Callable[[T], T], state: T) -> T:
    """Apply `change` if any lane's flag is set; `change` must mask the lanes whose flag is not.

    A loop of at most one turn: unlike a conditional it leaves the state where it is in memory.
    """

    def turn(carry: tuple[jax.Array, T]) -> tuple[jax.Array, T]:
        return jnp.bool_(False), change(carry[1])

    return lax.while_loop(lambda carry: carry[0], turn, (any_lane(flag), state))[1]


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


def known(seconds: jax.Array) -> jax.Array:
    """Return the seconds, but minus infinity for NaN, which says that a table does not hold them.

    Then they are the least of all times. Minima of NaN are not to be relied on: compiled for many
    lanes on CPU, they may drop it.
    """
    return jnp.where(jnp.isnan(seconds), -jnp.inf, seconds)


# The earliest of n times in O(sqrt n) steps: the times in blocks, and each block's minimum.


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


# Several numbers a worker in one table, f[C n], field after field: one look-up and one write a
# worker, while a field of all the workers is one contiguous slice.


def column(table: jax.Array, n: int, index: jax.Array, fields: int) -> jax.Array:
    """Return one worker's numbers in the first fields."""
    return table[index + n * jnp.arange(fields, dtype=jnp.int32)]


def put_column(table: jax.Array, n: int, index: jax.Array, values: jax.Array) -> jax.Array:
    """Set the C numbers of one worker; index n sets nothing."""
    places = index + n * jnp.arange(table.shape[0] // n, dtype=jnp.int32)
    return table.at[jnp.where(index < n, places, table.shape[0])].set(values, mode="drop")


# A set of n small numbers as bits, with its least member in O(n / 32) steps.


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
