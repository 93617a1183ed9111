"""Rounds without a trace: the fast path of BSP and k-BSP, where every update starts all anew.

A round is the k-th smallest of n new times, whatever happened before. Nothing is sorted, which is
slow under `vmap`: the k-th smallest is found by bisection on the bits of the float numbers, whose
order as integers is theirs as numbers. If only the seconds are wanted and the workers are
independent and alike, a round is one draw: the order statistic itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dtjax.clock import statistics
from dtjax.clock.accounting import Accounts
from dtjax.clock.state import Pair
from dtjax.clock.statistics import Gathered, Happened, Statistics
from dtjax.clock.status import DONE, EXHAUSTED, STUCK, UNTIL
from dtjax.core import branches, compensated, random

TIMES = 512
"""How many times are drawn at once: rounds x workers."""

CHUNK = 64
"""Turns of so many times between two moves of the origin of time, at most."""


def kth_smallest(times: jax.Array, k: jax.Array) -> jax.Array:
    """Return the k-th smallest of f[n] times, none below 0; NaN if any is, infinite if k > n.

    Example:
        >>> float(kth_smallest(jnp.array([3.0, 1.0, 2.0]), jnp.int32(2)))
        2.0
    """
    width = jnp.dtype(f"int{8 * times.dtype.itemsize}")
    bits = lax.bitcast_convert_type(times, width)

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = low + (high - low) // 2
        enough = jnp.sum(bits <= middle, dtype=jnp.int32) >= k
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    ends = jnp.min(bits), jnp.max(bits)
    found = lax.fori_loop(0, 8 * times.dtype.itemsize - 1, halve, ends)[1]
    least = lax.bitcast_convert_type(found, times.dtype)
    least = jnp.where(k > times.shape[0], jnp.inf, least)
    return jnp.where(jnp.isnan(times).any(), jnp.nan, least)


def earliest(times: jax.Array, k: jax.Array, kth: jax.Array) -> jax.Array:
    """Return b[n]: the k earliest; among equal times the first workers."""
    below, level = times < kth, times == kth
    some = k - jnp.sum(below, dtype=jnp.int32)

    def first(level: jax.Array) -> jax.Array:
        return level & (jnp.cumsum(level) <= some)

    return below | branches.when(jnp.sum(level) > some, first, level)


class Sums(NamedTuple):
    """What is summed over rounds."""

    origin: Pair  # f[] seconds since the run began
    useful: Pair  # f[n]
    waiting: Pair  # f[n]
    cancelled: Pair  # f[n]
    used: jax.Array  # i[n]
    made: jax.Array  # i[] rounds
    gathered: Gathered


def run(
    key: jax.Array,
    cluster: Any,
    k: jax.Array | None,
    limit: jax.Array,
    until: jax.Array,
    gathered: Gathered,
    rows: int,
) -> tuple[Accounts, jax.Array, Statistics | None, jax.Array | None]:
    """Run to the end.

    Args:
        key: of the run.
        cluster: the machines; their law has no state and does not look at the clock.
        k: gradients in an update; None: all the workers.
        limit: i[] rounds at which the run is over.
        until: f[] seconds.
        gathered: what to add to.
        rows: at least `limit`.

    Returns:
        The accounts, the status, the statistics, and the seconds.
    """
    n, law = cluster.n, cluster.delay
    workers = random.workers(random.plain(key), n)
    present = jnp.ones(n, bool) if cluster.present is None else cluster.present
    there = jnp.sum(present, dtype=jnp.int32)
    many = there if k is None else k
    zero = jnp.zeros((), float)
    nothing = jnp.zeros(n, zero.dtype)
    width = min(max(1, TIMES // n), rows)
    turns = min(CHUNK, -(-rows // width))

    def times(step: jax.Array) -> jax.Array:
        draw = jax.vmap(law.draw, in_axes=(None, 0, None, None))
        seconds = draw((), workers, step, zero)[1].astype(zero.dtype)
        return jnp.where(present, seconds, jnp.inf)

    def last(seconds: jax.Array) -> jax.Array:
        if k is None and cluster.present is None:
            return jnp.max(seconds)
        return kth_smallest(seconds, many)

    def horizon(sums: Sums) -> jax.Array:
        return (until - sums.origin[0]) - sums.origin[1]

    def some(carry: Any, turn: jax.Array) -> Any:
        (now, going, useful, waiting, cancelled, used), (first, end) = carry
        step = first + turn * width + jnp.arange(width, dtype=jnp.int32)
        x = jax.vmap(times)(step)
        dt = jax.vmap(last)(x)
        ends = now + jnp.cumsum(dt)
        real = (step < limit) & (ends <= end) & jnp.isfinite(ends)
        real = going & (jnp.cumsum(~real) == 0)  # none after the first that is not
        if k is None:
            among = jnp.ones(x.shape, bool)
        else:
            among = jax.vmap(earliest, in_axes=(0, None, 0))(x, many, dt)
        there = real[:, None] & present[None]
        among, lost = among & there, ~among & there
        sums = (
            jnp.max(jnp.where(real, ends, now)),
            jnp.all(real),
            useful + compensated.total(jnp.where(among, x, 0.0)),
            waiting + compensated.total(jnp.where(among, dt[:, None] - x, 0.0)),
            cancelled + compensated.total(jnp.where(lost, dt[:, None], 0.0)),
            used + jnp.sum(among, axis=0, dtype=jnp.int32),
        )
        return (sums, (first, end)), (dt, real, step)

    def unfinished(state: tuple[Sums, jax.Array, jax.Array]) -> jax.Array:
        return branches.any_lane(state[2])

    def chunk(state: tuple[Sums, jax.Array, jax.Array]) -> Any:
        sums, first, going = state
        start = (zero, going, nothing, nothing, nothing, sums.used), (first, horizon(sums))
        ((now, going, useful, waiting, cancelled, used), _), seen = lax.scan(
            some, start, jnp.arange(turns, dtype=jnp.int32)
        )
        dt, real, step = (part.reshape(-1) for part in seen)
        none = jnp.zeros_like(step)
        sums = Sums(
            origin=compensated.two_sum(*sums.origin, now),
            useful=compensated.two_sum(*sums.useful, useful),
            waiting=compensated.two_sum(*sums.waiting, waiting),
            cancelled=compensated.two_sum(*sums.cancelled, cancelled),
            used=used,
            made=sums.made + jnp.sum(real, dtype=jnp.int32),
            gathered=statistics.add(sums.gathered, Happened(none, none > 0, dt, real, step)),
        )
        first = first + turns * width
        return sums, first, going & (first < limit)

    pair = (nothing, nothing)
    none = jnp.zeros(n, jnp.int32)
    sums = Sums((zero, zero), pair, pair, pair, none, jnp.int32(0), gathered)
    sums, _, _ = lax.while_loop(unfinished, chunk, (sums, jnp.int32(0), jnp.bool_(True)))

    # The round that was not finished.
    x, end, over = times(sums.made), horizon(sums), sums.made >= limit
    gone = jnp.isnan(x).any()
    stuck = jnp.isinf(end)
    idle = jnp.where(stuck, STUCK, UNTIL)
    status = jnp.where(over, DONE, jnp.where(gone, EXHAUSTED, idle)).astype(jnp.int32)
    finite = jnp.max(jnp.where(jnp.isfinite(x), x, 0.0))
    spent = jnp.where(over | gone, 0.0, jnp.where(stuck, finite, jnp.maximum(end, 0.0)))
    there_now = present & ~over & ~gone
    waits = there_now & (x <= spent)
    left = jnp.where(there_now, jnp.minimum(x, spent), 0.0)
    gradients = sums.made * many
    accounts = Accounts(
        useful=sums.useful[0],
        discarded=nothing,
        cancelled=sums.cancelled[0],
        in_flight=left,
        waiting=compensated.two_sum(*sums.waiting, jnp.where(waits, spent - x, 0.0))[0],
        communicating=nothing,
        queueing=nothing,
        started=jnp.where(present, sums.made + 1, 0),
        useful_count=sums.used,
        discarded_count=none,
        cancelled_count=jnp.where(present, sums.made - sums.used, 0),
        buffered=jnp.sum(waits, dtype=jnp.int32),
        updates=sums.made,
        elapsed=sums.origin[0] + (sums.origin[1] + spent),
    )
    kept = sums.gathered._replace(bins=sums.gathered.bins.at[:1].add(gradients))
    return accounts, status, *statistics.end(kept, gradients)


def order_seconds(key: jax.Array, law: Any, n: int, k: jax.Array | None, rows: int) -> jax.Array:
    """Draw the seconds of rounds as order statistics: one number a round, whatever n is.

    X_(k:n) = isf(B), B ~ Beta(n - k + 1, k), for n independent workers with the law's `isf`. These
    are other random numbers than those of (worker, step): the law is the same, the draws are not.
    B has the resolution of the float type near 1, where the short times are: 6e-8 in binary32.

    Args:
        key: of the run.
        law: of every worker.
        n: workers.
        k: i[]; None: n.
        rows: how many rounds.

    Returns:
        f[rows], seconds; infinite if k > n.

    Reference:
        David and Nagaraja, "Order statistics", 2003, section 2.1.
    """
    key = random.plain(key)
    round_ = jnp.arange(rows, dtype=jnp.uint32)
    if k is None:  # the least of n uniform numbers, exact near 0, where the long times are
        u = jax.vmap(random.uniform, in_axes=(None, 0))(key, round_)
        return law.isf(-jnp.expm1(jnp.log1p(-u) / n))
    most = jnp.clip(k, 1, n).astype(float)

    def beta(number: jax.Array) -> jax.Array:
        return jax.random.beta(random.fold(key, number), n - most + 1.0, most, dtype=most.dtype)

    return jnp.where(k > n, jnp.inf, law.isf(jax.vmap(beta)(round_)))
