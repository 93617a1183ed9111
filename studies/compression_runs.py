"""What studies/compression.py trains: one compressor with one memory, its error measured.

The error is of what a compressor is given in training: the worker that encodes also puts
|C(x) - x|^2 / |x|^2 into two entries of the "gradient" that are not compressed, and that the
optimizer sums. So it travels by the ways that there are, for every message of every run.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import optax
import xarray as xr

import dtjax
from dtjax import compressors, data, delays, models, policies
from dtjax.compressors.ef21 import Estimate
from dtjax.compressors.error_feedback import Residual
from dtjax.core import checks
from dtjax.core.pytree import pytree
from dtjax.training.task import Task, classification

if TYPE_CHECKING:
    from dtjax.experiment import Progress

NONE, FEEDBACK, EF21 = "none", "feedback", "ef21"
DENSE, VOTE = "identity", "majority-sign"
NUMBERS = {"top-k": float, "random-k": float, "qsgd": int, "power-sgd": int}
"""Compressors that take a number: share, share, levels over whole tensors, rank."""
PLAIN = (
    DENSE,
    "fp16",
    "bf16",
    "fp8",
    "int8",
    "natural",
    "terngrad",
    "one-bit",
    "scaled-sign",
    VOTE,
)
SAME = ("rates", "target", "runs", "tuning_runs", "window", "evaluate_every", "widenings", "seed")
"""Settings that `dtjax.compare` has by the same names."""
NAMED = {"target_seconds": "target_updates", "tuning_seconds": "tuning_updates"}
"""An update takes a second of the clock of `dtjax.compare`."""
KEPT = ("test_loss", "test_accuracy", "validation_loss", "validation_accuracy", "updates")
KEPT += ("gradients", "diverged", "rate", "rate_warning", "tried", "error", "carried")


def settings(names: tuple[str, ...], memories: tuple[str, ...]) -> tuple[str, ...]:
    """Return which compressors are trained with which memories: NAME or NAME + MEMORY.

    Dense gradients come first; compressors have the memories that make sense: none where nothing is
    lost or votes are sent, ef21 where it is contractive.

    Raises:
        ValueError: as in `compressor_of`.
    """
    found = [DENSE]
    for text in names:
        compressor = compressor_of(text)
        for memory in memories if text not in (DENSE, VOTE) else set(memories) & {NONE}:
            if memory != EF21 or compressor.family == compressors.CONTRACTIVE:
                found.append(text if memory == NONE else f"{text} + {memory}")
    return tuple(dict.fromkeys(found))


def parted(setting: str) -> tuple[str, str]:
    """Return compressor and memory of a setting.

    Example:
        >>> parted("top-k:0.1 + ef21"), parted("int8")
        (('top-k:0.1', 'ef21'), ('int8', 'none'))
    """
    text, _, memory = setting.partition(" + ")
    return text, memory or NONE


def compressor_of(text: str) -> Any:
    """Make a compressor from NAME or NAME:NUMBER.

    QSGD takes the norm of whole tensors and TernGrad does not clip: as they are analysed.

    Raises:
        ValueError: if the name is unknown, or the number missing, unwanted or out of its range.

    Example:
        >>> compressor_of("top-k:0.01").bits(jnp.zeros(1000))
        640
    """
    name, colon, number = text.partition(":")
    checks.choice("compression", "compressors", name, (*PLAIN, *NUMBERS))
    kind, rule = NUMBERS.get(name), f"must be {name} without a number"
    try:
        numbers = [] if kind is None else [kind(number)]
    except ValueError:
        numbers = None
    if kind is not None:
        rule = f"must be {name}:NUMBER" + (", an integer" if kind is int else "")
    if numbers is None or (kind is None and colon):
        raise checks.fail("compression", "compressors", rule, text)
    options = {"qsgd": {"bucket": None}, "terngrad": {"clip": None}}.get(name, {})
    return getattr(compressors, name.replace("-", "_"))(*numbers, **options)


def encoder_of(compressor: Any, memory: str) -> Any:
    """Return what the workers do, with its error measured.

    Without a memory it is error feedback of decay 0, which sends C(g), and dense gradients are the
    largest entries, all of them: the same numbers in a program that others need, too. Most of a
    study's time is the compiler's.
    """
    if hasattr(compressor, "decode"):
        return Voted(compressor)
    if isinstance(compressor, type(compressors.identity())):
        compressor = compressors.top_k(1.0)
    if memory == EF21:
        return Probed(compressors.ef21(compressor))
    return Probed(compressors.error_feedback(compressor, decay=float(memory == FEEDBACK)))


@functools.cache
def learning_task(dataset: str, hidden: tuple[int, ...], batch: int) -> Task:
    """Return the task: a network of dense layers on the chosen data; one for all cells."""
    sets = data.LOADERS[dataset]()
    return probed(classification(models.mlp(hidden, sets.classes), sets, batch=batch))


def compute(study: Any, setting: str, progress: Progress) -> xr.Dataset:
    """Tune and train one setting: raw arrays, none of which depends on a bandwidth.

    Update t of BSP takes step t of every worker, read at version t. No more of the clock is needed
    here, so that every compute time is a second, and so is every update.
    """
    text, memory = parted(setting)
    compressor = compressor_of(text)
    task = learning_task(study.dataset, study.hidden, study.batch)
    found = dtjax.compare(
        {setting: dtjax.Arm(policies.bsp(), encoder_of(compressor, memory))},
        dtjax.Cluster(n=study.workers, delay=delays.deterministic(1.0), examples=study.batch),
        task,
        optimizer=optimizer,
        gradients=study.workers * study.updates,
        progress=lambda done, planned: progress.share(done / planned),
        **{name: getattr(study, name) for name in SAME},
    )
    whole = found.isel(world=0, arm=0, drop=True).rename(NAMED)[[*KEPT, *NAMED.values()]]
    params = jax.eval_shape(task.init, task.data, jax.random.key(0))["model"]
    whole = whole.assign(
        bits=((), float(compressor.bits(params)), {"units": "bit"}),
        family=compressor.family,
        declared=declared(compressor, params),
    )
    whole.error.attrs["long_name"] = "sum over updates of the workers' mean |C(x) - x|^2 / |x|^2"
    whole.carried.attrs["long_name"] = "sum over updates of the workers' mean |x| / |gradient|"
    for name in ("target_updates", "tuning_updates"):
        whole[name].attrs = {"note": "infinite: not reached"}
    return whole


def declared(compressor: Any, params: Any) -> float:
    """Return the declared bound of |C(x) - x|^2 / |x|^2: of the worst tensor; NaN: none."""
    values = [compressor.constant(leaf.shape) for leaf in jax.tree.leaves(params)]
    if any(value is None for value in values):
        return float("nan")
    return float(max(1 - x if compressor.family == compressors.CONTRACTIVE else x for x in values))


@pytree
@dataclass(frozen=True)
class Probed:
    """A compressor of `params["model"]` that reports into `params["probe"]`, see `probed`."""

    compressor: Any

    def memory(self, params: Any) -> Any:
        """Return the compressor's."""
        return self.compressor.memory(params["model"])

    def encode(self, memory: Any, gradient: Any, extras: Any) -> tuple[Any, Any]:
        """Encode the model's gradient, and tell how much of what was encoded was lost."""
        own = gradient["model"]
        after, message = self.compressor.encode(memory, own, extras)
        leaves = jax.tree_util.tree_leaves_with_path(own)
        lost = given = norm = jnp.zeros((), gradient["probe"].dtype)
        for (path, g), sent in zip(leaves, jax.tree.leaves(message), strict=True):
            name = jax.tree_util.keystr(path)
            left, whole = _left(memory[name], after[name], g, sent)
            lost, given = lost + jnp.sum(left**2), given + jnp.sum(whole**2)
            norm = norm + jnp.sum(g**2)
        probe = [_ratio(lost, given), jnp.sqrt(_ratio(given, norm))]
        return after, {"model": message, "probe": jnp.stack(probe)}


