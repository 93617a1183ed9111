"""The largest of many exponential draws: is the tail cut?

    python -m benchmarks.tail

The maximum of m standard exponential times is log m + G, G of the standard Gumbel law. Draws made
of a uniform number of 23 bits never exceed 15.94, so 2e8 of them would end there.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import tyro

import dtjax
from dtjax.core import random

WORKERS, STEPS = 64, 1 << 14  # of one chunk
LEVEL = 1e-3
"""How often the maximum falls outside of the interval that is printed."""


@dataclass(frozen=True)
class Options:
    """How many draws."""

    draws: int = 200_000_000
    """Rounded up to whole chunks."""
    seed: int = 0
    """Of the key."""


def gumbel(level: float) -> float:
    """Return the quantile of the standard Gumbel law."""
    return -math.log(-math.log(level))


@partial(jax.jit, static_argnames="chunks")
def largest(key: jax.Array, chunks: int) -> jax.Array:
    """Draw steps of `WORKERS` workers, a chunk after the other, and keep the maximum."""
    law = dtjax.delays.exponential(1.0)
    workers = random.workers(key, WORKERS)

    def chunk(most: jax.Array, first: jax.Array) -> tuple[jax.Array, None]:
        def one(worker: random.Worker, step: jax.Array) -> jax.Array:
            return law.draw((), worker, step, jnp.zeros(()))[1]

        steps = first * STEPS + jnp.arange(STEPS, dtype=jnp.int32)
        drawn = jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))(workers, steps)
        return jnp.maximum(most, jnp.max(drawn)), None

    return jax.lax.scan(chunk, jnp.zeros(()), jnp.arange(chunks, dtype=jnp.int32))[0]


def main(options: Options) -> float:
    """Print the maximum beside what theory expects; return it."""
    chunks = math.ceil(options.draws / (WORKERS * STEPS))
    draws = chunks * WORKERS * STEPS
    begin = time.perf_counter()
    found = float(largest(jax.random.key(options.seed), chunks))
    seconds = time.perf_counter() - begin
    low, high = (math.log(draws) + gumbel(level) for level in (LEVEL / 2, 1 - LEVEL / 2))
    mean = math.log(draws) + 0.5772156649
    print(f"largest of {draws:,} exponential draws: {found:.2f} means, in {seconds:.0f} s")
    print(f"theory: {mean:.2f} on average, {low:.2f} to {high:.2f} with probability {1 - LEVEL}")
    print("uniform numbers of 23 bits end at 15.94")
    return found


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
