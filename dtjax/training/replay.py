"""The trainer: exact stale-gradient SGD along a trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from dtjax.clock.trace import Trace
from dtjax.core import checks, programs, random
from dtjax.core.protocols import Encoder
from dtjax.training.result import Training
from dtjax.training.task.task import Task, trainable
from dtjax.training.update import Rows, TrainState, rows_of, train


def replay(
    key: jax.Array,
    trace: Trace,
    task: Task,
    optimizer: Any,
    *,
    evaluate_every: int,
    encoder: Encoder | None = None,
    downlink: Encoder | None = None,
    params: Any = None,
    rate: ArrayLike | None = None,
) -> Training:
    """Train along a trace: every gradient is computed at the version that its worker had read.

    For each row t: g_j = gradient of the loss of batch (worker_j, step_j) at version_j, for all K
    entries at once; messages are encoded in order of arrival; the update gets
    sum_j examples_j message_j / sum_j examples_j. Pure: write `jax.jit` and `jax.vmap` around it,
    over keys, traces and learning rates (make the optimizer inside the function that is mapped).
    Outside of them it is compiled once for shapes and functions: an equal task or an equal
    optimizer, made anew, compiles nothing, nor does another `rate`.

    Args:
        key: of the initial parameters and the mini-batches; independent of the trace's.
        trace: one run of `simulate`, or one that `make_trace` built.
        task: what is learned.
        optimizer: an optax transformation, or with `rate` a function from a learning rate to one,
            as `optax.sgd`. One that takes extra arguments is given `value`, the row's loss, and
            `staleness`, f[], its mean.
        evaluate_every: gradients between two evaluations, 1 or more, rounded to whole updates: one
            every max(1, evaluate_every // K) rows.
        encoder: what workers do to their gradients before they send them (`dtjax.compressors`, or
            any object with the protocol `dtjax.protocols.Encoder`); None: nothing.
        downlink: what the server does to their average before it applies and sends it; None:
            nothing.
        params: version 0; None: `task.init`.
        rate: f[], the learning rate that `optimizer` is called with; None: it is not called.

    Returns:
        Losses, measures at the start and after each block of rows, and whether the run diverged.

    Raises:
        ValueError: if `evaluate_every` is below 1, the trace is a batch of runs, it starts at
            another version than 0, its mini-batches are larger than the task's, the task's data
            are divided among fewer workers, or an encoder is none.

    Example:
        >>> import dtjax, optax
        >>> cluster = dtjax.Cluster(n=4, delay=dtjax.delays.exponential(1.0))
        >>> run = dtjax.simulate(jax.random.key(0), cluster, dtjax.policies.asp(), updates=200)
        >>> task = dtjax.task.quadratic([1.0, 0.3])
        >>> result = dtjax.replay(
        ...     jax.random.key(1), run.trace, task, optax.sgd(0.2), evaluate_every=50
        ... )
        >>> result.measures["loss"].shape, bool(result.measures["loss"][-1] < 1e-3)
        ((5,), True)
    """
    every = checks.integer("replay", "evaluate_every", evaluate_every, low=1)
    if trace.dt.ndim != 1:
        rule = "must be one run (vmap replay over a batch of runs)"
        raise checks.fail("replay", "trace", rule, f"dt of shape {trace.dt.shape}")
    if checks.is_concrete(trace.start) and int(trace.start) != 0:
        raise checks.fail("replay", "trace", "must start at version 0", int(trace.start))
    fits("replay", task, trace)
    rows, width = trace.worker.shape
    block = max(1, min(every // width, rows))
    for argument, coder in (("encoder", encoder), ("downlink", downlink)):
        _is_encoder(argument, coder)
    given = (key, trace, task, rate, params)
    if not programs.is_eager() or not programs.is_arrays(given):
        return _replay(*given, encoder, downlink, make=optimizer, block=block)
    block = max(1, min(every // width, programs.power_of_two(rows)))
    blocks = -(-rows // block)
    given = (key, _padded(trace, block * programs.ladder(blocks)), task, rate, params)
    fixed, coders = [], []
    for coder in (encoder, downlink):  # a user's may be no pytree, and is then static
        static = not programs.is_arrays(coder)
        fixed.append(coder if static else None)
        coders.append(None if static else coder)

    def compute(given: Any, coders: Any) -> Training:
        both = (own if own is not None else one for own, one in zip(fixed, coders, strict=True))
        return _replay(*given, *both, make=optimizer, block=block)

    static = programs.identity((optimizer, *fixed, block))
    key_ = ("replay", static, programs.signature((given, coders)))
    with jax.debug_nans(False):  # NaN says that a row is padding, or that the run has diverged
        result = programs.compiled(key_, lambda: jax.jit(compute))(given, coders)
    return _cut(result, trace.dt, blocks + 1)


def _padded(trace: Trace, rows: int) -> Trace:
    """Add rows of padding on the host, where no number of rows is compiled."""

    def longer(leaf: Any) -> Any:
        host = np.asarray(leaf)
        spare = rows - len(trace.dt)
        return np.pad(host, [(0, spare)] + [(0, 0)] * (host.ndim - 1)) if host.ndim else host

    return jax.tree.map(longer, replace(trace, transit=None))


def _cut(result: Training, dt: jax.Array, evaluations: int) -> Training:
    """Take the spare rows and evaluations off, on the host."""

    def first(leaf: jax.Array, size: int) -> jax.Array:
        return jax.device_put(np.asarray(leaf)[:size], leaf.sharding if leaf.committed else None)

    kept = {
        name: jax.tree.map(lambda leaf: first(leaf, evaluations), getattr(result, name))
        for name in ("measures", "updates", "gradients")
    }
    return replace(result, loss=first(result.loss, len(dt)), dt=dt, **kept)


def _replay(
    key: jax.Array,
    trace: Trace,
    task: Task,
    rate: Any,
    params: Any,
    encoder: Encoder | None,
    downlink: Encoder | None,
    *,
    make: Any,
    block: int,
) -> Training:
    """Do what `replay` says: `block` rows between two evaluations."""
    optimizer = make if rate is None else make(rate)
    rows = trace.worker.shape[0]
    blocks = -(-rows // block)
    state = begin(key, task, optimizer, trace.workers, trace.slots, encoder, downlink, params)
    spare = blocks * block - rows
    table = jax.tree.map(
        lambda leaf: jnp.pad(leaf, [(0, spare)] + [(0, 0)] * (leaf.ndim - 1)).reshape(
            blocks, block, *leaf.shape[1:]
        ),
        rows_of(trace),
    )

    def several(state: TrainState, rows: Rows) -> tuple[TrainState, Any]:
        return advance(key, state, rows, task, optimizer, encoder, downlink)

    first = measure(task, state)
    state, (losses, later) = lax.scan(several, state, table)
    joined = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, later)
    return Training(
        loss=losses.reshape(-1)[:rows],
        measures=joined.measures,
        updates=joined.updates,
        gradients=joined.gradients,
        diverged=state.diverged,
        params=state.params,
        dt=trace.dt,
    )


class Measured(NamedTuple):
    """One evaluation."""

    measures: dict[str, jax.Array]  # f[...]; NaN once the run has diverged
    updates: jax.Array  # i[] made by then
    gradients: jax.Array  # i[] used by then


def begin(
    key: jax.Array,
    task: Task,
    optimizer: Any,
    workers: int,
    slots: int,
    encoder: Encoder | None = None,
    downlink: Encoder | None = None,
    params: Any = None,
) -> TrainState:
    """Return the state before the first update: what `replay` starts from.

    Args:
        key: as in `replay`.
        task: as in `replay`.
        optimizer: as in `replay`.
        workers: of the trace.
        slots: of the trace.
        encoder: as in `replay`.
        downlink: as in `replay`.
        params: as in `replay`.

    Raises:
        ValueError: if the task's data are divided among fewer workers than the trace has, or an
            encoder is none.
    """
    if task.workers is not None and task.workers < workers:
        rule = f"must be made for the trace's {workers} workers"
        raise checks.fail("begin", "task", rule, task.workers)
    for argument, coder in (("encoder", encoder), ("downlink", downlink)):
        _is_encoder(argument, coder)
    params = task.init(task.data, _keys(key)[0]) if params is None else params
    params = jax.tree.map(jnp.asarray, params)
    models = None
    if slots > 1:
        models = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], slots, axis=0), params)
    memory: Any = ()
    if encoder is not None:
        one = encoder.memory(trainable(task, params))
        memory = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], workers, axis=0), one)
    server = () if downlink is None else downlink.memory(trainable(task, params))
    zero, inner = jnp.int32(0), optimizer.init(trainable(task, params))
    return TrainState(params, inner, models, memory, server, zero, zero, jnp.int32(-1))


def advance(
    key: jax.Array,
    state: TrainState,
    rows: Rows,
    task: Task,
    optimizer: Any,
    encoder: Encoder | None = None,
    downlink: Encoder | None = None,
) -> tuple[TrainState, tuple[jax.Array, Measured]]:
    """Make the updates of some rows, then measure: one turn of `replay`, for loops on the host.

    Args:
        key: as in `replay`, the same at every turn.
        state: before the rows.
        rows: leaves with leading axis the number of rows.
        task: as in `replay`.
        optimizer: as in `replay`.
        encoder: as in `replay`.
        downlink: as in `replay`.

    Returns:
        The state after the rows, the loss of each row, and the measures after the last.
    """
    batches = _keys(key)[1]

    def one(state: TrainState, row: Rows) -> tuple[TrainState, jax.Array]:
        return train(state, row, batches, task, optimizer, encoder, downlink)

    state, losses = lax.scan(one, state, rows)
    return state, (losses, measure(task, state))


def _is_encoder(argument: str, coder: Any) -> None:
    """Raise unless this is an encoder, or None."""
    methods = ("memory", "encode")
    if coder is None or (
        not isinstance(coder, type) and all(callable(getattr(coder, m, None)) for m in methods)
    ):
        return
    rule = "must be an encoder with memory and encode, as those of dtjax.compressors"
    raise checks.fail("begin", argument, rule, coder)


def fits(name: str, task: Task, trace: Trace) -> None:
    """Raise if a trace, where it is concrete, has larger mini-batches than the task."""
    if task.examples is None or not checks.is_concrete(trace.examples):
        return
    most = float(np.max(np.asarray(trace.examples), initial=0.0))
    if most > task.examples:
        rule = f"must have at most the task's batch={task.examples} examples in a gradient"
        raise checks.fail(name, "trace", rule, most)


def _keys(key: jax.Array) -> jax.Array:
    """Return the keys of the initial parameters and of the mini-batches."""
    return jax.random.split(random.typed(key))


def measure(task: Task, state: TrainState) -> Measured:
    """Measure the newest version: NaN once the run has diverged."""
    measures = jax.tree.map(
        lambda leaf: jnp.where(state.diverged >= 0, jnp.nan, leaf.astype(float)),
        task.evaluate(task.data, state.params),
    )
    return Measured(measures, state.version, state.gradients)
