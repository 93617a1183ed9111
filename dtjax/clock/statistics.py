"""What is kept of a run whose trace is not: statistics of its updates, or their seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dtjax.clock.state import Pair
from dtjax.core import compensated
from dtjax.core.pytree import pytree

COLLECT = ("trace", "statistics", "seconds")
"""What `simulate` can keep."""


@pytree
@dataclass(frozen=True)
class Statistics:
    """The updates of a run in a few numbers; batches of runs have leading axes.

    Attributes:
        updates: i[], updates made.
        gradients: i[], gradients in them.
        dt_mean: f[], mean seconds between updates; NaN where none was made.
        dt_variance: f[], their variance, about that mean and over all of them.
        staleness: i[B], gradients by staleness 0, 1, ...; the last bin counts B - 1 and more.
        staleness_mean: f[], over all gradients, those of the last bin included.
        staleness_max: i[], over the gradients that reached the server.
    """

    updates: jax.Array
    gradients: jax.Array
    dt_mean: jax.Array
    dt_variance: jax.Array
    staleness: jax.Array
    staleness_mean: jax.Array
    staleness_max: jax.Array


class Gathered(NamedTuple):
    """Sums so far."""

    updates: jax.Array  # i[]
    mean: jax.Array  # f[] of dt
    squares: jax.Array  # f[] sum of (dt - mean)^2
    bins: jax.Array  # i[B]
    total: Pair  # f[] sum of staleness
    most: jax.Array  # i[]
    dt: jax.Array  # f[T] the seconds of each update, T = 0 unless they are kept


class Happened(NamedTuple):
    """Some consecutive arrivals, C of them."""

    staleness: jax.Array  # i[C]
    used: jax.Array  # b[C]
    dt: jax.Array  # f[C] seconds since the last update
    made: jax.Array  # b[C] whether the server updates here
    row: jax.Array  # i[C] updates made before, since the run began


def begin(collect: str, bins: int, rows: int) -> Gathered:
    """Start with a histogram of `bins` bins, or with place for the seconds of `rows` updates."""
    bins, rows = (bins, 0) if collect == "statistics" else (0, rows)
    zero, none = jnp.zeros((), float), jnp.int32(0)
    counts = jnp.zeros(bins, jnp.int32)
    return Gathered(none, zero, zero, counts, (zero, zero), none, jnp.zeros(rows, zero.dtype))


def add(g: Gathered, happened: Happened) -> Gathered:
    """Add some arrivals.

    Reference: Chan, Golub, LeVeque, "Algorithms for computing the sample variance", 1983.
    """
    staleness, used, dt, made, row = happened
    dt = jnp.where(made, dt, 0.0)
    count = jnp.sum(made, dtype=jnp.int32)
    mean = compensated.total(dt) / jnp.maximum(count, 1)
    off = jnp.where(made, dt - mean, 0.0)
    updates = g.updates + count
    share = count.astype(dt.dtype) / jnp.maximum(updates, 1)
    apart = mean - g.mean
    between = compensated.rounded(
        compensated.rounded(compensated.rounded(apart * apart) * share) * g.updates
    )
    stale = jnp.where(used, staleness, 0)
    place = jnp.where(made, row, g.dt.shape[0])
    return Gathered(
        updates=updates,
        mean=g.mean + compensated.rounded(apart * share),
        squares=g.squares + compensated.total(compensated.rounded(off * off)) + between,
        bins=_count(g.bins, staleness, used, 1),
        total=compensated.two_sum(*g.total, jnp.sum(stale).astype(g.mean.dtype)),
        most=jnp.maximum(g.most, jnp.max(stale)),
        dt=g.dt.at[place].set(dt, mode="drop") if g.dt.shape[0] else g.dt,
    )


def _count(bins: jax.Array, staleness: jax.Array, used: jax.Array, by: int) -> jax.Array:
    size = bins.shape[0]
    if not size:
        return bins
    return bins.at[jnp.where(used, jnp.minimum(staleness, size - 1), size)].add(by, mode="drop")


def end(
    g: Gathered,
    gradients: jax.Array,
    left: Any = None,
    waiting: Any = None,
) -> tuple[Statistics | None, jax.Array | None]:
    """Make the statistics, or the seconds, of the updates that were made.

    Args:
        g: the sums over all gradients that were used.
        gradients: i[], those that are in an update.
        left: i[K], staleness of gradients in the buffer.
        waiting: b[K], which of them wait.
    """
    if g.dt.shape[0]:
        return None, g.dt
    bins, total = g.bins, g.total[0]
    if left is not None:
        bins = _count(bins, left, waiting, -1)
        rest = jnp.sum(jnp.where(waiting, left, 0)).astype(g.mean.dtype)
        total = compensated.two_sum(*g.total, -rest)[0]
    none = jnp.where(g.updates > 0, 0.0, jnp.nan)
    statistics = Statistics(
        updates=g.updates,
        gradients=gradients,
        dt_mean=g.mean + none,
        dt_variance=g.squares / jnp.maximum(g.updates, 1) + none,
        staleness=bins,
        staleness_mean=total / jnp.maximum(gradients, 1) + none,
        staleness_max=g.most,
    )
    return statistics, None
