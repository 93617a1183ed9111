"""One update of the model from one row of a trace."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from dtjax import keys
from dtjax.task import Task
from dtjax.types import Trace, staleness


class Extras(NamedTuple):
    """What an encoder may know of the gradient that it gets."""

    worker: jax.Array  # i[]
    step: jax.Array  # i[]
    staleness: jax.Array  # i[]
    examples: jax.Array  # f[]
    key: jax.Array  # key[], of (worker, step)


class Encoder(Protocol):
    """What a worker does to its gradient before it sends it. S is a worker's memory, any pytree."""

    def init(self, params: Any) -> Any:
        """Return the memory S of one worker before its first gradient."""
        ...

    def encode(self, state: Any, gradient: Any, extras: Extras) -> tuple[Any, Any]:
        """Return (S, message), the message a pytree like the gradient."""
        ...


class TrainState(NamedTuple):
    """What the next update needs."""

    params: Any  # the newest version
    optimizer: Any
    models: Any  # leaves with a leading axis: the versions that are kept, by slot; None: one is
    memory: Any  # leaves with leading axis n: the encoder's state of each worker; () without one
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
) -> tuple[TrainState, jax.Array]:
    """Make one update from one row of a trace.

    Args:
        state: before the update.
        row: K entries; a row of padding changes nothing.
        key: of the mini-batches.
        task: what is learned.
        optimizer: an optax transformation.
        encoder: what workers do to their gradients; None: nothing.

    Returns:
        The state after the update, and the row's mean loss f[] (NaN in padding).
    """
    import optax

    def compute(read: Any, worker: jax.Array, step: jax.Array, examples: jax.Array) -> Any:
        batch = task.batch(task.data, key, worker, step, examples)
        return jax.value_and_grad(task.loss)(read, batch)

    read, axis = state.params, None  # one version: K mini-batches of one model
    if state.models is not None:
        read, axis = jax.tree.map(lambda leaf: leaf[row.slot], state.models), 0
    computed = jax.vmap(compute, in_axes=(axis, 0, 0, 0))
    losses, gradients = computed(read, row.worker, row.step, row.examples)
    valid = row.examples > 0
    total = jnp.sum(row.examples)
    weights = row.examples / jnp.where(total > 0, total, 1.0)
    memory = state.memory
    if encoder is not None:
        memory, gradients = _encode(encoder, memory, gradients, row, key)
    average = _weigh(weights, valid, gradients)
    loss = jnp.sum(jnp.where(valid, weights * losses, 0.0))

    update = optax.with_extra_args_support(optimizer).update
    mean = jnp.sum(jnp.where(valid, row.staleness, 0)) / jnp.maximum(jnp.sum(valid), 1)
    change, inner = update(average, state.optimizer, state.params, value=loss, staleness=mean)
    params = optax.apply_updates(state.params, change)

    finite = jnp.isfinite(loss) & _finite(change, params)
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
        memory=keep(memory, state.memory),
        version=state.version + made,
        gradients=state.gradients + jnp.sum(valid, dtype=jnp.int32),
        diverged=jnp.where(made & ~finite & (state.diverged < 0), state.version, state.diverged),
    )
    return new, jnp.where(made, loss, jnp.nan)


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


def _encode(
    encoder: Encoder, memory: Any, gradients: Any, row: Rows, key: jax.Array
) -> tuple[Any, Any]:
    """Encode a row's gradients one after another: a worker may have delivered two of them."""

    def one(memory: Any, entry: Any) -> tuple[Any, Any]:
        gradient, worker, step, stale, examples = entry
        own = keys.fold(key, worker, step)
        mine = jax.tree.map(lambda leaf: leaf[worker], memory)
        extras = Extras(worker, step, stale, examples, keys.fold(own, 1))
        after, message = encoder.encode(mine, gradient, extras)
        count = jax.tree.leaves(memory)[0].shape[0] if jax.tree.leaves(memory) else 0
        place = jnp.where(examples > 0, worker, count)
        memory = jax.tree.map(lambda all_, x: all_.at[place].set(x, mode="drop"), memory, after)
        return memory, message

    entries = (gradients, row.worker, row.step, row.staleness, row.examples)
    return lax.scan(one, memory, entries)
