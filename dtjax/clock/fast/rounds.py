"""Rounds without a trace: the fast path of BSP and k-BSP, where every update starts all anew.

A round is the k-th smallest of n new times, whatever happened before. Nothing is sorted, which is
slow under `vmap`: the k-th smallest is found by bisection on the bits of the float numbers, whose
order as integers is theirs as numbers. If only the seconds are wanted and the workers are
independent and alike, a round is one draw: the order statistic itself.
"""

from __future__ import annotations

from collections.abc import Callable
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
from dtjax.core.protocols import Delay
from dtjax.core.random import Worker

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


class Rounds(NamedTuple):
    """What does not change from one round to the next."""

    law: Delay
    workers: Worker  # arrays with leading axis n
    present: jax.Array  # b[n]
    k: jax.Array | None  # i[] gradients in an update; None: of all the workers
    limit: jax.Array  # i[] rounds at which the run is over
    until: jax.Array  # f[] seconds

    @property
    def many(self) -> jax.Array:
        """How many gradients are in an update, i[]."""
        return jnp.sum(self.present, dtype=jnp.int32) if self.k is None else self.k

    def times(self, step: jax.Array) -> jax.Array:
        """Draw a round's times, f[n]; infinite for who is not there."""
        zero = jnp.zeros((), float)
        draw = jax.vmap(self.law.draw, in_axes=(None, 0, None, None))
        seconds = draw((), self.workers, step, zero)[1].astype(zero.dtype)
        return jnp.where(self.present, seconds, jnp.inf)

    def horizon(self, sums: Sums) -> jax.Array:
        """Return `until` relative to the origin."""
        return (self.until - sums.origin[0]) - sums.origin[1]


