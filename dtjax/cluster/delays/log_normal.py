"""Log-normal compute times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jax.typing import ArrayLike

from dtjax.cluster.delays.law import Memoryless
from dtjax.core import checks
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class LogNormal(Memoryless):
    """See `log_normal`."""

    median: jax.Array  # f[]
    sigma: jax.Array  # f[]

    jumps: ClassVar[tuple[str, ...]] = ()
    has_density: ClassVar[bool] = True

    def mean(self) -> jax.Array:
        """Return median exp(sigma^2 / 2)."""
        return self.median * jnp.exp(0.5 * self.sigma**2)

    def variance(self) -> jax.Array:
        """Return mean^2 (exp(sigma^2) - 1)."""
        return self.mean() ** 2 * jnp.expm1(self.sigma**2)

    def sf(self, t: ArrayLike) -> jax.Array:
        """Return Phi(-log(t / median) / sigma)."""
        tiny = jnp.finfo(self.median.dtype).tiny
        return ndtr(-jnp.log(jnp.maximum(jnp.asarray(t), tiny) / self.median) / self.sigma)

    def isf(self, q: ArrayLike) -> jax.Array:
        """Return median exp(-sigma Phi^-1(q))."""
        return self.median * jnp.exp(-self.sigma * ndtri(jnp.asarray(q, self.median.dtype)))


def log_normal(median: ArrayLike, sigma: ArrayLike) -> LogNormal:
    """Make the law of exp(a Gaussian).

    X = median exp(sigma Z), Z standard normal: E[X] = median exp(sigma^2 / 2).

    Args:
        median: seconds, positive.
        sigma: standard deviation of log X, positive.

    Raises:
        ValueError: if either is not positive and finite.

    Example:
        >>> float(log_normal(2.0, 0.5).isf(0.5))
        2.0
    """
    return LogNormal(
        checks.real("log_normal", "median", median, checks.POSITIVE, ndim=0),
        checks.real("log_normal", "sigma", sigma, checks.POSITIVE, ndim=0),
    )


EXAMPLE = partial(log_normal, 1.0, 0.5)
