"""A bandwidth that varies with the time since the run began."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.core import checks, compensated
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class Profile:
    """A bandwidth's factor over the time since the run began: constant from each second on."""

    start: jax.Array  # f[P] seconds, rising from 0
    factor: jax.Array  # f[P]
    done: jax.Array  # f[P] integral of the factor up to each start
    period: jax.Array | None  # f[] after which it begins anew; None: the last factor stays

    def lasting(self, begin: jax.Array, work: jax.Array) -> jax.Array:
        """Return how long work takes that begins then and lasts `work` seconds at factor 1."""
        now = begin if self.period is None else jnp.mod(begin, self.period)
        here = jnp.sum(_row(self.start, now) <= now[..., None], axis=-1) - 1
        before = compensated.rounded((now - self.start[here]) * self.factor[here])
        goal = self.done[here] + before + work
        turns = jnp.zeros_like(goal)
        if self.period is not None:
            rest = compensated.rounded((self.period - self.start[-1]) * self.factor[-1])
            whole = self.done[-1] + rest
            turns = jnp.floor(goal / whole)
            goal = goal - compensated.rounded(turns * whole)
            turns = compensated.rounded(turns * self.period)
        last = jnp.maximum(jnp.sum(_row(self.done, goal) < goal[..., None], axis=-1) - 1, 0)
        end = self.start[last] + (goal - self.done[last]) / self.factor[last]
        return jnp.where(work > 0, jnp.maximum(end + turns - now, 0.0), 0.0)


def _row(table: jax.Array, like: jax.Array) -> jax.Array:
    return table.reshape(*(1,) * like.ndim, -1)


def make_profile(name: str, profile: Any, period: checks.Numbers | None) -> Profile | None:
    """Check a profile that a factory was given, and prepare it."""
    if profile is None:
        if period is not None:
            raise checks.fail(name, "period", "must not be given without `profile`", period)
        return None
    rule = "must be (seconds rising from 0, as many factors, none negative, the last positive)"
    try:
        start, factor = (np.asarray(x, np.float64) for x in profile)
    except (TypeError, ValueError):
        raise checks.fail(name, "profile", rule, profile) from None
    good = start.ndim == 1 and start.shape == factor.shape and start.size
    good = good and start[0] == 0 and (np.diff(start) > 0).all() and np.isfinite(start).all()
    good = good and (factor >= 0).all() and np.isfinite(factor).all() and factor[-1] > 0
    if not good:
        raise checks.fail(name, "profile", rule, profile)
    whole = None
    if period is not None:
        whole = checks.real(name, "period", period, checks.POSITIVE, ndim=0)
        if checks.is_concrete(whole) and float(whole) <= start[-1]:
            raise checks.fail(name, "period", "must be above the profile's seconds", float(whole))
    done = np.concatenate([[0.0], np.cumsum(np.diff(start) * factor[:-1])])
    return Profile(*(jnp.asarray(x, float) for x in (start, factor, done)), whole)