class Chunk(NamedTuple):
    """What is summed over the rounds of a chunk, relative to its origin."""

    now: jax.Array  # f[]
    going: jax.Array  # b[] whether no round was the last
    useful: jax.Array  # f[n]
    waiting: jax.Array  # f[n]
    cancelled: jax.Array  # f[n]
    used: jax.Array  # i[n] since the run began


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
    n = cluster.n
    everybody = cluster.present is None
    present = jnp.ones(n, bool) if everybody else cluster.present
    workers = random.workers(random.plain(key), n)
    rounds = Rounds(cluster.delay, workers, present, k, limit, until)
    width = min(max(1, TIMES // n), rows)
    turns = min(CHUNK, -(-rows // width))

    def last(seconds: jax.Array) -> jax.Array:
        if k is None and everybody:
            return jnp.max(seconds)
        return kth_smallest(seconds, rounds.many)

    def unfinished(state: tuple[Sums, jax.Array, jax.Array]) -> jax.Array:
        return branches.any_lane(state[2])

    def turn(state: tuple[Sums, jax.Array, jax.Array]) -> tuple[Sums, jax.Array, jax.Array]:
        sums, first, going = state
        end = rounds.horizon(sums)

        def some(carry: Chunk, turn: jax.Array) -> tuple[Chunk, Any]:
            step = first + turn * width + jnp.arange(width, dtype=jnp.int32)
            return _play(rounds, last, carry, step, end)

        nothing = jnp.zeros_like(sums.useful[0])
        start = Chunk(jnp.zeros((), nothing.dtype), going, nothing, nothing, nothing, sums.used)
        added, seen = lax.scan(some, start, jnp.arange(turns, dtype=jnp.int32))
        first = first + turns * width
        return _add(sums, added, seen), first, added.going & (first < limit)

    zero, nothing, none = jnp.zeros((), float), jnp.zeros(n, float), jnp.zeros(n, jnp.int32)
    pair = (nothing, nothing)
    sums = Sums((zero, zero), pair, pair, pair, none, jnp.int32(0), gathered)
    sums, _, _ = lax.while_loop(unfinished, turn, (sums, jnp.int32(0), jnp.bool_(True)))
    accounts, status = _end(rounds, sums)
    gradients = accounts.updates * rounds.many
    kept = sums.gathered._replace(bins=sums.gathered.bins.at[:1].add(gradients))
    return accounts, status, *statistics.end(kept, gradients)


def _play(
    rounds: Rounds,
    last: Callable[[jax.Array], jax.Array],
    carry: Chunk,
    step: jax.Array,
    end: jax.Array,
) -> tuple[Chunk, tuple[jax.Array, jax.Array, jax.Array]]:
    """Play some consecutive rounds at once; `last` finds the end of one.

    Returns:
        The sums, and of each round its seconds, whether it was played, and its number.
    """
    x = jax.vmap(rounds.times)(step)
    dt = jax.vmap(last)(x)
    ends = carry.now + jnp.cumsum(dt)
    real = (step < rounds.limit) & (ends <= end) & jnp.isfinite(ends)
    real = carry.going & (jnp.cumsum(~real) == 0)  # none after the first that is not
    if rounds.k is None:
        among = jnp.ones(x.shape, bool)
    else:
        among = jax.vmap(earliest, in_axes=(0, None, 0))(x, rounds.many, dt)
    there = real[:, None] & rounds.present[None]
    among, lost = among & there, ~among & there
    sums = Chunk(
        now=jnp.max(jnp.where(real, ends, carry.now)),
        going=jnp.all(real),
        useful=carry.useful + compensated.total(jnp.where(among, x, 0.0)),
        waiting=carry.waiting + compensated.total(jnp.where(among, dt[:, None] - x, 0.0)),
        cancelled=carry.cancelled + compensated.total(jnp.where(lost, dt[:, None], 0.0)),
        used=carry.used + jnp.sum(among, axis=0, dtype=jnp.int32),
    )
    return sums, (dt, real, step)


def _add(sums: Sums, added: Chunk, seen: tuple[jax.Array, jax.Array, jax.Array]) -> Sums:
    """Add a chunk, and move the origin to its end."""
    dt, real, step = (part.reshape(-1) for part in seen)
    none = jnp.zeros_like(step)
    return Sums(
        origin=compensated.two_sum(*sums.origin, added.now),
        useful=compensated.two_sum(*sums.useful, added.useful),
        waiting=compensated.two_sum(*sums.waiting, added.waiting),
        cancelled=compensated.two_sum(*sums.cancelled, added.cancelled),
        used=added.used,
        made=sums.made + jnp.sum(real, dtype=jnp.int32),
        gathered=statistics.add(sums.gathered, Happened(none, none > 0, dt, real, step)),
    )


def _end(rounds: Rounds, sums: Sums) -> tuple[Accounts, jax.Array]:
    """Account the rounds, and the one that was not finished; say why the run ended."""
    x, end, over = rounds.times(sums.made), rounds.horizon(sums), sums.made >= rounds.limit
    gone = jnp.isnan(x).any()
    stuck = jnp.isinf(end)
    idle = jnp.where(stuck, STUCK, UNTIL)
    status = jnp.where(over, DONE, jnp.where(gone, EXHAUSTED, idle)).astype(jnp.int32)
    finite = jnp.max(jnp.where(jnp.isfinite(x), x, 0.0))
    spent = jnp.where(over | gone, 0.0, jnp.where(stuck, finite, jnp.maximum(end, 0.0)))
    there = rounds.present & ~over & ~gone
    waits = there & (x <= spent)
    nothing, none = jnp.zeros_like(x), jnp.zeros_like(sums.used)
    accounts = Accounts(
        useful=sums.useful[0],
        discarded=nothing,
        cancelled=sums.cancelled[0],
        in_flight=jnp.where(there, jnp.minimum(x, spent), 0.0),
        waiting=compensated.two_sum(*sums.waiting, jnp.where(waits, spent - x, 0.0))[0],
        communicating=nothing,
        queueing=nothing,
        started=jnp.where(rounds.present, sums.made + 1, 0),
        useful_count=sums.used,
        discarded_count=none,
        cancelled_count=jnp.where(rounds.present, sums.made - sums.used, 0),
        buffered=jnp.sum(waits, dtype=jnp.int32),
        updates=sums.made,
        elapsed=sums.origin[0] + (sums.origin[1] + spent),
    )
    return accounts, status


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
