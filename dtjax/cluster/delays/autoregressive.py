"""Persistence: a worker that was slow is likely to be slow again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import ndtri
from jax.typing import ArrayLike

from dtjax.cluster.delays.law import BEFORE, count, has, next_salt
from dtjax.cluster.delays.log_normal import log_normal
from dtjax.core import checks, random
from dtjax.core.compensated import rounded
from dtjax.core.pytree import pytree
from dtjax.core.random import Worker


def _normal(worker: Worker, counter: ArrayLike, salt: int) -> jax.Array:
    return -ndtri(random.uniform(worker.key, jnp.asarray(counter, jnp.uint32), salt))


@pytree
@dataclass(frozen=True)
class Autoregressive:
    """See `autoregressive`."""

    law: Any
    correlation: jax.Array  # f[]
    salt: int = field(metadata={"static": True})

    jumps: ClassVar[tuple[str, ...]] = ()

    @property
    def workers(self) -> int | None:
        """For how many workers the law is made, if it says."""
        return count(self.law)

    def init(self, worker: Worker) -> jax.Array:
        """Return the latent normal number of step 0."""
        return _normal(worker, BEFORE, self.salt)

    def draw(
        self, state: jax.Array, worker: Worker, step: jax.Array, now: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Read the time off the latent number, then move it on."""
        del now
        info = jnp.finfo(state.dtype)
        q = 0.5 * lax.erfc(rounded(state * 0.5**0.5))
        q = jnp.clip(q, info.tiny, 1 - info.epsneg)
        rest = jnp.sqrt(1.0 - rounded(self.correlation**2))
        fresh = rounded(rest * _normal(worker, step, self.salt))
        return rounded(self.correlation * state) + fresh, self.law.isf(rounded(q))

    def mean(self) -> jax.Array:
        """Return the law's mean: memory leaves the law of one computation as it is."""
        return self.law.mean()

    def variance(self) -> jax.Array:
        """Return the law's variance."""
        return self.law.variance()

    def sf(self, t: ArrayLike) -> jax.Array:
        """Return P(seconds > t)."""
        return self.law.sf(t)

    def cdf(self, t: ArrayLike) -> jax.Array:
        """Return P(seconds <= t)."""
        return self.law.cdf(t)

    def isf(self, q: ArrayLike) -> jax.Array:
        """Return the seconds exceeded with probability q."""
        return self.law.isf(q)


def autoregressive(law: Any, correlation: ArrayLike) -> Autoregressive:
    """Make a worker's successive times depend on each other, and leave their law as it is.

    X_s = law.isf(Phi(-Z_s)), Z_(s+1) = correlation Z_s + sqrt(1 - correlation^2) N: a Gaussian
    first-order autoregression behind any law, stationary from step 0 on. With a log-normal law,
    `correlation` is the lag-1 correlation of log X.

    Args:
        law: a law with `isf`.
        correlation: of successive Z, above -1 and below 1.

    Raises:
        ValueError: if `law` has no `isf`, or `correlation` is out of its range.

    Example:
        >>> float(autoregressive(log_normal(2.0, 0.5), 0.7).isf(0.5))
        2.0
    """
    if not has(law, "isf"):
        raise checks.fail("autoregressive", "law", "must have isf", type(law).__name__)
    within = ("must be above -1 and below 1", lambda x: abs(x) < 1)
    rho = checks.real("autoregressive", "correlation", correlation, within, ndim=0)
    return Autoregressive(law, rho, next_salt(law))


def EXAMPLE() -> Autoregressive:  # noqa: N802
    """Make the law that the conformance suite tries."""
    return autoregressive(log_normal(1.0, 0.5), 0.7)
