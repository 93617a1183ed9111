"""Classifying, by the cross-entropy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.core import checks
from dtjax.training.data.partition import Partition
from dtjax.training.data.splits import Data
from dtjax.training.task.supervised import Averages, Evaluate, supervised
from dtjax.training.task.task import Task


def classification(
    model: Any, data: Data, *, batch: int, partition: Partition | None = None
) -> Task:
    """Make the task of classifying: mean cross-entropy, mini-batches drawn with replacement.

    Args:
        model: inputs to logits: a Flax module or a `dtjax.models.Model`, as in `supervised`.
        data: train, validation and test sets.
        batch: the largest mini-batch, 1 or more; a gradient of fewer examples (`trace.examples`)
            leaves the others out by a mask.
        partition: which examples a worker draws from; None: all see all.

    Returns:
        A task that measures `validation_loss`, `validation_accuracy`, `test_loss`,
        `test_accuracy`, each f[], and `test_class_accuracy`, f[classes].

    Raises:
        ValueError: if targets are no classes, or as in `supervised`.

    Example:
        >>> from dtjax import data, models
        >>> task = classification(models.mlp([32], 10), data.digits(), batch=32)
        >>> x, y, weight = task.batch(task.data, jax.random.key(0), 0, 0, 20.0)
        >>> x.shape, float(weight.sum())
        ((32, 64), 20.0)
    """
    import optax

    batch = checks.integer("classification", "batch", batch, low=1)
    if not np.issubdtype(data.y_train.dtype, np.integer):
        rule = "must have classes, integers, as targets"
        raise checks.fail("classification", "data", rule, data.y_train.dtype)
    loss = optax.softmax_cross_entropy_with_integer_labels
    task = supervised(model, loss, {"accuracy": _right}, data, batch=batch, partition=partition)
    evaluate: Any = task.evaluate
    by_class = _ByClass(evaluate.test, data.classes)
    return replace(task, evaluate=Evaluate(evaluate.apply, evaluate.validation, by_class))


def _right(logits: jax.Array, y: jax.Array) -> jax.Array:
    return (jnp.argmax(logits, axis=-1) == y).astype(logits.dtype)


@dataclass(frozen=True)
class _ByClass:
    averages: Averages
    classes: int

    def __call__(self, logits: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
        right = _right(logits, y)
        member = jax.nn.one_hot(y, self.classes, dtype=right.dtype)
        accuracy = (right @ member) / jnp.maximum(jnp.sum(member, axis=0), 1.0)
        return self.averages(logits, y) | {"class_accuracy": accuracy}
