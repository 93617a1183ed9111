"""Exponential compute times, with a shift."""

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
class Exponential(Memoryless):
    """See `exponential`."""

    scale: jax.Array  # f[]
    shift: jax.Array  # f[]

    jumps: ClassVar[tuple[str, ...]] = ()
    has_density: ClassVar[bool] = True

    def mean(self) -> jax.Array:
        """Return shift + scale."""
        return self.shift + self.scale

    def variance(self) -> jax.Array:
        """Return scale^2."""
        return self.scale**2

    def sf(self, t: ArrayLike) -> jax.Array:
        """Return exp(-(t - shift) / scale)."""
        return jnp.exp(-jnp.maximum(jnp.asarray(t) - self.shift, 0.0) / self.scale)

    def cdf(self, t: ArrayLike) -> jax.Array:
        """Return 1 - exp(-(t - shift) / scale)."""
        return -jnp.expm1(-jnp.maximum(jnp.asarray(t) - self.shift, 0.0) / self.scale)

    def isf(self, q: ArrayLike) -> jax.Array:
        """Return shift - scale log q."""
        return self.shift - self.scale * jnp.log(q)


def exponential(mean: ArrayLike, shift: ArrayLike = 0.0) -> Exponential:
    """Make the law of a constant plus an exponential time.

    X = shift + mean E, E standard exponential: E[X] = shift + mean, Var X = mean^2.

    Args:
        mean: seconds, the mean of the random part; positive.
        shift: seconds, what no computation can be shorter than; not negative.

    Raises:
        ValueError: if `mean` is not positive or `shift` is negative, or either is not finite.

    Example:
        >>> float(exponential(1.0, shift=0.5).mean())
        1.5

    Reference:
        Dutta et al., "Slow and stale gradients can win the race", AISTATS 2018.
    """
    return Exponential(
        checks.real("exponential", "mean", mean, checks.POSITIVE, ndim=0),
        checks.real("exponential", "shift", shift, checks.NON_NEGATIVE, ndim=0),
    )


EXAMPLE = partial(exponential, 1.0, shift=0.5)
