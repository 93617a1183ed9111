"""Arrivals without a trace: the fast path of policies that act at every k-th arrival.

Where no gradient is thrown away, every k-th arrival is an update, in all runs at once. So nothing
has to be asked of the policy, chunks of arrivals are of equal length, and the origin of time moves
between them; models need no slots, because nobody trains on a trace that is not kept. A worker is
then three numbers besides its next time, and an arrival two dozen small kernels.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dtjax.clock import statistics
from dtjax.clock.accounting import Accounts
from dtjax.clock.fast.machine import Machine, Number, Rules
from dtjax.clock.fast.workers import IDLE, Stream, Workers, kept_low, lasted
from dtjax.clock.state import Pair
from dtjax.clock.statistics import Gathered, Happened, Statistics
from dtjax.clock.status import DONE, EXHAUSTED, STUCK, UNTIL
from dtjax.core import blocked_minima, branches, compensated

CHUNK = 256
"""Arrivals between two moves of the origin of time: 8 n, but at least 64, at most these, or n."""


class Sums(NamedTuple):
    """What is summed over chunks."""

    origin: Pair  # f[]
    waited: Pair  # f[n]
    cancelled: Pair  # f[n]
    owner: jax.Array  # i[K] the gradients in the buffer: whose,
    read: jax.Array  # i[K] of which version,
    seconds: jax.Array  # f[K] how long they took
    gathered: Gathered


def _move(machine: Machine, at: Stream, sums: Sums) -> tuple[Stream, Sums]:
    """Move the origin to now, and empty the sums of the chunk."""
    of, n, shift = at.workers.columns(), machine.n, at.now
    due, low = compensated.two_sum(at.due[:n], jnp.where(of.since > 0, 0.0, at.low), -shift)
    since, since_low = compensated.two_sum(of.since, kept_low(at), -shift)
    times, minima = blocked_minima.blocked(due)
    form, (waited, cancelled) = machine.form.flush(at.form)
    sums = sums._replace(origin=compensated.two_sum(*sums.origin, shift))
    if waited is not None:
        sums = sums._replace(waited=compensated.two_sum(*sums.waited, waited))
    if cancelled is not None:
        sums = sums._replace(cancelled=compensated.two_sum(*sums.cancelled, cancelled))
    at = at._replace(
        due=times,
        minima=minima,
        low=low,
        since_low=since_low,
        workers=Workers.of(of._replace(since=since), machine.form.swept),
        form=form,
        now=jnp.zeros_like(shift),
        updated=compensated.two_sum(*at.updated, -shift),
    )
    return at, sums


def run(
    key: jax.Array, cluster: Any, rules: Rules, gathered: Gathered, *, form: str, width: int
) -> tuple[Accounts, jax.Array, Statistics | None, jax.Array | None]:
    """Run to the end.

    Args:
        key: of the run.
        cluster: the machines; their law must not look at the clock.
        rules: the policy's numbers and the end.
        gathered: what to add to.
        form: of the policy: see `forms.FORMS`.
        width: K, at least k.

    Returns:
        The accounts, the status, the statistics, and the seconds.
    """
    machine = Machine(key, cluster, rules, form)
    at = machine.start()
    nothing = jnp.zeros_like(at.workers.columns().since)
    pair, none = (nothing, nothing), jnp.full(width, -1, jnp.int32)
    zero = jnp.zeros((), nothing.dtype)
    some = jnp.zeros(width, nothing.dtype)
    sums = Sums((zero, zero), pair, pair, none, none, some, gathered)

    def unfinished(state: Any) -> jax.Array:
        at, sums, count, _ = state
        due = jnp.min(at.minima)
        go = jnp.isfinite(due) & (due <= _horizon(rules, sums)) & (count < rules.limit)
        return branches.any_lane(go)

    turn = partial(_chunk, machine)
    at, sums, _, made = lax.while_loop(unfinished, turn, (at, sums, jnp.int32(0), jnp.int32(0)))
    status, now = _end(rules, at, sums, made)
    accounts = _settle(machine, at, sums, made, now)
    version, pending = accounts.updates, accounts.buffered
    waiting = jnp.arange(width, dtype=jnp.int32) < pending
    kept = statistics.end(sums.gathered, version * rules.k, version - sums.read, waiting)
    return accounts, status, *kept


def _horizon(rules: Rules, sums: Sums) -> jax.Array:
    """Return the run's end relative to the origin."""
    return (rules.until - sums.origin[0]) - sums.origin[1]


