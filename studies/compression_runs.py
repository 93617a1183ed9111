"""What studies/compression.py and studies/compression_staleness.py train and measure.

A compressor's error is measured on what it is given in training: the worker that encodes also puts
|C(x) - x|^2 / |x|^2 into two entries of the "gradient" that are not compressed, and that the
optimizer sums. So it travels by the ways that there are, for every message of every run.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dtjax import compressors
from dtjax.analysis.bootstrap import bounds, median, ratio, resampled
from dtjax.compressors.ef21 import Estimate
from dtjax.compressors.error_feedback import Residual
from dtjax.core import checks
from dtjax.core.pytree import pytree

if TYPE_CHECKING:
    from dtjax.training.task import Task

NONE, FEEDBACK, EF21 = "none", "feedback", "ef21"
MEMORIES = (NONE, FEEDBACK, EF21)
DENSE, VOTE = "identity", "majority-sign"
NUMBERS = {"top-k": float, "random-k": float, "qsgd": int, "power-sgd": int}
"""Compressors that take a number: share, share, levels over whole tensors, rank."""
PLAIN = (DENSE, "fp16", "bf16", "fp8", "int8", "natural", "terngrad", "one-bit", "scaled-sign")
NAMES = (*PLAIN, VOTE, *NUMBERS)


def compressor_of(study: str, text: str) -> Any:
    """Make a compressor from NAME or NAME:NUMBER.

    QSGD takes the norm of whole tensors and TernGrad does not clip: as they are analysed.

    Raises:
        ValueError: if the name is unknown, or the number missing, unwanted or out of its range.

    Example:
        >>> compressor_of("study", "top-k:0.01").bits(jnp.zeros(1000))
        640
    """
    name, colon, number = text.partition(":")
    checks.choice(study, "compressors", name, NAMES)
    kind = NUMBERS.get(name)
    if (kind is None) == bool(colon):
        rule = f"must be {name}" + (" without a number" if kind is None else ":NUMBER")
        raise checks.fail(study, "compressors", rule, text)
    factory = getattr(compressors, name.replace("-", "_"))
    if kind is None:
        return factory(clip=None) if name == "terngrad" else factory()
    try:
        value = kind(number)
    except ValueError:
        rule = f"must be {name}:NUMBER, an {kind.__name__}"
        raise checks.fail(study, "compressors", rule, text) from None
    return factory(value, bucket=None) if name == "qsgd" else factory(value)


def allowed(compressor: Any, memory: str) -> bool:
    """Whether a memory makes sense: none where nothing is lost, or lengths are not sent."""
    if isinstance(compressor, (type(compressors.identity()), type(compressors.majority_sign()))):
        return memory == NONE
    return memory != EF21 or compressor.family == compressors.CONTRACTIVE


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
    compressed, the gradient with what the memory adds. Measures `error_sum` and `carried_sum`.
    """

    def init(data: Any, key: jax.Array) -> Any:
        return {"model": task.init(data, key), "probe": jnp.zeros(2)}

    def evaluate(data: Any, params: Any) -> Any:
        error, carried = params["probe"]
        return task.evaluate(data, params["model"]) | {"error_sum": error, "carried_sum": carried}

    return dataclasses.replace(
        task,
        init=init,
        loss=lambda params, batch: task.loss(params["model"], batch),
        evaluate=evaluate,
    )


def optimizer(rate: Any) -> Any:
    """Return SGD for the model; the probe is summed."""
    import optax

    parts: Any = {"model": optax.sgd(rate), "probe": optax.scale(1.0)}
    return optax.partition(parts, {"model": "model", "probe": "probe"})


def lanes(encoder: Any, count: int) -> Any:
    """Repeat an encoder's numbers for so many runs."""
    return jax.tree.map(lambda x: np.repeat(np.asarray(x)[None], count, axis=0), encoder)


def declared(compressor: Any, params: Any) -> float:
    """Return the declared bound of |C(x) - x|^2 / |x|^2: of the worst tensor; NaN: none."""
    values = [compressor.constant(leaf.shape) for leaf in jax.tree.leaves(params)]
    if any(value is None for value in values):
        return float("nan")
    worst = [1 - x if compressor.family == compressors.CONTRACTIVE else x for x in values]
    return float(max(worst))


