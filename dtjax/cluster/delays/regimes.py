"""Persistent stragglers: a worker falls into a slow phase and stays there for a while."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dtjax.cluster.delays.exponential import exponential
from dtjax.cluster.delays.law import BEFORE, check_law, clocked, count, next_salt
from dtjax.cluster.delays.mixture import Slowed, checked_factor
from dtjax.core import checks, random
from dtjax.core.pytree import pytree
from dtjax.core.random import Worker


@pytree
@dataclass(frozen=True)
class Regimes(Slowed):
    """See `regimes`."""

    enter: jax.Array  # f[]
    leave: jax.Array  # f[]
    salt: int = field(metadata={"static": True})

    jumps: ClassVar[tuple[str, ...]] = ("enter", "leave")

    @property
    def clocked(self) -> bool:
        """Whether the law looks at the time."""
        return clocked(self.law)

    @property
    def share(self) -> jax.Array:
        """The long-run share of slow steps, enter / (enter + leave)."""
        return self.enter / (self.enter + self.leave)

    @property
    def workers(self) -> int | None:
        """For how many workers the law is made, if it says."""
        return count(self.law)

    def init(self, worker: Worker) -> tuple[jax.Array, Any]:
        """Return whether step 0 is slow, and the law's own state."""
        before = random.uniform(worker.key, jnp.uint32(BEFORE), self.salt)
        return before < self.share, self.law.init(worker)

    def draw(
        self, state: tuple[jax.Array, Any], worker: Worker, step: jax.Array, now: jax.Array
    ) -> tuple[tuple[jax.Array, Any], jax.Array]:
        """Draw from the law, slow it down in a slow phase, then move the phase on."""
        slow, inner = state
        inner, seconds = self.law.draw(inner, worker, step, now)
        u = random.uniform(worker.key, step, self.salt)
        moved = jnp.where(slow, u >= self.leave, u < self.enter)
        return (moved, inner), seconds * jnp.where(slow, self.factor, 1.0)


def regimes(law: Any, *, factor: ArrayLike, enter: ArrayLike, leave: ArrayLike) -> Regimes:
    """Make workers fall into slow phases of geometric length.

    X = factor Y in a slow step, Y otherwise; a fast step is followed by a slow one with
    probability `enter`, a slow one by a fast one with probability `leave`. Stationary from step 0
    on: the share of slow steps is enter / (enter + leave), a slow phase lasts 1 / leave steps.

    Args:
        law: any delay law Y.
        factor: 1 or more.
        enter: probability, 0 < enter <= 1.
        leave: probability, 0 < leave <= 1.

    Raises:
        ValueError: if a number is out of its range or not finite, or `law` is not a law.

    Example:
        >>> law = regimes(exponential(1.0), factor=5.0, enter=0.05, leave=0.15)
        >>> round(float(law.mean()), 3)
        2.0
    """
    check_law("regimes", "law", law)
    inside = ("must be above 0 and at most 1", lambda x: (x > 0) & (x <= 1))
    return Regimes(
        law,
        checked_factor("regimes", factor),
        checks.real("regimes", "enter", enter, inside, ndim=0),
        checks.real("regimes", "leave", leave, inside, ndim=0),
        next_salt(law),
    )


def EXAMPLE() -> Regimes:  # noqa: N802
    """Make the law that the conformance suite tries."""
    return regimes(exponential(0.5, shift=0.5), factor=5.0, enter=0.05, leave=0.2)
