"""What is learned: a loss, its mini-batches and its measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.core import checks, random
from dtjax.core.pytree import pytree
from dtjax.training.data.partition import Partition
from dtjax.training.data.splits import Data

if TYPE_CHECKING:
    from dtjax.training.models.model import Model


@pytree
@dataclass(frozen=True)
class Task:
    """A learning problem as pure functions over data: the trainer sees nothing else of it.

    `batch` is a virtual table: the mini-batch of (key, worker, step) depends on nothing else.
    """

    data: Any
    """Arrays that the functions get as their first argument."""
    init: Callable[[Any, jax.Array], Any] = field(metadata={"static": True})
    """(data, key) -> params."""
    loss: Callable[[Any, Any], jax.Array] = field(metadata={"static": True})
    """(params, batch) -> f[], the mean over the examples of the batch."""
    batch: Callable[..., Any] = field(metadata={"static": True})
    """(data, key, worker i[], step i[], examples f[]) -> batch: a pytree of fixed shapes, in which
    only the first `examples` examples count."""
    evaluate: Callable[[Any, Any], dict[str, jax.Array]] = field(metadata={"static": True})
    """(data, params) -> measures by name, arrays of fixed shapes."""
    workers: int | None = field(default=None, metadata={"static": True})
    """How many workers `batch` knows; None: any number."""
    examples: int | None = field(default=None, metadata={"static": True})
    """How many examples a mini-batch holds at most; None: any number."""


def classification(
    model: Model, data: Data, *, batch: int, partition: Partition | None = None
) -> Task:
    """Make the task of classifying: mean cross-entropy, mini-batches drawn with replacement.

    Args:
        model: inputs to logits.
        data: train, validation and test sets.
        batch: the largest mini-batch, 1 or more; a gradient of fewer examples (`trace.examples`)
            leaves the others out by a mask.
        partition: which examples a worker draws from; None: all see all.

    Returns:
        A task that measures `validation_loss`, `validation_accuracy`, `test_loss`,
        `test_accuracy`, each f[], and `test_class_accuracy`, f[classes].

    Raises:
        ValueError: if `batch` is below 1 or the partition names examples that are not there.

    Example:
        >>> from dtjax import data, models
        >>> task = classification(models.mlp([32], 10), data.digits(), batch=32)
        >>> x, y, weight = task.batch(task.data, jax.random.key(0), 0, 0, 20.0)
        >>> x.shape, float(weight.sum())
        ((32, 64), 20.0)
    """
    batch = checks.integer("classification", "batch", batch, low=1)
    if partition is None:
        whole = np.arange(len(data.y_train), dtype=np.int32)[None]
        partition = Partition(whole, np.array([whole.size], np.int32))
    if partition.index.max() >= len(data.y_train) or partition.index.min() < 0:
        rule = f"must name examples 0..{len(data.y_train) - 1}"
        raise checks.fail("classification", "partition", rule, int(partition.index.max()))
    arrays = jax.tree.map(jnp.asarray, (data, partition.index, partition.size))
    cut_for = len(partition.size) if len(partition.size) > 1 else None
    return Task(arrays, *_classifying(model, data.classes, batch), cut_for, batch)


@lru_cache(maxsize=64)
def _classifying(model: Model, classes: int, batch: int) -> tuple[Any, Any, Any, Any]:
    """Return the functions of a task: the same for equal parts, so that nothing compiles anew."""
    import optax

    def init(arrays: Any, key: jax.Array) -> Any:
        return model.init(key, arrays[0].x_train[:1])

    def draw(arrays: Any, key: jax.Array, worker: Any, step: Any, examples: Any) -> Any:
        sets, index, size = arrays
        key = random.fold(key, worker, step)
        row = worker if index.shape[0] > 1 else 0
        place = random.stream(key, batch) % size[row].astype(jnp.uint32)
        chosen = index[row, place]
        weight = (jnp.arange(batch) < examples).astype(sets.x_train.dtype)
        return sets.x_train[chosen], sets.y_train[chosen], weight

    def loss(params: Any, drawn: Any) -> jax.Array:
        x, y, weight = drawn
        each = optax.softmax_cross_entropy_with_integer_labels(model.apply(params, x), y)
        return jnp.sum(each * weight) / jnp.maximum(jnp.sum(weight), 1.0)

    def measure(params: Any, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = model.apply(params, x)
        each = optax.softmax_cross_entropy_with_integer_labels(logits, y)
        return jnp.mean(each), (jnp.argmax(logits, axis=-1) == y).astype(each.dtype)

    def evaluate(arrays: Any, params: Any) -> dict[str, jax.Array]:
        sets = arrays[0]
        tuned, held = (
            measure(params, sets.x_validation, sets.y_validation),
            measure(params, sets.x_test, sets.y_test),
        )
        member = jax.nn.one_hot(sets.y_test, classes, dtype=held[1].dtype)
        return {
            "validation_loss": tuned[0],
            "validation_accuracy": jnp.mean(tuned[1]),
            "test_loss": held[0],
            "test_accuracy": jnp.mean(held[1]),
            "test_class_accuracy": (held[1] @ member) / jnp.maximum(jnp.sum(member, axis=0), 1.0),
        }

    return init, loss, draw, evaluate


def quadratic(
    eigenvalues: checks.Numbers,
    *,
    noise: checks.Numbers = 0.0,
    start: checks.Numbers = 1.0,
) -> Task:
    """Make a quadratic whose optimum, 0, and whose noise are known.

    loss(w) = 1/2 sum_i eigenvalues_i w_i^2, gradients with independent Gaussian noise:
    eigenvalues w + noise N / sqrt(examples).

    Args:
        eigenvalues: f[d], not negative.
        noise: f[] or f[d], standard deviation of a one-example gradient, not negative.
        start: f[] or f[d], the parameters at version 0.

    Returns:
        A task whose parameters are f[d] and that measures `loss` f[] and `square` f[d], w_i^2.

    Raises:
        ValueError: if a number is out of its range or not finite.

    Example:
        >>> task = quadratic([1.0, 0.5], start=2.0)
        >>> float(task.evaluate(task.data, task.init(task.data, jax.random.key(0)))["loss"])
        3.0
    """
    curve = checks.real("quadratic", "eigenvalues", eigenvalues, checks.NON_NEGATIVE, ndim=1)
    spread = checks.real("quadratic", "noise", noise, checks.NON_NEGATIVE)
    first = checks.real("quadratic", "start", start)
    spread, first = (jnp.broadcast_to(leaf, curve.shape) for leaf in (spread, first))
    return Task((curve, spread, first), _start, _pulled, _pull, _distance)


# Functions of the module, not of the call, so that another quadratic compiles nothing anew.


def _start(arrays: Any, key: jax.Array) -> jax.Array:
    del key
    return arrays[2]


def _pull(arrays: Any, key: jax.Array, worker: Any, step: Any, examples: Any) -> Any:
    curve, spread, _ = arrays
    key = random.fold(key, worker, step)
    size = jnp.sqrt(jnp.maximum(jnp.asarray(examples, curve.dtype), 1.0))
    return curve, spread * jax.random.normal(key, curve.shape, curve.dtype) / size


def _pulled(params: jax.Array, drawn: Any) -> jax.Array:
    curve, pull = drawn
    return jnp.sum(0.5 * curve * params**2 + pull * params)


def _distance(arrays: Any, params: jax.Array) -> dict[str, jax.Array]:
    return {"loss": 0.5 * jnp.sum(arrays[0] * params**2), "square": params**2}