@pytree
@dataclass(frozen=True)
class Voted(Probed):
    """The same for a compressor whose server decodes."""

    def decode(self, average: Any) -> Any:
        """Decode the model's part."""
        return average | {"model": self.compressor.decode(average["model"])}


def _left(before: Any, after: Any, gradient: jax.Array, sent: jax.Array) -> tuple[Any, Any]:
    """Return what the compressor lost of one tensor, and what it was given."""
    if isinstance(after, Residual):
        return after.residual, sent + after.residual
    if isinstance(after, Estimate):
        return gradient - after.estimate, gradient - before.estimate
    return gradient - sent, gradient


def _ratio(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.where(b > 0, a / jnp.where(b > 0, b, 1.0), 0.0)


def probed(task: Task) -> Task:
    """Return a task whose parameters have two more entries, `probe`, sums over the updates.

    Of the mean over the workers of |C(x) - x|^2 / |x|^2, and of |x| / |gradient|; x is what is
    compressed, the gradient with what the memory adds. Measures `error` and `carried`.
    """

    def init(data: Any, key: jax.Array) -> Any:
        return {"model": task.init(data, key), "probe": jnp.zeros(2)}

    def evaluate(data: Any, params: Any) -> Any:
        error, carried = params["probe"]
        return task.evaluate(data, params["model"]) | {"error": error, "carried": carried}

    return dataclasses.replace(
        task,
        init=init,
        loss=lambda params, batch: task.loss(params["model"], batch),
        evaluate=evaluate,
    )


def optimizer(rate: Any) -> Any:
    """Return SGD for the model; the probe is summed."""
    parts: Any = {"model": optax.sgd(rate), "probe": optax.scale(1.0)}
    return optax.partition(parts, {"model": "model", "probe": "probe"})
