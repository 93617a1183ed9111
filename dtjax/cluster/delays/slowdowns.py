"""Slowdowns shared by a group of workers: a rack or a network that is slow for a while."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dtjax.cluster.delays.exponential import exponential
from dtjax.cluster.delays.law import check_law, count, next_salt
from dtjax.cluster.delays.mixture import Slowed, checked_factor
from dtjax.core import checks, random
from dtjax.core.checks import Numbers
from dtjax.core.pytree import pytree
from dtjax.core.random import Worker


@pytree
@dataclass(frozen=True)
class Slowdowns(Slowed):
    """See `slowdowns`."""

    groups: jax.Array  # i[n]
    period: jax.Array  # f[]
    probability: jax.Array  # f[]
    salt: int = field(metadata={"static": True})

    clocked = True  # drawn when a computation starts: the time decides

    @property
    def share(self) -> jax.Array:
        """The share of slow periods."""
        return self.probability

    @property
    def workers(self) -> int | None:
        """For how many workers the law is made."""
        return count(self.law, self.groups)

    def init(self, worker: Worker) -> Any:
        """Return the law's own state."""
        return self.law.init(worker)

    def slow(self, world: jax.Array, group: jax.Array, now: jax.Array) -> jax.Array:
        """Whether the group is slow at the second `now`: an entry of the table (group, period)."""
        period = jnp.floor(now / self.period).astype(jnp.uint32)
        key = jax.random.fold_in(world, group)
        return random.uniform(key, period, self.salt) < self.probability

    def draw(
        self, state: Any, worker: Worker, step: jax.Array, now: jax.Array
    ) -> tuple[Any, jax.Array]:
        """Draw from the law; slow it down if the worker's group is slow now."""
        state, seconds = self.law.draw(state, worker, step, now)
        slow = self.slow(worker.world, self.groups[worker.index], now)
        return state, seconds * jnp.where(slow, self.factor, 1.0)


def slowdowns(
    law: Any,
    groups: Numbers,
    *,
    period: ArrayLike,
    probability: ArrayLike,
    factor: ArrayLike,
) -> Slowdowns:
    """Slow a whole group of workers down for whole periods of wall-clock time.

    Time is cut into periods; in each, each group is slow with this probability, independently. A
    computation that starts in a slow period of its worker's group takes `factor` times as long, to
    its end. The world at one second is the same under every policy. `mean`, `variance`, `sf` and
    `isf` are those of a computation that starts at a given time (by then a policy may have started
    more, or fewer, in the slow periods).

    Args:
        law: any delay law.
        groups: i[n], the group of each worker, from 0.
        period: seconds, positive. Periods are counted in the float type: in binary32, choose it
            above 1e-6 of the length of the run.
        probability: that a period is slow.
        factor: 1 or more.

    Raises:
        ValueError: if a number is out of its range or not finite, or `law` is not a law or is made
            for another number of workers.

    Example:
        >>> law = slowdowns(
        ...     exponential(1.0), [0, 0, 1], period=10.0, probability=0.25, factor=5.0
        ... )
        >>> float(law.mean())
        2.0
    """
    members = checks.integer("slowdowns", "groups", jnp.asarray(groups), low=0)
    if jnp.ndim(members) != 1:
        raise checks.fail("slowdowns", "groups", "must hold one number a worker", groups)
    check_law("slowdowns", "law", law, members.shape[0])
    return Slowdowns(
        law,
        checked_factor("slowdowns", factor),
        jnp.asarray(members, jnp.int32),
        checks.real("slowdowns", "period", period, checks.POSITIVE, ndim=0),
        checks.real("slowdowns", "probability", probability, checks.PROBABILITY, ndim=0),
        next_salt(law),
    )


def EXAMPLE() -> Slowdowns:  # noqa: N802
    """Make the law that the conformance suite tries."""
    return slowdowns(exponential(1.0), (0, 0, 1), period=10.0, probability=0.2, factor=4.0)
