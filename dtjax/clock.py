"""The clock: from machines and a policy to a trace of updates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from dtjax import arguments, keys, lanes
from dtjax.accounts import Accounts, settle
from dtjax.arrival import arrive
from dtjax.state import Buffer, Clock, Counts, Spans, Tally
from dtjax.types import ABSENT, COMPUTING, DONE, EXHAUSTED, STATUS, STUCK, UNTIL, Trace

CHUNK = 1024
"""Arrivals between two looks at whether the run is over."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Run:
    """What a simulation gives; batches of runs have leading axes."""

    trace: Trace
    accounts: Accounts
    status: jax.Array  # i[] why the run stopped: see `dtjax.types.STATUS`
    clock: Clock  # to go on from: `resume`

    def check(self, *, complete: bool = False) -> Run:
        """Raise if a run stopped for a reason that its user did not ask for; else return it.

        Args:
            complete: also raise if a run stopped at `until`: for callers who need every row.

        Raises:
            RuntimeError: naming the first such run, why it stopped and at which update.
        """
        bad = (EXHAUSTED, STUCK, UNTIL) if complete else (EXHAUSTED, STUCK)
        status = np.atleast_1d(np.asarray(self.status))
        found = np.argwhere(np.isin(status, bad))
        if len(found):
            place = tuple(int(i) for i in found[0])
            version = int(np.atleast_1d(np.asarray(self.clock.version))[place])
            name = place[0] if len(place) == 1 else place
            reason = STATUS[int(status[place])]
            raise RuntimeError(f"run {name} stopped at update {version}: {reason}")
        return self


def simulate(
    key: jax.Array,
    cluster: Any,
    policy: Any,
    *,
    updates: Any,
    until: ArrayLike | None = None,
    width: int | None = None,
    rows: int | None = None,
) -> Run:
    """Simulate one run of a policy on a cluster; `vmap` it over keys, policies or laws.

    Every number in `cluster`, `policy` and `until` is traced: a change of one compiles nothing
    anew. Shapes are static: the number of workers, the rows and the widest update.

    Args:
        key: a JAX random key. The time of computation (worker, step) depends on the key, the worker
            and the step alone: policies are compared under common random numbers.
        cluster: the machines, `dtjax.Cluster(...)`.
        policy: a `dtjax.policies.Rule`, or any pytree with the protocol `dtjax.types.Policy`.
        updates: how many updates to make at most, 1 or more. May be traced if `rows` is given.
        until: seconds; the run ends at that time if it is not over before. Events at that instant
            count. None: no limit.
        width: the most gradients in one update, K; None: asked of the policy, whose k must then be
            known. Under a `vmap` over k give the largest.
        rows: how many rows the trace has, at least `updates`; None: `updates`.

    Returns:
        The trace (rows that were not made are padding), the accounts up to the last update or to
        `until`, the status, and the clock to go on from.

    Raises:
        ValueError: if an argument is out of its range, or more distinct workers are asked for than
            there are.

    Example:
        >>> import dtjax
        >>> cluster = dtjax.Cluster(n=3, delay=dtjax.delays.deterministic([2.0, 5.0, 7.0]))
        >>> run = dtjax.simulate(jax.random.key(0), cluster, dtjax.policies.k_asp(2), updates=4)
        >>> dtjax.seconds(run.trace).tolist()
        [5.0, 7.0, 10.0, 14.0]

    Reference:
        Dutta et al., "Slow and stale gradients can win the race", AISTATS 2018.
    """
    name = "simulate"
    arguments.one_key(name, key)
    policy = arguments.canonical(name, cluster, policy)
    width = arguments.width(name, cluster, policy, width)
    rows, updates, until = arguments.ends(name, rows, updates, until)
    return _run(_start(key, cluster, policy, width), cluster, policy, until, updates, rows)


def resume(
    clock: Clock,
    cluster: Any,
    policy: Any,
    *,
    updates: Any,
    until: ArrayLike | None = None,
    rows: int | None = None,
) -> Run:
    """Go on from where a run stopped: the same bits as one longer run would have given.

    Args:
        clock: `run.clock` of a run of the same cluster and policy.
        cluster: as in `simulate`.
        policy: as in `simulate`.
        updates: how many more updates to make at most.
        until: seconds since the run began (not since the clock); None: no limit.
        rows: as in `simulate`.

    Returns:
        The new rows (their `start` is the version that the clock was at), and the accounts since
        the run began.

    Raises:
        ValueError: as in `simulate`, and if the clock is not of a run with this number of workers,
            or of another law or policy, or its rows are too narrow for this policy.
    """
    name = "resume"
    policy = arguments.canonical(name, cluster, policy)
    arguments.one_run(name, cluster, clock)
    width = arguments.width(name, cluster, policy, clock.buffer.worker.shape[0])
    fresh = jax.eval_shape(partial(_start, width=width), clock.key, cluster, policy)
    arguments.same_run(name, clock, fresh)
    rows, updates, until = arguments.ends(name, rows, updates, until)
    return _run(clock, cluster, policy, until, updates, rows)


