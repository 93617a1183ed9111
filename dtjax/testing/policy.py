"""`check_policy`: does a policy keep to the protocol, and what does a random run of it say?"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.clock import inputs
from dtjax.clock.accounting import FATES
from dtjax.clock.simulate import Run, resume, simulate
from dtjax.clock.trace import seconds, staleness
from dtjax.cluster.cluster import Cluster
from dtjax.cluster.delays import exponential
from dtjax.core.protocols import BLOCKED, COMPUTING, HELD, Event, View
from dtjax.policies import Rule
from dtjax.testing import tools
from dtjax.testing.tools import require, stage

ROWS, PART, UNTIL = 12, 5, 1000.0
"""Updates of the run, of its first part; the second at which it ends at the latest. A computation
takes one second on average."""

VIEWS = 64
"""Situations in which a policy is asked."""

DECISION = {"use": "bool[]", "commit": "bool[]", "phase": "int32[]", "sweep": "bool[]"}


def check_policy(policy: Any, n: int = 4) -> None:
    """Check a policy against the protocol `dtjax.protocols.Policy`, and play a random run of it.

    It is a pytree of numbers whose values change under `jit` without a second compile, and sweep
    under `vmap`; its state keeps its structure; no update is made of nothing. On the run: the fates
    of time add up, every computation started has one fate, each gradient's version is the one that
    was current at its start, staleness is conserved, and parts give the bits of the whole.

    Args:
        policy: any pytree with `init`, `width`, `decide` and `sweep`.
        n: workers.

    Raises:
        AssertionError: naming the first property that does not hold.

    Example:
        >>> from dtjax import policies
        >>> check_policy(policies.k_asp(2))
    """
    name = type(policy).__name__
    tools.require_methods(policy, "init", "width", "decide", "sweep")
    tools.require_numbers(policy)
    cluster = Cluster(n, exponential(1.0))
    policy = inputs.canonical("check_policy", cluster, policy)
    width = max(_check_answers(name, policy, n), 2 * n)  # most policies share one compile

    def play(updates: int) -> Run:
        key = jax.random.key(1)
        return simulate(key, cluster, policy, updates=updates, until=UNTIL, rows=ROWS, width=width)

    with stage(name, "in a simulation"):
        whole, part = play(ROWS), play(PART)
        more = ROWS - PART
        rest = resume(part.clock, cluster, policy, updates=more, until=UNTIL, rows=ROWS)
    made = int(whole.accounts.updates)
    require(made, f"{name}: no update was made in {UNTIL:.0f} mean computation times")
    nothing = int(whole.trace.made.sum()) < made
    require(not nothing, f"{name}: an update was made of nothing")
    _check_accounts(name, whole, n)
    _check_versions(name, policy, whole, n)
    last, end = jax.tree.leaves((rest.accounts, rest.clock)), (whole.accounts, whole.clock)
    same = all(map(_equal, last, jax.tree.leaves(end)))
    for row in ("worker", "step", "version", "dt", "arrival"):
        a, b, c = (getattr(run.trace, row) for run in (part, rest, whole))
        same = same and _equal(np.concatenate([a[:PART], b[:more]]), c)
    require(same, f"{name}: a run in two parts differs from the whole")


def _equal(a: Any, b: Any) -> bool:
    return np.array_equal(a, b, equal_nan=True)


def _views(n: int, width: int) -> tuple[View, Event]:
    """Make random situations, each with a leading axis."""
    random = np.random.default_rng(0)

    def integers(low: int, high: Any, *shape: int) -> jax.Array:
        return jnp.asarray(random.integers(low, high, (VIEWS, *shape)), jnp.int32)

    version, worker = integers(0, 20), integers(0, n)
    phase = jnp.asarray(random.choice([COMPUTING, HELD, BLOCKED], (VIEWS, n)), jnp.int32)
    phase = phase.at[jnp.arange(VIEWS), worker].set(COMPUTING)
    present = jnp.full(VIEWS, n, jnp.int32)
    view = View(version, integers(0, width), present, phase, integers(0, 9, n))
    return view, Event(worker, integers(0, np.asarray(version) + 1))


_TRACES: list[str] = []  # one entry for each time that `_answers` was traced


def _begin(policy: Any, n: int) -> Any:
    return policy.init(n)


def _answer(n: int, policy: Any, view: View, event: Event) -> Any:
    state, decision = policy.decide(policy.init(n), view, event)
    return state, decision, policy.sweep(state, view, event, decision)


@partial(jax.jit, static_argnums=2)
def _answers(policy: Any, views: tuple[View, Event], n: int) -> Any:
    """Answer in every situation; policies of one structure share the compile."""
    _TRACES.append(type(policy).__name__)
    return jax.vmap(partial(_answer, n), in_axes=(None, 0, 0))(policy, *views)


def _check_answers(name: str, policy: Any, n: int) -> int:
    with stage(name, "when it is asked for its width"):
        width = policy.width(n)
    require(isinstance(width, int) and width > 0, f"{name}: width must be 1 or more, not {width!r}")
    views = _views(n, width)
    with stage(name, "when it is traced"):
        one = jax.tree.map(lambda leaf: leaf[0], views)
        before = tools.kinds(jax.eval_shape(partial(_begin, n=n), policy))
        state, decision, swept = jax.eval_shape(partial(_answer, n), policy, *one)
        then, found = tools.kinds(state), tools.kinds(decision)._asdict()
    require(before == then, f"{name}: a decision turns a state {before} into {then}")
    require(found == DECISION, f"{name}: a decision must be {DECISION}, not {found}")
    each = (f"bool[{n}]",) * 2
    require(tools.kinds(swept) == each, f"{name}: sweep must give {each}, not {tools.kinds(swept)}")
    with stage(name, "under jit"):
        phases = np.unique(_answers(policy, views, n)[1].phase)
    known = np.isin(phases, (COMPUTING, HELD, BLOCKED)).all()
    require(known, f"{name}: the phase of a decision must be COMPUTING, HELD or BLOCKED")
    others = tools.changed(policy)
    traces = len(_TRACES)
    singles = [_answers(other, views, n) for other in others]
    require(len(_TRACES) == traces, f"{name}: a change of a number compiles anew")
    if others:
        with stage(name, "under vmap over its numbers"):
            lanes = jax.vmap(_answers, (0, None, None))(tools.stack(others), views, n)
        same = map(tools.close, jax.tree.leaves(lanes), jax.tree.leaves(tools.stack(singles)))
        require(all(same), f"{name}: an answer is another one under vmap")
    return width


def _check_accounts(name: str, run: Run, n: int) -> None:
    accounts = jax.tree.map(np.asarray, run.accounts)
    fates = np.array([getattr(accounts, fate) for fate in FATES], np.float64)
    total, elapsed = fates.sum(0), float(accounts.elapsed)
    added = np.allclose(total, elapsed, rtol=1e-5) and (fates >= -1e-5 * elapsed).all()
    require(added, f"{name}: the fates of time are {total} s a worker, but {elapsed} s have passed")
    ended = [
        int(getattr(accounts, fate).sum())
        for fate in ("useful_count", "discarded_count", "cancelled_count")
    ]
    busy, buffered = int((run.clock.of.phase == COMPUTING).sum()), int(accounts.buffered)
    started, fate = int(accounts.started.sum()), sum(ended) + buffered + busy
    require(started == fate, f"{name}: {started} computations were started, {fate} have a fate")
    used = np.bincount(np.asarray(run.trace.worker)[np.asarray(run.trace.valid)], minlength=n)
    require(
        _equal(used, accounts.useful_count),
        f"{name}: the trace and the accounts differ in what is used",
    )


def _check_versions(name: str, policy: Any, run: Run, n: int) -> None:
    trace, clock, J = run.trace, run.clock, int(run.accounts.updates)
    times = seconds(trace)
    valid, version = np.asarray(trace.valid), np.asarray(trace.version)
    begun = times[:, None] - np.asarray(trace.arrival) - np.asarray(trace.compute)
    margin = 1e-4 * (1 + times[-1])
    made = times[:J, None, None]
    newest = (made <= begun + margin).sum(0)
    oldest = (made < begun - margin).sum(0)
    current = ((oldest <= version) & (version <= newest))[valid].all()
    require(current, f"{name}: a gradient was read at a version that was not current at its start")

    # What is not used goes on: each update adds one to the staleness of every computation that it
    # leaves under way.
    accounts = run.accounts
    if isinstance(policy, Rule) and policy.bound is None and policy.distinct:
        left = n - policy.width(n)
    elif not accounts.waiting.any():
        left = n - 1
    else:
        return
    if accounts.discarded_count.any() or accounts.cancelled_count.any():
        return
    busy, buffer = clock.of.phase == COMPUTING, clock.buffer
    pending = np.arange(buffer.version.shape[0]) < int(clock.pending)
    lags = int((J - clock.of.read)[busy].sum()) + int((J - buffer.version)[pending].sum())
    used = int(staleness(trace).sum())
    summed = f"staleness used ({used}) and under way ({lags}) must add up to {left * J}"
    require(used + lags == left * J, f"{name}: {summed}")
