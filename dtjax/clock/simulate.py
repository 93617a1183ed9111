"""The clock: from machines and a policy to a trace of updates, or to what is asked of it."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple, overload

import jax
import numpy as np
from jax.typing import ArrayLike

from dtjax.clock import inputs
from dtjax.clock.dispatch import FRESH, Plan, choose, run
from dtjax.clock.engine import advance, start
from dtjax.clock.results import Run, Summary
from dtjax.clock.state import Clock
from dtjax.core import checks, programs

__all__ = ["resume", "simulate"]


@overload
def simulate(
    key: jax.Array,
    cluster: Any,
    policy: Any,
    *,
    updates: Any = None,
    until: ArrayLike | None = None,
    width: int | None = None,
    rows: int | None = None,
    collect: Literal["trace"] = "trace",
    bins: int | None = None,
    path: str = "auto",
) -> Run: ...


@overload
def simulate(
    key: jax.Array,
    cluster: Any,
    policy: Any,
    *,
    updates: Any = None,
    until: ArrayLike | None = None,
    width: int | None = None,
    rows: int | None = None,
    collect: Literal["statistics", "seconds"],
    bins: int | None = None,
    path: str = "auto",
) -> Summary: ...


def simulate(
    key: jax.Array,
    cluster: Any,
    policy: Any,
    *,
    updates: Any = None,
    until: ArrayLike | None = None,
    width: int | None = None,
    rows: int | None = None,
    collect: str = "trace",
    bins: int | None = None,
    path: str = "auto",
) -> Run | Summary:
    """Simulate one run of a policy on a cluster; `vmap` it over keys, policies or laws.

    Every number in `cluster`, `policy` and `until` is traced: a change of one compiles nothing
    anew. Shapes are static: the number of workers, the rows and the widest update. Outside `jit`
    and `vmap` rows and widths are computed at the next power of two and then cut, so that most
    changes of `updates` and k compile nothing either.

    Args:
        key: a JAX random key. The time of computation (worker, step) depends on the key, the worker
            and the step alone: policies are compared under common random numbers.
        cluster: the machines, `dtjax.Cluster(...)`.
        policy: a `dtjax.policies.Rule`, or any pytree with the protocol `dtjax.protocols.Policy`.
        updates: how many updates to make at most, 1 or more. May be traced if `rows` is given.
            None: as many as there are by `until`, where statistics are collected.
        until: seconds; the run ends at that time if it is not over before. Events at that instant
            count. None: no limit.
        width: the most gradients in one update, K; None: asked of the policy, whose k must then be
            known. Under a `vmap` over k give the largest.
        rows: how many rows the trace has, at least `updates`; None: `updates`.
        collect: what to keep: "trace", or in memory that does not grow with the updates
            "statistics", or of each update "seconds" alone (`run.dt`).
        bins: of the histogram of staleness in the statistics; None: 8 n. Its last bin counts all
            that is staler.
        path: "auto" takes a fast path where there is one: not for a trace, a policy that discards
            or is traced, or a law that looks at the clock (nor, for BSP and k-BSP, one with a
            state). "general" and "fast" insist. The fast paths play the same (worker, step) table
            and round times differently, so that two arrivals closer than rounding may swap.
            Only "seconds" of BSP and k-BSP with independent workers of one law and no `until` are
            drawn as order statistics, one number an update: other random numbers, no accounts.

    Returns:
        A `Run`: the trace (rows that were not made are padding), the accounts up to the last update
        or to `until`, the status, and the clock to go on from. If no trace is collected, a
        `Summary`: accounts, status, and `statistics` or `dt`.

    Raises:
        ValueError: if an argument is out of its range, more distinct workers are asked for than
            there are, or `path` is "fast" where there is none.

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
    inputs.one_key(name, key)
    job, policy, until, updates = prepare(
        name,
        cluster,
        policy,
        updates=updates,
        until=until,
        width=width,
        rows=rows,
        collect=collect,
        bins=bins,
        path=path,
    )
    if programs.is_staged():
        return execute(key, cluster, policy, until, updates, job)
    wide = widened(job) if programs.is_eager() else job
    given = (key, cluster, policy, until, updates)
    program = programs.compiled(
        (name, wide, programs.signature(given)), lambda: jax.jit(partial(_alone, wide))
    )
    return cut(program(*given), job, wide)


class Job(NamedTuple):
    """What decides shapes and kernels, all of it static."""

    plan: Plan
    width: int
    rows: int


