"""Compute times from a log."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.core import checks
from dtjax.core.checks import Numbers
from dtjax.core.pytree import pytree
from dtjax.core.random import Worker


@pytree
@dataclass(frozen=True)
class Recorded:
    """See `recorded`."""

    table: jax.Array  # f[n, J]; NaN behind the end of a worker's log

    jumps: ClassVar[tuple[str, ...]] = ()

    @property
    def workers(self) -> int | None:
        """For how many workers the law is made."""
        return self.table.shape[0] if self.table.ndim == 2 else None

    def init(self, worker: Worker) -> tuple[()]:
        """Return no state."""
        del worker
        return ()

    def draw(
        self, state: tuple[()], worker: Worker, step: jax.Array, now: jax.Array
    ) -> tuple[tuple[()], jax.Array]:
        """Look up table[worker, step]; NaN past the end."""
        del now
        found = self.table.at[worker.index, step].get(mode="fill", fill_value=jnp.nan)
        return state, found

    def mean(self) -> jax.Array:
        """Return the mean of all the recorded times."""
        return jnp.nanmean(self.table)

    def variance(self) -> jax.Array:
        """Return the variance of all the recorded times about their mean."""
        return jnp.nanvar(self.table)


def recorded(table: Numbers) -> Recorded:
    """Make a law that replays a log: computation (worker, step) takes table[worker, step].

    A run that starts a computation behind the end stops there, with status "exhausted".

    Args:
        table: f[n, J], seconds, positive; infinite for a worker that never gets ready. Logs of
            unequal length are padded with NaN at the end.

    Raises:
        ValueError: if the table has not two axes, is empty, has a time that is not positive, or a
            gap (a NaN before a number).

    Example:
        >>> float(recorded([[2.0, 4.0], [5.0, 1.0]]).mean())
        3.0
    """
    if checks.is_concrete(table):
        try:
            numbers = np.asarray(table, dtype=np.float64)
        except (TypeError, ValueError):
            raise checks.fail(
                "recorded", "table", "must be a table of numbers, one row a worker", table
            ) from None
        if numbers.ndim != 2 or 0 in numbers.shape:
            rule = "must have shape [workers, steps], neither of them 0"
            raise checks.fail("recorded", "table", rule, numbers.shape)
        missing = np.isnan(numbers)
        gap = missing[:, :-1] & ~missing[:, 1:]
        bad = ~missing & ~(numbers > 0)
        for rule, where in (("must be positive", bad), ("must not have a gap", gap)):
            if where.any():
                worker, step = (int(i[0]) for i in np.nonzero(where))
                place = f"table[{worker}, {step}]"
                raise checks.fail("recorded", place, rule, float(numbers[worker, step]))
    return Recorded(jnp.asarray(table, float))


EXAMPLE = partial(recorded, ((2.0, 4.0, 3.0, 2.5, 1.5, 2.0), (5.0, 1.0, 2.0, 1.5, 2.5, 3.0)))
