"""Mixtures of exponentials: a few kinds of computation, each with a mean of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dtjax.cluster.delays.law import Memoryless, invert
from dtjax.core import checks, random
from dtjax.core.checks import Numbers
from dtjax.core.pytree import pytree
from dtjax.core.random import Worker

BRANCH = 0x4252  # salt of the choice of the branch, which must not use the bits of the time


@pytree
@dataclass(frozen=True)
class HyperExponential(Memoryless):
    """See `hyper_exponential`."""

    probabilities: jax.Array  # f[m]
    means: jax.Array  # f[m]

    jumps: ClassVar[tuple[str, ...]] = ("probabilities",)
    has_density: ClassVar[bool] = True

    def draw(
        self, state: tuple[()], worker: Worker, step: jax.Array, now: jax.Array
    ) -> tuple[tuple[()], jax.Array]:
        """Choose the branch, then the time, from separate bits: both have exact tails."""
        chosen = random.uniform(worker.key, step, BRANCH)
        below = jnp.cumsum(self.probabilities)[:-1]
        branch = jnp.sum(chosen >= below, dtype=jnp.int32)
        return state, -self.means[branch] * jnp.log(random.uniform(worker.key, step))

    def mean(self) -> jax.Array:
        """Return sum p_i m_i."""
        return jnp.sum(self.probabilities * self.means)

    def variance(self) -> jax.Array:
        """Return 2 sum p_i m_i^2 - mean^2."""
        return 2.0 * jnp.sum(self.probabilities * self.means**2) - self.mean() ** 2

    def sf(self, t: ArrayLike) -> jax.Array:
        """Return sum p_i exp(-t / m_i)."""
        t = jnp.maximum(jnp.asarray(t, self.means.dtype), 0.0)

        def one(t: jax.Array) -> jax.Array:
            return jnp.sum(self.probabilities * jnp.exp(-t / self.means))

        return jnp.vectorize(one)(t)

    def isf(self, q: ArrayLike) -> jax.Array:
        """Invert `sf` by bisection between the fastest and the slowest branch's quantile."""
        e = -jnp.log(jnp.asarray(q, self.means.dtype))
        return invert(self.sf, q, e * self.means.min(), e * self.means.max())


def hyper_exponential(probabilities: Numbers, means: Numbers) -> HyperExponential:
    """Make the law of an exponential time whose mean is chosen at random for each computation.

    P(X > t) = sum_i probabilities[i] exp(-t / means[i]).

    Args:
        probabilities: f[m], not negative, adding up to 1.
        means: f[m], seconds, positive.

    Raises:
        ValueError: if lengths differ, or a number is out of its range.

    Example:
        >>> float(hyper_exponential([0.5, 0.5], [1.0, 3.0]).mean())
        2.0
    """
    name = "hyper_exponential"
    p = checks.real(name, "probabilities", probabilities, checks.PROBABILITY, ndim=1)
    m = checks.real(name, "means", means, checks.POSITIVE, ndim=1)
    if p.shape != m.shape:
        rule = f"must have the length of probabilities, {p.shape[0]}"
        raise checks.fail(name, "means", rule, m.shape[0])
    if checks.is_concrete(p) and abs(float(np.sum(np.asarray(p))) - 1.0) > 1e-5:
        raise checks.fail(name, "probabilities", "must add up to 1", float(np.sum(np.asarray(p))))
    return HyperExponential(p, m)


EXAMPLE = partial(hyper_exponential, (0.9, 0.1), (0.5, 5.0))