def bsp_trace(workers: int, updates: int, examples: float) -> Any:
    """Return the trace of BSP: update t takes step t of every worker, read at version t.

    No clock is needed: times decide only in which order a row is added up.
    """
    import dtjax

    t = np.arange(updates)[:, None]
    worker = np.broadcast_to(np.arange(workers), (updates, workers))
    return dtjax.make_trace(
        dt=np.zeros(updates),
        worker=worker,
        version=np.broadcast_to(t, worker.shape),
        step=np.broadcast_to(t, worker.shape),
        examples=examples,
    )


class Links(NamedTuple):
    """Leaves of the network of one lane."""

    payload: np.ndarray  # f[] bits
    bandwidth: np.ndarray  # f[] bits a second
    encode: np.ndarray  # f[] seconds
    pull: np.ndarray  # f[] bits


def update_seconds(links: Links, keys: Any, law: Any, workers: int, updates: int) -> np.ndarray:
    """Simulate BSP's clock: the second of each update, under common random numbers.

    Args:
        links: leaves f[L].
        keys: key[R].
        law: of compute times.
        workers: n.
        updates: T.

    Returns:
        float64 [L, R, T].
    """
    import dtjax
    from dtjax import network, policies
    from dtjax.montecarlo.sharding import map_runs

    def clock(one: Links, key: Any) -> Any:
        star = network.star(
            payload=one.payload, bandwidth=one.bandwidth, encode=one.encode, pull=one.pull
        )
        cluster = dtjax.Cluster(n=workers, delay=law, network=star)
        run = dtjax.simulate(key, cluster, policies.bsp(), updates=updates, collect="seconds")
        return run.dt

    count, runs = len(links.payload), len(keys)
    each = Links(*(np.repeat(np.asarray(leaf, float), runs) for leaf in links))
    width = -(-count * runs // len(jax.local_devices()))
    dt = map_runs(clock, each, keys[np.tile(np.arange(runs), count)], block=min(width, 512))
    return np.cumsum(dt.reshape(count, runs, updates).astype(np.float64), axis=-1)


def break_even(bandwidth: np.ndarray, own: np.ndarray, dense: np.ndarray) -> float:
    """Find the bandwidth below which one sender is faster than another.

    The ratio of their seconds is interpolated between bandwidths, logarithm against logarithm.

    Args:
        bandwidth: f[B], positive and finite.
        own: f[B], seconds of the one; may be infinite.
        dense: f[B], seconds of the other.

    Returns:
        The largest such bandwidth: 0 if it is faster at none, infinity if it is so at all of them.

    Example:
        >>> found = break_even(np.array([1.0, 100.0]), np.array([5.0, 2.0]), np.array([10.0, 1.0]))
        >>> round(float(found), 6)
        10.0
    """
    order = np.argsort(-bandwidth)
    with np.errstate(divide="ignore"):
        gain = np.log(ratio(own, dense))[order]
    better = gain < 0
    if not better.any():
        return 0.0
    first = int(np.argmax(better))
    if first == 0:
        return float("inf")
    x, (a, b) = np.log(bandwidth[order]), gain[first - 1 : first + 1]
    part = a / (a - b) if np.isfinite(a - b) else 1.0
    return float(np.exp(x[first - 1] + part * (x[first] - x[first - 1])))


def break_evens(bandwidth: np.ndarray, own: np.ndarray, dense: np.ndarray) -> tuple[float, ...]:
    """Return the break-even bandwidth of the medians, with its 95 % interval.

    Args:
        bandwidth: f[B].
        own: f[B, R].
        dense: f[B, R], of the same runs.
    """
    samples = zip(resampled(own).T, resampled(dense).T, strict=True)
    found = np.array([break_even(bandwidth, *pair) for pair in samples])
    return break_even(bandwidth, median(own), median(dense)), *bounds(found).tolist()
