"""Compute times spread evenly over an interval."""

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
class Uniform(Memoryless):
    """See `uniform`."""

    low: jax.Array  # f[]
    high: jax.Array  # f[]

    jumps: ClassVar[tuple[str, ...]] = ()
    has_density: ClassVar[bool] = True

    def mean(self) -> jax.Array:
        """Return (low + high) / 2."""
        return 0.5 * (self.low + self.high)

    def variance(self) -> jax.Array:
        """Return (high - low)^2 / 12."""
        return (self.high - self.low) ** 2 / 12.0

    def sf(self, t: ArrayLike) -> jax.Array:
        """Return (high - t) / (high - low), within 0..1."""
        return jnp.clip((self.high - jnp.asarray(t)) / (self.high - self.low), 0.0, 1.0)

    def isf(self, q: ArrayLike) -> jax.Array:
        """Return high - (high - low) q."""
        return self.high - (self.high - self.low) * jnp.asarray(q)


def uniform(low: ArrayLike, high: ArrayLike) -> Uniform:
    """Make the law of times spread evenly over (low, high).

    E[X] = (low + high) / 2, Var X = (high - low)^2 / 12.

    Args:
        low: seconds, not negative.
        high: seconds, above `low`.

    Raises:
        ValueError: if `low` is negative, or `high` is not above `low`, or either is not finite.

    Example:
        >>> float(uniform(1.0, 3.0).isf(0.25))
        2.5
    """
    low = checks.real("uniform", "low", low, checks.NON_NEGATIVE, ndim=0)
    high = checks.real("uniform", "high", high, checks.POSITIVE, ndim=0)
    if checks.is_concrete((low, high)) and not float(low) < float(high):
        raise checks.fail("uniform", "high", f"must be above low={float(low)}", float(high))
    return Uniform(low, high)


EXAMPLE = partial(uniform, 1.0, 3.0)