def prepare(
    name: str,
    cluster: Any,
    policy: Any,
    *,
    updates: Any,
    until: ArrayLike | None,
    width: int | None,
    rows: int | None,
    collect: str,
    bins: int | None,
    path: str,
) -> tuple[Job, Any, jax.Array, jax.Array]:
    """Check what `simulate` is given; return the job, and the policy and the ends as arrays."""
    policy = inputs.canonical(name, cluster, policy)
    width = inputs.width(name, cluster, policy, width)
    plan = choose(name, cluster, policy, collect=collect, bins=bins, path=path, until=until)
    if updates is None:
        if until is None or rows is not None or collect != "statistics":
            rule = 'must be given, unless `until` is, `rows` is not, and collect="statistics"'
            raise checks.fail(name, "updates", rule, updates)
        updates = inputs.MOST // width
    rows, updates, until = inputs.ends(name, rows, updates, until, width)
    job = Job(plan, width, rows)
    if plan.collect == "statistics":
        job = widened(job)  # no result has these sizes: compile for few
    return job, policy, until, updates


def widened(job: Job) -> Job:
    """Return a job with the next powers of two for rows and width, unless that is too much."""
    rows, width = (programs.power_of_two(size) for size in (job.rows, job.width))
    return job._replace(rows=rows, width=width) if rows * width <= inputs.MOST else job


def cut(run: Any, job: Job, wide: Job) -> Any:
    """Cut what a widened job has to spare off its results, on the host: nothing is compiled.

    Args:
        run: a `Run` or a `Summary`; batches have leading axes.
        job: what was asked for.
        wide: what was computed.
    """
    if job == wide:
        return run
    rows, width = job.rows, job.width

    def keep(leaf: Any, *sizes: int) -> Any:
        lead = np.ndim(run.status)
        place = (slice(None),) * lead + tuple(slice(size) for size in sizes)
        if isinstance(leaf, np.ndarray):
            return leaf[place]
        where = leaf.sharding if leaf.committed else None
        return jax.device_put(np.asarray(leaf)[place], where)

    if isinstance(run, Summary):
        return run if run.dt is None else replace(run, dt=keep(run.dt, rows))
    entries = np.ndim(run.status) + 2
    trace = jax.tree.map(
        lambda leaf: keep(leaf, *(rows, width)[: np.ndim(leaf) - entries + 2]), run.trace
    )
    buffer = jax.tree.map(lambda leaf: keep(leaf, width), run.clock.buffer)
    return replace(run, trace=trace, clock=run.clock._replace(buffer=buffer))


def _alone(
    job: Job, key: jax.Array, cluster: Any, policy: Any, until: jax.Array, updates: jax.Array
) -> Run | Summary:
    """As `execute`, as one program that holds its parts and leaves nothing behind."""
    return execute(key, cluster, policy, until, updates, job, inspect.unwrap)


def execute(
    key: jax.Array,
    cluster: Any,
    policy: Any,
    until: jax.Array,
    updates: jax.Array,
    job: Job,
    own: Any = lambda kernel: kernel,
) -> Run | Summary:
    """Do one run of a job that `prepare` made; `own` is done to the kernels first."""
    plan, width, rows = job
    if plan.kernel != "general":
        return own(run)(key, cluster, policy, until, updates, plan=plan, width=width, rows=rows)
    clock = own(start)(key, cluster, policy, width, plan.collect == "trace")
    kept = (plan.collect, plan.bins, plan.fresh)
    return own(advance)(clock, cluster, policy, until, updates, rows, *kept)


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
    policy = inputs.canonical(name, cluster, policy)
    inputs.one_run(name, cluster, clock)
    width = inputs.width(name, cluster, policy, clock.buffer.worker.shape[0])
    fresh = jax.eval_shape(partial(start, width=width), clock.key, cluster, policy)
    inputs.same_run(name, clock, fresh)
    rows, updates, until = inputs.ends(name, rows, updates, until, width)
    fresh = getattr(policy, "form", None) in FRESH
    if programs.is_staged():
        return advance(clock, cluster, policy, until, updates, rows, fresh=fresh)
    job = Job(Plan("trace", "general", None, 0), width, rows)
    wide = widened(job)._replace(width=width) if programs.is_eager() else job
    given = (clock, cluster, policy, until, updates)
    program = programs.compiled(
        (name, wide, fresh, programs.signature(given)),
        lambda: jax.jit(partial(inspect.unwrap(advance), rows=wide.rows, fresh=fresh)),
    )
    return cut(program(*given), job, wide)
