"""Compute times that never vary."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dtjax.cluster.delays.law import Memoryless, at_worker, count
from dtjax.core import checks
from dtjax.core.checks import Numbers
from dtjax.core.pytree import pytree
from dtjax.core.random import Worker


@pytree
@dataclass(frozen=True)
class Deterministic(Memoryless):
    """See `deterministic`."""

    seconds: jax.Array  # f[] or f[n]

    jumps: ClassVar[tuple[str, ...]] = ()

    @property
    def workers(self) -> int | None:
        """For how many workers the law is made, if it says."""
        return count(None, self.seconds)

    def draw(
        self, state: tuple[()], worker: Worker, step: jax.Array, now: jax.Array
    ) -> tuple[tuple[()], jax.Array]:
        """Return the worker's seconds."""
        return state, at_worker(self.seconds, worker.index)

    def mean(self) -> jax.Array:
        """Return the seconds."""
        return self.seconds

    def variance(self) -> jax.Array:
        """Return 0."""
        return jnp.zeros_like(self.seconds)

    def sf(self, t: ArrayLike) -> jax.Array:
        """Return 1 before the seconds are over, then 0."""
        return (jnp.asarray(t) < self.seconds).astype(self.seconds.dtype)

    def isf(self, q: ArrayLike) -> jax.Array:
        """Return the seconds whatever q is."""
        return jnp.broadcast_to(
            self.seconds, jnp.broadcast_shapes(jnp.shape(q), self.seconds.shape)
        )


def deterministic(seconds: Numbers) -> Deterministic:
    """Make a law of constant compute times.

    X = seconds, or seconds[worker].

    Args:
        seconds: f[] or f[n], positive.

    Raises:
        ValueError: if `seconds` is not positive and finite.

    Example:
        >>> deterministic([2.0, 5.0, 7.0]).mean().tolist()
        [2.0, 5.0, 7.0]
    """
    return Deterministic(checks.real("deterministic", "seconds", seconds, checks.POSITIVE))


EXAMPLE = partial(deterministic, 1.5)
