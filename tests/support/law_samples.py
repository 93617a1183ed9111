"""What the tests of delay laws share: extreme bits, samples, examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.core import plugins, random

LEVEL = 1e-6
BITS = [(0, 0), (0, 1), (0, 2**32 - 1), (1, 0), (2**31, 0), (2**32 - 1, 0), (2**32 - 1, 2**32 - 1)]


def examples() -> dict[str, Callable[[], Any]]:
    """Return the EXAMPLE of each law that ships, by name."""
    return plugins.examples("dtjax.cluster.delays")


def example(name: str) -> Any:
    return examples()[name]()


def exact(bits: tuple[int, int]) -> float:
    """Return the uniform number that two words stand for, in binary64."""
    return (bits[0] * 2**32 + bits[1] + 0.5) / 2**64


def survivals(bits: Any) -> np.ndarray:
    return np.asarray(jax.vmap(random.survival)(jnp.asarray(bits, jnp.uint32)))


def sample(law: Any, count: int, n: int = 1, key: int = 0, now: float = 0.0) -> np.ndarray:
    """Draw the steps 0, 1, ... of n workers, f[n, count]."""

    def one(worker: random.Worker) -> jax.Array:
        def turn(state: Any, step: jax.Array) -> Any:
            return law.draw(state, worker, step, jnp.asarray(now))

        steps = jnp.arange(count, dtype=jnp.int32)
        first = law.init(worker)
        if jax.tree.leaves(first):
            return jax.lax.scan(turn, first, steps)[1]
        return jax.vmap(lambda step: turn(first, step)[1])(steps)

    return np.asarray(jax.jit(jax.vmap(one))(random.workers(jax.random.key(key), n)))
