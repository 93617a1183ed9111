"""Pareto compute times: the tail is a power."""

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
class Pareto(Memoryless):
    """See `pareto`."""

    alpha: jax.Array  # f[]
    minimum: jax.Array  # f[]

    jumps: ClassVar[tuple[str, ...]] = ()
    has_density: ClassVar[bool] = True

    def mean(self) -> jax.Array:
        """Return alpha minimum / (alpha - 1), infinite for alpha <= 1."""
        below = jnp.where(self.alpha > 1.0, self.alpha - 1.0, 1.0)
        return jnp.where(self.alpha > 1.0, self.alpha * self.minimum / below, jnp.inf)

    def variance(self) -> jax.Array:
        """Return minimum^2 alpha / ((alpha - 1)^2 (alpha - 2)), infinite for alpha <= 2."""
        a = jnp.where(self.alpha > 2.0, self.alpha, 3.0)
        value = self.minimum**2 * a / ((a - 1.0) ** 2 * (a - 2.0))
        return jnp.where(self.alpha > 2.0, value, jnp.inf)

    def sf(self, t: ArrayLike) -> jax.Array:
        """Return (minimum / t)^alpha."""
        return (self.minimum / jnp.maximum(jnp.asarray(t), self.minimum)) ** self.alpha

    def isf(self, q: ArrayLike) -> jax.Array:
        """Return minimum q^(-1 / alpha)."""
        return self.minimum * jnp.asarray(q) ** (-1.0 / self.alpha)


def pareto(alpha: ArrayLike, minimum: ArrayLike) -> Pareto:
    """Make the Pareto law.

    P(X > t) = (minimum / t)^alpha for t >= minimum; E[X] = alpha minimum / (alpha - 1), infinite
    for alpha <= 1; the variance is infinite for alpha <= 2.

    Args:
        alpha: the tail's power, positive.
        minimum: seconds, positive.

    Raises:
        ValueError: if either is not positive and finite.

    Example:
        >>> float(pareto(2.0, 1.0).mean()), float(pareto(2.0, 1.0).variance())
        (2.0, inf)
    """
    return Pareto(
        checks.real("pareto", "alpha", alpha, checks.POSITIVE, ndim=0),
        checks.real("pareto", "minimum", minimum, checks.POSITIVE, ndim=0),
    )


EXAMPLE = partial(pareto, 2.5, 1.0)
