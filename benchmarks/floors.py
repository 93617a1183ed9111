"""What a clock cannot do without, measured in the same run: random bits drawn and bytes moved."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks import timing
from benchmarks.ours import Work, numbers
from dtjax.core import random

CHUNK = 32  # numbers of each run drawn at once
PASSES = 32  # over the array that is copied

ROW = {"statistics": 20, "trace": 52}
"""Bytes of a worker's row. Statistics: when it ends and what that lost by rounding, computations
started, version read, since when. A trace: when it ends, four integers, six times, and the readers
of two versions."""
MORE = 8
"""Further bytes in statistics where workers wait or are cancelled: how long, and how often or for
what is drawn already."""
SUMS = 16
"""Bytes of a worker in the statistics of BSP and k-BSP, which keep no rows: four sums."""
REST = {"statistics": 24, "trace": 40}
"""Bytes of a run's own numbers: now, the last update, the origin as two numbers, counters; in a
trace also the newest version's slot."""


def bits(runs: int, draws: int) -> tuple[Callable[[], Any], int]:
    """Make a call that draws uniform numbers on one device, and does nothing else.

    Args:
        runs: runs side by side.
        draws: numbers of each, rounded up to whole chunks.

    Returns:
        The call, and how many numbers it draws.
    """
    turns = -(-draws // CHUNK)

    def draw(runs: jax.Array, other: tuple[()]) -> jax.Array:
        del other

        def one(key: jax.Array) -> jax.Array:
            def turn(total: jax.Array, chunk: jax.Array) -> tuple[jax.Array, None]:
                steps = chunk * CHUNK + jnp.arange(CHUNK, dtype=jnp.int32)
                return total + jnp.sum(jax.vmap(random.uniform, (None, 0))(key, steps)), None

            none = jnp.zeros((), float)
            return lax.scan(turn, none, jnp.arange(turns, dtype=jnp.int32))[0]

        return jax.vmap(one)(runs)

    own = jax.random.split(jax.random.key(0), runs)
    return timing.compiled(draw, jax.devices()[:1], own, ())[0], runs * turns * CHUNK


def copies(size: int) -> tuple[Callable[[], Any], int]:
    """Make a call that reads and writes an array over and over on one device.

    The array is as large as the state of all runs, so that it lies in the same cache or memory.

    Args:
        size: bytes of the array.

    Returns:
        The call, and how many bytes it reads and writes.
    """
    values = jnp.zeros(max(1, size // 4), jnp.float32)

    def many(values: jax.Array, other: tuple[()]) -> jax.Array:
        del other
        # A product and a sum that the compiler cannot foresee keep it from merging the passes.
        return lax.fori_loop(0, PASSES, lambda i, x: x * 0.5 + i.astype(x.dtype), values)

    call = timing.compiled(many, jax.devices()[:1], values, ())[0]
    return call, 2 * PASSES * values.nbytes


def traffic(work: Work) -> float:
    """Count the bytes that an arrival must read and write, in binary32.

    A kernel reads and writes the row of each worker whose state changes and the run's own numbers,
    and reads the times among which it finds the next: the minima of sqrt(n) blocks, and one block.
    Rows that change: the deliverer's, and, of policies that wait for an update or cancel at it,
    everybody's at each update. Statistics count in one bin of a histogram; a trace gains an entry
    (worker, step, version, slot, two times) and an update's row (seconds, slot). Statistics of BSP
    and k-BSP, where nothing outlives an update, read and write the sums of all workers and the
    run's own numbers once an update. Of runs that keep seconds alone only these are written.
    """
    policy = numbers(work.rule, work.n)
    if work.collect == "seconds":
        return 4 / policy.k
    if work.collect == "statistics" and policy.distinct and (policy.cancel or policy.k == work.n):
        return 2 * (work.n * SUMS + REST[work.collect]) / policy.k
    together = policy.distinct or policy.cancel
    rows = 1 + (work.n / policy.k if together else 0)
    row = ROW[work.collect]
    if work.collect == "statistics" and (together or policy.bound < math.inf):
        row += MORE
    kept = 24 + 8 / policy.k if work.collect == "trace" else 8
    return 2 * (rows * row + REST[work.collect]) + 8 * math.sqrt(work.n) + kept


def state(work: Work) -> int:
    """Return the bytes of the state of all runs, about."""
    return work.runs * (work.n * ROW.get(work.collect, 4) + REST.get(work.collect, 4))