def _chunk(machine: Machine, state: Any) -> Any:
    """Take a chunk of arrivals, and move the origin to its end."""
    at, sums, count, made = state
    rules, width = machine.rules, sums.owner.shape[0]
    size = max(min(CHUNK, max(64, 8 * machine.n)), machine.n)
    numbers = count + jnp.arange(size, dtype=jnp.int32)
    row, column = numbers // rules.k, numbers % rules.k
    end, last = _horizon(rules, sums), column == rules.k - 1
    at, seen = lax.scan(
        lambda at, number: machine.arrive(at, end, number), at, Number(numbers, row, last)
    )
    happened = Happened(row - seen.read, seen.real, seen.dt, seen.real & last, row)
    gathered = statistics.add(sums.gathered, happened)
    sums = sums._replace(gathered=gathered)
    made = made + jnp.sum(seen.real, dtype=jnp.int32)
    if width > 1:  # who is in the buffer at the end of the chunk
        waits = seen.real & (row == made // rules.k)
        column = jnp.where(waits, column, width)
        sums = sums._replace(
            owner=sums.owner.at[column].set(seen.worker, mode="drop"),
            read=sums.read.at[column].set(seen.read, mode="drop"),
            seconds=sums.seconds.at[column].set(seen.seconds, mode="drop"),
        )
    at, sums = _move(machine, at, sums)
    return at, sums, count + size, made


def _end(rules: Rules, at: Stream, sums: Sums, made: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Say why the run ended, and when."""
    due, end = jnp.min(at.minima), _horizon(rules, sums)
    idle = jnp.where(jnp.isinf(due) & jnp.isinf(end), STUCK, UNTIL)
    over = made >= rules.limit
    unknown = due == -jnp.inf
    status = jnp.where(over, DONE, jnp.where(unknown, EXHAUSTED, idle)).astype(jnp.int32)
    at_end = ~over & ~unknown & jnp.isfinite(end)
    return status, jnp.where(at_end, jnp.maximum(end, 0.0), 0.0)


def _settle(machine: Machine, at: Stream, sums: Sums, made: jax.Array, now: jax.Array) -> Accounts:
    """Make the accounts of `made` arrivals, up to now."""
    n, k, width = machine.n, machine.rules.k, sums.owner.shape[0]
    nothing = jnp.zeros_like(sums.waited[0])
    version, pending = made // k, made % k
    waiting = jnp.arange(width, dtype=jnp.int32) < pending
    owner = jnp.where(waiting, sums.owner, n)
    held = nothing.at[owner].add(sums.seconds, mode="drop")
    kept = jnp.zeros(n, jnp.int32).at[owner].add(1, mode="drop")
    of, present = at.workers.columns(), machine.present
    idle = of.read == IDLE
    begun = lasted(at._replace(now=now))
    stopped = jnp.zeros(n, jnp.int32) + machine.form.stopped(at.form)
    # Before `since` a worker has delivered what it computed, waited or been stopped.
    spent = compensated.two_sum(*sums.origin, jnp.where(present, of.since, 0.0))
    spent = compensated.two_sum(*spent, kept_low(at) - held)
    spent = compensated.two_sum(*compensated.two_sum(*spent, -sums.waited[0]), -sums.cancelled[0])
    return Accounts(
        useful=jnp.where(present, spent[0], 0.0),
        discarded=nothing,
        cancelled=sums.cancelled[0],
        in_flight=jnp.where(present & ~idle, begun, 0.0) + held,
        waiting=compensated.two_sum(*sums.waited, jnp.where(present & idle, begun, 0.0))[0],
        communicating=nothing,
        queueing=nothing,
        started=jnp.where(present, of.step - idle, 0),
        useful_count=jnp.where(present, of.step - 1 - stopped - kept, 0),
        discarded_count=jnp.zeros(n, jnp.int32),
        cancelled_count=stopped,
        buffered=pending,
        updates=version,
        elapsed=sums.origin[0] + (sums.origin[1] + now),
    )
