"""Two-point stragglers: most computations take one time, a few take a multiple of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dtjax.cluster.delays.law import Memoryless
from dtjax.core import checks
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class Bimodal(Memoryless):
    """See `bimodal`."""

    seconds: jax.Array  # f[]
    probability: jax.Array  # f[]
    factor: jax.Array  # f[]

    jumps: ClassVar[tuple[str, ...]] = ("probability",)

    def mean(self) -> jax.Array:
        """Return seconds (1 + probability (factor - 1))."""
        return self.seconds * (1.0 + self.probability * (self.factor - 1.0))

    def variance(self) -> jax.Array:
        """Return probability (1 - probability) (seconds (factor - 1))^2."""
        spread = self.seconds * (self.factor - 1.0)
        return self.probability * (1.0 - self.probability) * spread**2

    def sf(self, t: ArrayLike) -> jax.Array:
        """Return 1, `probability`, then 0."""
        late = jnp.where(jnp.asarray(t) < self.seconds * self.factor, self.probability, 0.0)
        return jnp.where(jnp.asarray(t) < self.seconds, 1.0, late)

    def isf(self, q: ArrayLike) -> jax.Array:
        """Return the long time for q < probability, else the short one."""
        return self.seconds * jnp.where(jnp.asarray(q) < self.probability, self.factor, 1.0)


def bimodal(seconds: ArrayLike, probability: ArrayLike, factor: ArrayLike) -> Bimodal:
    """Make the law of occasional stragglers.

    X = seconds factor with this probability, else seconds.

    Args:
        seconds: of an undisturbed computation, positive.
        probability: of a straggler, 0..1.
        factor: how many times longer a straggler takes, 1 or more.

    Raises:
        ValueError: if a number is out of its range or not finite.

    Example:
        >>> float(bimodal(1.0, 0.25, 5.0).mean())
        2.0
    """
    at_least_one = ("must be 1 or more and finite", lambda x: (x >= 1) & jnp.isfinite(x))
    return Bimodal(
        checks.real("bimodal", "seconds", seconds, checks.POSITIVE, ndim=0),
        checks.real("bimodal", "probability", probability, checks.PROBABILITY, ndim=0),
        checks.real("bimodal", "factor", factor, at_least_one, ndim=0),
    )


EXAMPLE = partial(bimodal, 1.0, 0.1, 5.0)
