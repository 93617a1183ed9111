"""Any model, loss and metrics on examples with targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.core import checks, random
from dtjax.training.data.partition import Partition
from dtjax.training.data.splits import Data
from dtjax.training.task.task import Task, Version

if TYPE_CHECKING:
    from dtjax.training.models.model import Model

Metric = Callable[[jax.Array, jax.Array], jax.Array]
"""(outputs, targets) -> f[], or f[batch, ...] to be averaged."""

_NOISE = 2**31  # the fold of a computation's key that draws of examples do not reach


def supervised(
    model: Any,
    loss: Metric,
    metrics: Mapping[str, Metric],
    data: Data,
    *,
    batch: int,
    partition: Partition | None = None,
) -> Task:
    """Make a task of a model, a loss and data with targets; mini-batches with replacement.

    In training, random masks (Dropout) are drawn for each (worker, step), and normalisation takes
    the statistics of the worker's own mini-batch: of all the `batch` examples drawn, also where
    `trace.examples` counts fewer. Evaluation has no masks and takes running statistics.

    Running statistics are the server's: each update moves the newest ones by the mean over its
    gradients of what their mini-batches make of them. With one worker that is the usual loop.
    Compressors and optimisers see gradients of parameters alone.

    Args:
        model: a Flax module, as in `dtjax.models.from_flax`, or a `dtjax.models.Model`.
        loss: (outputs, targets) -> f[batch], one an example, as the losses of optax are. Further
            axes are averaged.
        metrics: by name, (outputs, targets) -> f[] or f[batch], which is averaged.
        data: train, validation and test sets; targets are of any type that the loss takes.
        batch: the largest mini-batch, 1 or more; a gradient of fewer examples (`trace.examples`)
            leaves the others out by a mask.
        partition: which examples a worker draws from; None: all see all.

    Returns:
        A task that measures `validation_loss`, `test_loss` and, for each metric,
        `validation_<name>` and `test_<name>`, f[] each. Two tasks made alike share compiled
        programs, if the module, the loss and the metrics are equal: define them once.

    Raises:
        ValueError: if `batch` is below 1, the partition names examples that are not there, a metric
            is called "loss", the loss or a metric has another shape, the model is none, or its
            state holds other numbers than floats.

    Example:
        >>> import optax
        >>> from dtjax import data, models
        >>> x = np.linspace(-1, 1, 100)[:, None]
        >>> task = supervised(
        ...     models.mlp([8], 1), optax.squared_error, {}, data.from_arrays(x, x**2), batch=16
        ... )
        >>> x, y, weight = task.batch(task.data, jax.random.key(0), 0, 0, 10.0)
        >>> y.shape, float(weight.sum())
        ((16, 1), 10.0)
    """
    name = "supervised"
    batch = checks.integer(name, "batch", batch, low=1)
    if partition is None:
        whole = np.arange(len(data.y_train), dtype=np.int32)[None]
        partition = Partition(whole, np.array([whole.size], np.int32))
    if partition.index.max() >= len(data.y_train) or partition.index.min() < 0:
        rule = f"must name examples 0..{len(data.y_train) - 1}"
        raise checks.fail(name, "partition", rule, int(partition.index.max()))
    if "loss" in metrics:
        raise checks.fail(name, "metrics", "must not name one 'loss'", sorted(metrics))
    model = _model(model)
    version = _check(model, loss, metrics, data)

    averages = Averages(loss, tuple(metrics.items()))
    own = model.start is not None
    cut_for = len(partition.size) if len(partition.size) > 1 else None
    arrays = (data, partition.index, partition.size, *([model.start] if own else []))
    return Task(
        data=jax.tree.map(jnp.asarray, arrays),
        init=_own_start if own else _Init(model.init),
        loss=_Loss(model.apply, model.train, loss),
        batch=_Batch(batch, keyed=model.train is not None),
        evaluate=Evaluate(model.apply, averages, averages),
        workers=cut_for,
        examples=batch,
        advance=_Advance(model.train) if isinstance(version, Version) else None,
    )


def _model(model: Any) -> Model:
    from dtjax.training.models.from_flax import from_flax
    from dtjax.training.models.model import Model

    return model if isinstance(model, Model) else from_flax(model)


def _check(model: Model, loss: Metric, metrics: Mapping[str, Metric], data: Data) -> Any:
    """Check the shapes of what a model, a loss and metrics give, and return those of a version.

    A target of shape [batch] beside an output of [batch, 1] would give a loss of [batch, batch].
    """
    features = (*np.shape(data.x_train)[1:], *np.shape(data.y_train)[1:])

    def outputs(x: Any) -> Any:
        version = model.init(jax.random.key(0), x[:1])
        return version, model.apply(version, x)

    def example(table: Any, count: int) -> Any:
        dtype = jax.dtypes.canonicalize_dtype(table.dtype)
        return jax.ShapeDtypeStruct((count, *table.shape[1:]), dtype)

    count = 1 + max(features, default=1)
    version, out = jax.eval_shape(outputs, example(data.x_train, count))
    if out.shape and count in out.shape[1:]:  # no other axis must look like that of the examples
        count = 1 + max(*features, *out.shape)
        version, out = jax.eval_shape(outputs, example(data.x_train, count))
    y = example(data.y_train, count)
    good = {table.shape[:axes] for table in (out, y) for axes in range(1, len(table.shape) + 1)}
    rule = f"must give f[batch] for outputs of shape {_batch(out)} and targets of {_batch(y)}"
    for argument, function in (("loss", loss), *metrics.items()):
        which = "loss" if argument == "loss" else f"metrics[{argument!r}]"
        try:
            shape = jax.eval_shape(function, out, y).shape
        except (TypeError, ValueError) as error:
            raise checks.fail("supervised", which, rule, str(error)) from error
        if shape not in good and not (argument != "loss" and not shape):
            told = _batch(jax.ShapeDtypeStruct(shape, float))
            raise checks.fail("supervised", which, rule, told)
    if isinstance(version, Version):
        for path, leaf in jax.tree_util.tree_leaves_with_path(version.state):
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                kept = f"{jax.tree_util.keystr(path)} of {leaf.dtype}"
                raise checks.fail("supervised", "model", "must keep state of floats alone", kept)
    return version


def _batch(table: Any) -> str:
    return "[" + ", ".join(["batch", *map(str, table.shape[1:])][: len(table.shape)]) + "]"


# Frozen dataclasses and not closures: they are equal if what they are made of is.


@dataclass(frozen=True)
class _Init:
    init: Callable[..., Any]

    def __call__(self, arrays: Any, key: jax.Array) -> Any:
        return self.init(key, arrays[0].x_train[:1])


def _own_start(arrays: Any, key: jax.Array) -> Any:
    del key
    return arrays[3]


@dataclass(frozen=True)
class _Batch:
    size: int
    keyed: bool

    def __call__(self, arrays: Any, key: jax.Array, worker: Any, step: Any, examples: Any) -> Any:
        sets, index, size = arrays[:3]
        key = random.fold(key, worker, step)
        row = worker if index.shape[0] > 1 else 0
        place = random.stream(key, self.size) % size[row].astype(jnp.uint32)
        chosen = index[row, place]
        weight = (jnp.arange(self.size) < examples).astype(sets.x_train.dtype)
        drawn = sets.x_train[chosen], sets.y_train[chosen], weight
        return (*drawn, random.fold(key, _NOISE)) if self.keyed else drawn


@dataclass(frozen=True)
class _Loss:
    apply: Callable[..., Any]
    train: Callable[..., Any] | None
    loss: Metric

    def __call__(self, version: Any, drawn: Any) -> jax.Array:
        x, y, weight, *key = drawn
        outputs = self.apply(version, x) if self.train is None else self.train(version, x, *key)[0]
        each = _each(self.loss(outputs, y))
        return jnp.sum(each * weight) / jnp.maximum(jnp.sum(weight), 1.0)


@dataclass(frozen=True)
class _Advance:
    train: Callable[..., Any] | None

    def __call__(self, version: Version, drawn: Any) -> Any:
        assert self.train is not None  # a model with state has it
        return self.train(version, drawn[0], drawn[3])[1]


@dataclass(frozen=True)
class Averages:
    """(outputs, targets) -> the mean loss and metrics by name, f[]."""

    loss: Metric
    metrics: tuple[tuple[str, Metric], ...]

    def __call__(self, outputs: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
        """Average over the examples."""
        functions = (("loss", self.loss), *self.metrics)
        return {name: jnp.mean(function(outputs, y)) for name, function in functions}


@dataclass(frozen=True)
class Evaluate:
    """(data, version) -> the measures of the validation set and of the test set."""

    apply: Callable[..., Any]
    validation: Callable[..., dict[str, jax.Array]]
    test: Callable[..., dict[str, jax.Array]]

    def __call__(self, arrays: Any, version: Any) -> dict[str, jax.Array]:
        """Measure a version."""
        sets = arrays[0]
        tuned = self.validation(self.apply(version, sets.x_validation), sets.y_validation)
        held = self.test(self.apply(version, sets.x_test), sets.y_test)
        named = {f"validation_{name}": value for name, value in tuned.items()}
        return named | {f"test_{name}": value for name, value in held.items()}


def _each(values: jax.Array) -> jax.Array:
    return values if values.ndim == 1 else jnp.mean(values.reshape(values.shape[0], -1), axis=1)
