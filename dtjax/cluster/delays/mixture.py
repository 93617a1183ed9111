"""A law that is sometimes slowed down by a factor: what two wrappers know of their marginal law."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dtjax.cluster.delays.law import invert
from dtjax.core import checks

AT_LEAST_ONE = ("must be 1 or more and finite", lambda x: (x >= 1) & (x < float("inf")))


@dataclass(frozen=True)
class Slowed:
    """The marginal law of `law` that takes `factor` times longer with probability `share`."""

    law: Any
    factor: jax.Array  # f[]

    @property
    def share(self) -> jax.Array:
        """The share of computations that are slowed down."""
        raise NotImplementedError

    def mean(self) -> jax.Array:
        """Return the law's mean times 1 + share (factor - 1)."""
        return self.law.mean() * (1.0 + self.share * (self.factor - 1.0))

    def variance(self) -> jax.Array:
        """Return the variance of the mixture."""
        square = self.law.variance() + self.law.mean() ** 2
        return square * (1.0 + self.share * (self.factor**2 - 1.0)) - self.mean() ** 2

    def sf(self, t: ArrayLike) -> jax.Array:
        """Return (1 - share) sf(t) + share sf(t / factor)."""
        t = jnp.asarray(t)
        return (1.0 - self.share) * self.law.sf(t) + self.share * self.law.sf(t / self.factor)

    def cdf(self, t: ArrayLike) -> jax.Array:
        """Return P(seconds <= t)."""
        t = jnp.asarray(t)
        return (1.0 - self.share) * self.law.cdf(t) + self.share * self.law.cdf(t / self.factor)

    def isf(self, q: ArrayLike) -> jax.Array:
        """Invert `sf` by bisection between the law's quantile and `factor` times it."""
        low = self.law.isf(q)
        return invert(self.sf, q, low, low * self.factor)


def checked_factor(function: str, factor: ArrayLike) -> jax.Array:
    """Check a slowdown factor."""
    return checks.real(function, "factor", factor, AT_LEAST_ONE, ndim=0)
