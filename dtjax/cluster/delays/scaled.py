"""Faster and slower workers: a law times a factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dtjax.cluster.delays.exponential import exponential
from dtjax.cluster.delays.law import alike, at_worker, check_law, clocked, count, has_density
from dtjax.core import checks
from dtjax.core.checks import Numbers
from dtjax.core.pytree import pytree
from dtjax.core.random import Worker


@pytree
@dataclass(frozen=True)
class Scaled:
    """See `scaled`."""

    law: Any
    by: jax.Array  # f[] or f[n]

    jumps: ClassVar[tuple[str, ...]] = ()

    @property
    def has_density(self) -> bool:
        """Whether the times of the law are independent and have a density."""
        return has_density(self.law)

    @property
    def clocked(self) -> bool:
        """Whether the law looks at the time."""
        return clocked(self.law)

    @property
    def alike(self) -> bool:
        """Whether `isf` is the law of every worker, all of them independent."""
        return alike(self.law) and self.by.ndim == 0

    @property
    def salt(self) -> int:
        """The last salt in use."""
        return getattr(self.law, "salt", 0)

    @property
    def workers(self) -> int | None:
        """For how many workers the law is made, if it says."""
        return count(self.law, self.by)

    def init(self, worker: Worker) -> Any:
        """Return the law's own state."""
        return self.law.init(worker)

    def draw(
        self, state: Any, worker: Worker, step: jax.Array, now: jax.Array
    ) -> tuple[Any, jax.Array]:
        """Draw from the law and multiply."""
        state, seconds = self.law.draw(state, worker, step, now)
        return state, seconds * at_worker(self.by, worker.index)

    def mean(self) -> jax.Array:
        """Return the law's mean times the factor: one a worker, if the factor is."""
        return self.law.mean() * self.by

    def variance(self) -> jax.Array:
        """Return the law's variance times the factor squared."""
        return self.law.variance() * self.by**2

    def sf(self, t: ArrayLike) -> jax.Array:
        """Return P(seconds > t)."""
        return self.law.sf(jnp.asarray(t) / self.by)

    def cdf(self, t: ArrayLike) -> jax.Array:
        """Return P(seconds <= t)."""
        return self.law.cdf(jnp.asarray(t) / self.by)

    def isf(self, q: ArrayLike) -> jax.Array:
        """Return the seconds exceeded with probability q."""
        return self.law.isf(q) * self.by


def scaled(law: Any, by: Numbers) -> Scaled:
    """Multiply a law by a factor, or each worker's times by a factor of its own.

    X = by Y, or by[worker] Y.

    Args:
        law: any delay law Y.
        by: f[] or f[n], positive.

    Raises:
        ValueError: if `by` is not positive and finite, or `law` is not a law or is made for another
            number of workers.

    Example:
        >>> scaled(exponential(1.0), [1.0, 4.0]).mean().tolist()
        [1.0, 4.0]
    """
    factors = checks.real("scaled", "by", by, checks.POSITIVE)
    check_law("scaled", "law", law, count(None, factors))
    return Scaled(law, factors)


def EXAMPLE() -> Scaled:  # noqa: N802
    """Make the law that the conformance suite tries."""
    return scaled(exponential(1.0), (1.0, 2.0, 4.0))
