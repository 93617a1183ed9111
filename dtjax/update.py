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
    models: Any  # leaves with a leading axis: the versions that are kept, by slot
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

    def compute(slot: jax.Array, worker: jax.Array, step: jax.Array, examples: jax.Array) -> Any:
        read = jax.tree.map(lambda leaf: leaf[slot], state.models)
        batch = task.batch(task.data, key, worker, step, examples)
        return jax.value_and_grad(task.loss)(read, batch)

    losses, gradients = jax.vmap(compute)(row.slot, row.worker, row.step, row.examples)
    valid = row.examples > 0
    total = jnp.sum(row.examples)
    weights = row.examples / jnp.where(total > 0, total, 1.0)
    memory = state.memory
    if encoder is not None:
        memory, gradients = _encode(encoder, memory, gradients, row, key)
    average = jax.tree.map(lambda leaf: _weigh(weights, valid, leaf), gradients)
    loss = jnp.sum(jnp.where(valid, weights * losses, 0.0))

    update = optax.with_extra_args_support(optimizer).update
    mean = jnp.sum(jnp.where(valid, row.staleness, 0)) / jnp.maximum(jnp.sum(valid), 1)
    change, inner = update(average, state.optimizer, state.params, value=loss, staleness=mean)
    params = optax.apply_updates(state.params, change)

    finite = jnp.isfinite(loss) & _finite(params)
    made = jnp.any(valid)
    good = made & finite & (state.diverged < 0)

    def keep(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(good, a, b), new, old)

    params = keep(params, state.params)
    slots = jax.tree.leaves(state.models)[0].shape[0]
    into = jnp.where(good, row.into, slots)
    new = TrainState(
        params=params,
        optimizer=keep(inner, state.optimizer),
        models=jax.tree.map(
            lambda kept, leaf: kept.at[into].set(leaf, mode="drop"), state.models, params
        ),
        memory=keep(memory, state.memory),
        version=state.version + made,
        gradients=state.gradients + jnp.sum(valid, dtype=jnp.int32),
        diverged=jnp.where(made & ~finite & (state.diverged < 0), state.version, state.diverged),
    )
    return new, jnp.where(made, loss, jnp.nan)


def _weigh(weights: jax.Array, valid: jax.Array, leaf: jax.Array) -> jax.Array:
    """Sum K gradients with their weights; what stands in padding does not count, even if NaN."""
    shape = (-1, *[1] * (leaf.ndim - 1))
    clean = jnp.where(valid.reshape(shape), leaf, 0.0)
    return jnp.sum(clean * weights.reshape(shape).astype(leaf.dtype), axis=0)


def _finite(tree: Any) -> jax.Array:
    """Whether all entries are finite, b[]."""
    finite = jnp.bool_(True)
    for leaf in jax.tree.leaves(tree):
        # NaN where an entry is not finite. Sums over leading axes are vectorised; on CPU an `all`
        # over every entry is not, and took a third as long as the gradients themselves.
        sums = jnp.sum(leaf - leaf, axis=tuple(range(leaf.ndim - 1)))
        finite = finite & jnp.all(sums == 0)
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
