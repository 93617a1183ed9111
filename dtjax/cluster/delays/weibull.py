"""Weibull compute times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jax.typing import ArrayLike

from dtjax.cluster.delays.law import Memoryless
from dtjax.core import checks
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class Weibull(Memoryless):
    """See `weibull`."""

    shape: jax.Array  # f[]
    scale: jax.Array  # f[]

    jumps: ClassVar[tuple[str, ...]] = ()
    has_density: ClassVar[bool] = True

    def _moment(self, power: float) -> jax.Array:
        return self.scale**power * jnp.exp(gammaln(1.0 + power / self.shape))

    def mean(self) -> jax.Array:
        """Return scale Gamma(1 + 1 / shape)."""
        return self._moment(1.0)

    def variance(self) -> jax.Array:
        """Return scale^2 (Gamma(1 + 2 / shape) - Gamma(1 + 1 / shape)^2)."""
        return self._moment(2.0) - self._moment(1.0) ** 2

    def sf(self, t: ArrayLike) -> jax.Array:
        """Return exp(-(t / scale)^shape)."""
        return jnp.exp(-((jnp.maximum(jnp.asarray(t), 0.0) / self.scale) ** self.shape))

    def isf(self, q: ArrayLike) -> jax.Array:
        """Return scale (-log q)^(1 / shape)."""
        return self.scale * (-jnp.log(q)) ** (1.0 / self.shape)


def weibull(shape: ArrayLike, scale: ArrayLike) -> Weibull:
    """Make the Weibull law: a heavier tail than the exponential's for shape < 1, a lighter for > 1.

    P(X > t) = exp(-(t / scale)^shape), E[X] = scale Gamma(1 + 1 / shape).

    Args:
        shape: positive; 1 is the exponential law.
        scale: seconds, positive.

    Raises:
        ValueError: if either is not positive and finite.

    Example:
        >>> float(weibull(1.0, 2.0).mean())
        2.0
    """
    return Weibull(
        checks.real("weibull", "shape", shape, checks.POSITIVE, ndim=0),
        checks.real("weibull", "scale", scale, checks.POSITIVE, ndim=0),
    )


EXAMPLE = partial(weibull, 0.8, 1.0)
