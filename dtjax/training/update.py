"""One update of the model from one row of a trace."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dtjax.clock.trace import Trace, staleness
from dtjax.core import random
from dtjax.core.protocols import Encoder, Extras
from dtjax.training.task.task import Task, Version, trainable


class TrainState(NamedTuple):
    """What the next update needs."""

    params: Any  # the newest version, with its state if the task's model has one
    optimizer: Any
    models: Any  # leaves with a leading axis: the versions that are kept, by slot; None: one is
    memory: Any  # leaves with leading axis n: the encoder's memory of each worker; () without one
    server: Any  # the downlink's memory; () without one
    version: jax.Array  # i[]
    gradients: jax.Array  # i[] used so far
    diverged: jax.Array  # i[] version at which the loss or the step was not finite; -1: never


class Rows(NamedTuple):
    """Rows of a trace as the trainer reads them."""

    worker: jax.Array  # i[..., K]
    step: jax.Array  # i[..., K]
    examples: jax.Array  # f[..., K]
    staleness: jax.Array  # i[..., K]
    slot: jax.Array  # i[..., K]
    into: jax.Array  # i[...]


def rows_of(trace: Trace) -> Rows:
    """Return the rows of a trace, or of a batch of traces."""
    stale = staleness(trace)
    return Rows(trace.worker, trace.step, trace.examples, stale, trace.slot, trace.into)


def train(
    state: TrainState,
    row: Rows,
    key: jax.Array,
    task: Task,
    optimizer: Any,
    encoder: Encoder | None,
    downlink: Encoder | None = None,
) -> tuple[TrainState, jax.Array]:
    """Make one update from one row of a trace.

    Args:
        state: before the update.
        row: K entries; a row of padding changes nothing.
        key: of the mini-batches.
        task: what is learned.
        optimizer: an optax transformation.
        encoder: what workers do to their gradients; None: nothing.
        downlink: what the server does to their average; None: nothing.

    Returns:
        The state after the update, and the row's mean loss f[] (NaN in padding).
    """
    import optax

    losses, gradients, moves = _compute(state, row, key, task)
    valid = row.examples > 0
    total = jnp.sum(row.examples)
    weights = row.examples / jnp.where(total > 0, total, 1.0)
    memory, server, average = _send(state, row, key, gradients, weights, encoder, downlink)
    loss = jnp.sum(jnp.where(valid, weights * losses, 0.0))

    update = optax.with_extra_args_support(optimizer).update
    mean = jnp.sum(jnp.where(valid, row.staleness, 0)) / jnp.maximum(jnp.sum(valid), 1)
    before = trainable(task, state.params)
    change, inner = update(average, state.optimizer, before, value=loss, staleness=mean)
    params = optax.apply_updates(before, change)

    finite = jnp.isfinite(loss) & _finite(change, params)
    if task.advance is not None:
        move = _weigh(weights, valid, moves)
        params = Version(params, jax.tree.map(jnp.add, state.params.state, move))
        finite = finite & _finite(move, params.state)
    made = jnp.any(valid)
    good = made & finite & (state.diverged < 0)

    def keep(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(good, a, b), new, old)

    params = keep(params, state.params)
    models = state.models
    if models is not None:
        into = jnp.where(good, row.into, jax.tree.leaves(models)[0].shape[0])
        models = jax.tree.map(lambda m, leaf: m.at[into].set(leaf, mode="drop"), models, params)
    new = TrainState(
        params=params,
        optimizer=keep(inner, state.optimizer),
        models=models,
        memory=memory,
        server=keep(server, state.server),
        version=state.version + made,
        gradients=state.gradients + jnp.sum(valid, dtype=jnp.int32),
        diverged=jnp.where(made & ~finite & (state.diverged < 0), state.version, state.diverged),
    )
    return new, jnp.where(made, loss, jnp.nan)


def _send(
    state: TrainState,
    row: Rows,
    key: jax.Array,
    gradients: Any,
    weights: jax.Array,
    encoder: Encoder | None,
    downlink: Encoder | None,
) -> tuple[Any, Any, Any]:
    """Encode the gradients and average the messages: (memories, the server's, the average)."""
    memory, server = state.memory, state.server
    if encoder is not None:
        memory, gradients = _encode(encoder, memory, gradients, row, key, state.diverged < 0)
    average = _weigh(weights, row.examples > 0, gradients)
    decode = getattr(encoder, "decode", None)
    if decode is not None:
        average = decode(average)
    if downlink is not None:
        nobody, total = jnp.int32(-1), jnp.sum(row.examples)
        extras = _extras(key, nobody, state.version, jnp.int32(0), total)
        server, average = downlink.encode(server, average, extras)
    return memory, server, average


def _compute(state: TrainState, row: Rows, key: jax.Array, task: Task) -> tuple[Any, Any, Any]:
    """Return the losses and gradients of the entries, and how each moves the state; () if none."""

    def compute(read: Any, worker: jax.Array, step: jax.Array, examples: jax.Array) -> Any:
        batch = task.batch(task.data, key, worker, step, examples)
        if task.advance is None:
            return *jax.value_and_grad(task.loss)(read, batch), ()
        return _with_state(task, read, state.params.state, batch)

    read, axis = state.params, None  # one version: K mini-batches of one model
    if state.models is not None:
        read, axis = jax.tree.map(lambda leaf: leaf[row.slot], state.models), 0
    computed = jax.vmap(compute, in_axes=(axis, 0, 0, 0))
    return computed(read, row.worker, row.step, row.examples)


def _with_state(task: Task, read: Version, newest: Any, batch: Any) -> tuple[Any, Any, Any]:
    """Return the loss and gradient at the version read, and how the batch moves the newest state.

    The server applies a running mean to its newest one, as it applies a gradient. To average what
    workers make of the states that they read would run as many means as there are workers, each
    slower by the staleness; and differences to what was read, added up, need not be stable.
    What both calls compute is computed once: the compiler merges equal operations.
    """
    assert task.advance is not None
    loss, gradient = jax.value_and_grad(lambda p: task.loss(Version(p, read.state), batch))(
        read.params
    )
    after = task.advance(Version(read.params, newest), batch)
    return loss, gradient, jax.tree.map(jnp.subtract, after, newest)


def _weigh(weights: jax.Array, valid: jax.Array, gradients: Any) -> Any:
    """Sum K gradients with their weights; what stands in padding does not count, even if NaN."""
    if weights.shape[0] == 1:  # a row of one gradient is whole, or nothing of it is kept
        return jax.tree.map(lambda leaf: leaf[0], gradients)

    def product(leaf: jax.Array) -> jax.Array:
        # Several times as fast as a masked sum.
        clean = jnp.where(lax.expand_dims(valid, range(1, leaf.ndim)), leaf, 0.0)
        return jnp.tensordot(weights.astype(leaf.dtype), clean, 1, precision=lax.Precision.HIGHEST)

    return jax.tree.map(product, gradients)


def _finite(change: Any, params: Any) -> jax.Array:
    """Whether a change is finite, and leaves parameters finite that were so, b[].

    The squares of the change must not overflow: in binary32 one of more than 10^19 counts as not
    finite. Asked of the change, it does not wait for the parameters, which are then written once;
    only those of a type so narrow that a smaller change can overflow are looked at themselves. Sums
    over leading axes are vectorised; on CPU an `all` over every entry is not.
    """
    finite = jnp.bool_(True)
    for leaf, after in zip(jax.tree.leaves(change), jax.tree.leaves(params), strict=True):
        size = jnp.abs(leaf).astype(jnp.promote_types(jnp.abs(leaf).dtype, jnp.float32))
        squares = jnp.sum(jnp.square(size), axis=tuple(range(leaf.ndim - 1)))
        finite = finite & jnp.isfinite(squares).all()
        if jnp.finfo(after.dtype).max < jnp.finfo(jnp.bfloat16).max:
            finite = finite & jnp.isfinite(after).all()
    return finite


def _extras(
    key: jax.Array, worker: jax.Array, step: jax.Array, stale: jax.Array, examples: jax.Array
) -> Extras:
    own = random.fold(random.fold(key, worker, step), 1)
    return Extras(worker, step, stale, examples, own, random.fold(key, random.WORLD, step))


def _encode(
    encoder: Encoder, memory: Any, gradients: Any, row: Rows, key: jax.Array, goes_on: jax.Array
) -> tuple[Any, Any]:
    """Encode a row's gradients, one after another: a worker may have delivered two of them.

    The memory is written here and not chosen at the end like other state, which would touch that of
    all the workers at every update. So that it is that of used gradients alone, an encoder must not
    take up what is not finite.
    """

    def message(mine: Any, entry: Any) -> tuple[Any, Any]:
        gradient, worker, step, stale, examples = entry
        return encoder.encode(mine, gradient, _extras(key, worker, step, stale, examples))

    def one(memory: Any, entry: Any) -> tuple[Any, Any]:
        _, worker, _, _, examples = entry
        mine = jax.tree.map(lambda leaf: leaf[worker], memory)
        after, sent = message(mine, entry)
        count = jax.tree.leaves(memory)[0].shape[0]
        place = jnp.where((examples > 0) & goes_on, worker, count)
        return jax.tree.map(lambda all_, x: all_.at[place].set(x, mode="drop"), memory, after), sent

    entries = (gradients, row.worker, row.step, row.staleness, row.examples)
    if not jax.tree.leaves(memory):  # then their order does not matter
        return memory, jax.vmap(lambda entry: message(memory, entry)[1])(entries)
    return lax.scan(one, memory, entries)
