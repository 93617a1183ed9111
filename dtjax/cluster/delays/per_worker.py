"""A law of its own for each worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from dtjax.cluster.delays.deterministic import deterministic
from dtjax.cluster.delays.exponential import exponential
from dtjax.cluster.delays.law import check_law, clocked, has_density
from dtjax.core import checks
from dtjax.core.pytree import pytree
from dtjax.core.random import Worker


@pytree
@dataclass(frozen=True)
class PerWorker:
    """See `per_worker`."""

    laws: tuple[Any, ...]
    n: int = field(metadata={"static": True})

    jumps: ClassVar[tuple[str, ...]] = ()

    @property
    def workers(self) -> int:
        """For how many workers the law is made."""
        return self.n

    @property
    def has_density(self) -> bool:
        """Whether the times of all the laws are independent and have a density."""
        return all(has_density(law) for law in self.laws)

    @property
    def clocked(self) -> bool:
        """Whether one of the laws looks at the time."""
        return any(clocked(law) for law in self.laws)

    @property
    def salt(self) -> int:
        """The last salt in use."""
        return max(getattr(law, "salt", 0) for law in self.laws)

    def init(self, worker: Worker) -> tuple[Any, ...]:
        """Return a state for every law, of which the worker uses its own."""
        return tuple(law.init(worker) for law in self.laws)

    def draw(
        self, state: tuple[Any, ...], worker: Worker, step: jax.Array, now: jax.Array
    ) -> tuple[tuple[Any, ...], jax.Array]:
        """Draw from every law and keep the worker's own."""
        drawn = [law.draw(s, worker, step, now) for law, s in zip(self.laws, state, strict=True)]
        seconds = jnp.stack([seconds for _, seconds in drawn])
        return tuple(s for s, _ in drawn), seconds[worker.index]

    def mean(self) -> jax.Array:
        """Return the mean of each worker, f[n]."""
        return jnp.stack([law.mean() for law in self.laws])

    def variance(self) -> jax.Array:
        """Return the variance of each worker, f[n]."""
        return jnp.stack([law.variance() for law in self.laws])


def per_worker(laws: Sequence[Any]) -> PerWorker:
    """Give each worker a law of its own.

    X of worker w follows laws[w]. Every draw evaluates all the laws and keeps one, so that unequal
    speeds under one law are better written as `scaled(law, by)`.

    Args:
        laws: one law a worker, in worker order.

    Raises:
        ValueError: if `laws` is empty, or one is not a law or is made for other workers.

    Example:
        >>> per_worker([exponential(1.0), deterministic(3.0)]).mean().tolist()
        [1.0, 3.0]
    """
    if not isinstance(laws, (list, tuple)) or not laws:
        raise checks.fail("per_worker", "laws", "must hold one law a worker", laws)
    for worker, law in enumerate(laws):
        check_law("per_worker", f"laws[{worker}]", law, len(laws))
    return PerWorker(tuple(laws), len(laws))


def EXAMPLE() -> PerWorker:  # noqa: N802
    """Make the law that the conformance suite tries."""
    return per_worker((exponential(1.0), deterministic(2.0), exponential(0.5, shift=0.5)))