@partial(jax.jit, static_argnames="width")
def _start(key: jax.Array, cluster: Any, policy: Any, width: int) -> Clock:
    """Start every worker at second 0 on version 0."""
    n = cluster.n
    key = keys.plain(key)
    workers = keys.workers(key, n)
    zero = jnp.zeros((), float)
    present = jnp.ones(n, bool) if cluster.present is None else cluster.present
    states = jax.vmap(cluster.delay.init)(workers)
    states, drawn = jax.vmap(cluster.delay.draw, in_axes=(0, 0, None, None))(
        states, workers, jnp.int32(0), zero
    )
    drawn = jnp.where(present, drawn.astype(zero.dtype), jnp.inf)
    none, nothing = jnp.zeros(n, jnp.int32), jnp.zeros(n, zero.dtype)
    pair = (nothing, nothing)
    some, times = jnp.full(width, -1, jnp.int32), jnp.zeros(width, zero.dtype)
    readers = none.at[0].set(jnp.sum(present, dtype=jnp.int32))
    counts = Counts(
        step=present.astype(jnp.int32),
        read=none,
        slot=none,
        phase=jnp.where(present, COMPUTING, ABSENT).astype(jnp.int32),
    )
    return Clock(
        due=drawn,
        counts=jnp.concatenate(counts),
        spans=jnp.concatenate(Spans(drawn, *(5 * [nothing]))),
        readers=readers,
        free=lanes.bits_of(readers == 0),
        head=jnp.int32(0),
        version=jnp.int32(0),
        pending=jnp.int32(0),
        buffer=Buffer(some, some, some, some, times, times),
        now=zero,
        updated=(zero, zero),
        origin=(zero, zero),
        ticks=jnp.int32(0),
        delay=states,
        policy=policy.init(n),
        tally=Tally(pair, pair, pair, none, none),
        key=jax.random.key_data(key),
    )


@partial(jax.jit, static_argnames="rows")
def _run(
    clock: Clock, cluster: Any, policy: Any, until: jax.Array, updates: jax.Array, rows: int
) -> Run:
    n, K = cluster.n, clock.buffer.worker.shape[0]
    workers = keys.workers(keys.plain(clock.key), n)
    first = clock.version
    limit = first + updates
    turns = max(1, -(-rows * K // CHUNK))
    chunk = -(-rows * K // turns)

    # Rows under construction, flat: entry (t, j) is at t K + j; one row to spare for the buffer.
    buffer = clock.buffer
    names = jnp.stack([buffer.worker, buffer.step, buffer.version, buffer.slot], axis=1)
    times = jnp.stack([buffer.age, buffer.compute], axis=1)
    names = jnp.full(((rows + 1) * K, 4), -1, jnp.int32).at[:K].set(names)
    times = jnp.zeros(((rows + 1) * K, 2), times.dtype).at[:K].set(times)
    dt = jnp.zeros(rows, times.dtype)
    into = jnp.full(rows, clock.head, jnp.int32)
    due, minima = lanes.blocked(clock.due)
    present = jnp.sum(clock.of.phase != ABSENT, dtype=jnp.int32)
    step = partial(arrive, cluster, policy, workers, limit, until, present)

    def unfinished(state: Any) -> jax.Array:
        (clock, minima), _ = state
        due, _ = lanes.earliest(clock.due, minima)
        late = due > (until - clock.origin[0]) - clock.origin[1]
        return lanes.any_lane((clock.version < limit) & jnp.isfinite(due) & ~late)

    def turn(state: Any) -> Any:
        carry, (names, times, dt, into) = state
        carry, record = lax.scan(lambda c, _: step(c), carry, length=chunk)
        row = record.row - first
        entry = jnp.where(record.use, row * K + record.column, names.shape[0])
        made = jnp.where(record.commit, row, rows)
        written = (
            names.at[entry].set(record.names, mode="drop"),
            times.at[entry].set(record.times, mode="drop"),
            dt.at[made].set(record.times[:, 0], mode="drop"),
            into.at[made].set(record.into, mode="drop"),
        )
        return carry, written

    state = ((clock._replace(due=due), minima), (names, times, dt, into))
    (clock, minima), (names, times, dt, into) = lax.while_loop(unfinished, turn, state)

    next_due, _ = lanes.earliest(clock.due, minima)
    horizon = (until - clock.origin[0]) - clock.origin[1]
    over = clock.version >= limit
    idle = jnp.where(jnp.isinf(next_due) & jnp.isinf(horizon), STUCK, UNTIL)
    status = jnp.where(over, DONE, jnp.where(jnp.isnan(next_due), EXHAUSTED, idle))
    at_end = ~over & ~jnp.isnan(next_due) & jnp.isfinite(horizon)

    made = clock.version - first
    rest = lax.dynamic_slice_in_dim(names, made * K, K)
    ages = lax.dynamic_slice_in_dim(times, made * K, K)
    clock = clock._replace(
        due=clock.due[:n],
        now=jnp.where(at_end, jnp.maximum(horizon, clock.now), clock.now),
        buffer=Buffer(*(rest[:, c] for c in range(4)), *(ages[:, c] for c in range(2))),
    )
    names = names[:-K].reshape(rows, K, 4)
    times = times[:-K].reshape(rows, K, 2)
    valid = (names[..., 0] >= 0) & (jnp.arange(rows) < made)[:, None]

    def entries(values: jax.Array) -> jax.Array:
        return jnp.where(valid, values, 0)

    worker = entries(names[..., 0])
    trace = Trace(
        dt=dt,
        worker=worker,
        step=entries(names[..., 1]),
        version=entries(names[..., 2]),
        examples=jnp.where(valid, cluster.examples[worker], 0.0),
        arrival=entries(dt[:, None] - times[..., 0]),
        compute=entries(times[..., 1]),
        slot=entries(names[..., 3]),
        into=into,
        start=first,
        workers=n,
        slots=n,
    )
    return Run(trace, settle(clock), status.astype(jnp.int32), clock)
