"""Many runs: in blocks of a fixed width, on all devices, with progress.

Matrix products round differently at another width of `vmap`. So runs go in blocks of `block` lanes,
the last one padded, each block whole on one device: the bits of a run depend neither on how many
runs there are nor on how many devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from dtjax import checks
from dtjax.task import Task
from dtjax.trainer import Measured, Training, advance, begin, measure
from dtjax.types import Trace
from dtjax.update import Encoder, Rows, TrainState, rows_of


def _mesh() -> jax.sharding.Mesh:
    devices = jax.local_devices()
    return jax.make_mesh((len(devices),), ("runs",), axis_types=(AxisType.Auto,), devices=devices)


def spread(function: Callable[..., Any], *, shared: int = 0, donate: int | None = None) -> Any:
    """Compile a function of one run for a wave of runs: one block on each device.

    Args:
        function: of one run; pure.
        shared: how many leading arguments are the same for all runs; the others have a leading axis
            of devices x block.
        donate: the argument whose memory may be used for the result.

    Returns:
        A compiled function of the same arguments.
    """
    mesh, runs = _mesh(), PartitionSpec("runs")

    def wave(*args: Any) -> Any:
        common, own = args[:shared], args[shared:]

        def block(common: Any, own: Any) -> Any:
            return jax.vmap(lambda *mine: function(*common, *mine))(*own)

        specs = (PartitionSpec(), runs)
        return jax.shard_map(block, mesh=mesh, in_specs=specs, out_specs=runs, check_vma=False)(
            common, own
        )

    return jax.jit(wave, donate_argnums=() if donate is None else donate)


def waves(count: int, block: int) -> Iterator[tuple[np.ndarray, int]]:
    """Cut runs 0..count-1 into waves: (indices, how many of them are real); padding repeats a run.

    Args:
        count: runs.
        block: lanes a device.
    """
    width = block * len(jax.local_devices())
    for first in range(0, count, width):
        index = np.minimum(np.arange(first, first + width), count - 1)
        yield index, min(width, count - first)


def _put(tree: Any, index: np.ndarray) -> Any:
    """Take some runs of a batch, and lay a block of them on each device."""
    place = NamedSharding(_mesh(), PartitionSpec("runs"))

    def take(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.device_put(leaf[index], place)
        return jax.device_put(np.asarray(leaf)[index], place)

    return jax.tree.map(take, tree)


def _join(parts: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def _real(tree: Any, count: int) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:count], tree)


def map_runs(
    function: Callable[..., Any],
    *args: Any,
    block: int = 32,
    progress: Callable[[int], None] | None = None,
) -> Any:
    """Map a function of one run over many, in blocks on all devices.

    Args:
        function: of one run; pure, with results that are pytrees of arrays without keys.
        args: pytrees with a leading axis of runs.
        block: lanes a device.
        progress: called with the number of runs done after each wave.

    Returns:
        The results on the host, with a leading axis of runs.

    Raises:
        ValueError: if there is no run, or arguments disagree on how many there are.

    Example:
        >>> map_runs(lambda x: x * 2.0, np.arange(5.0)).tolist()
        [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    count = _count("map_runs", args)
    compiled = spread(function)
    parts = []
    for index, real in waves(count, block):
        parts.append(_real(compiled(*_put(args, index)), real))
        if progress is not None:
            progress(real)
    return _join(parts)


def _count(name: str, args: Any) -> int:
    counts = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(args)}
    if len(counts) != 1 or counts & {(), (0,)}:
        rule = "must have one leading axis of runs, the same in all"
        raise checks.fail(name, "args", rule, sorted(counts))
    return counts.pop()[0]


class Fleet:
    """Trainings of many runs: one compile a width K, whatever the lengths and the number of runs.

    The host loops over chunks of rows, so that progress shows and an interrupt ends at once.
    """

    def __init__(
        self,
        task: Task,
        optimizer: Callable[[Any], Any],
        *,
        evaluate_every: int,
        block: int = 32,
        encoder: Encoder | None = None,
    ) -> None:
        """Prepare to train.

        Args:
            task: what is learned.
            optimizer: from a learning rate, f[], to an optax transformation.
            evaluate_every: gradients between two evaluations, as in `replay`.
            block: lanes a device.
            encoder: as in `replay`.
        """
        self.evaluate_every = checks.integer("Fleet", "evaluate_every", evaluate_every, low=1)
        self.block = checks.integer("Fleet", "block", block, low=1)
        self._task = task

        def start(task: Task, workers: int, slots: int, key: Any, rate: Any) -> Any:
            state = begin(key, task, optimizer(rate), workers, slots, encoder)
            return state, measure(task, state)

        def turn(task: Task, state: TrainState, key: Any, rate: Any, rows: Rows) -> Any:
            return advance(key, state, rows, task, optimizer(rate), encoder)

        self._start = lambda workers, slots: spread(
            lambda task, key, rate: start(task, workers, slots, key, rate), shared=1
        )
        self._turn = spread(turn, shared=1, donate=1)
        self._started: dict[tuple[int, int], Any] = {}

    def train(
        self,
        keys: jax.Array,
        traces: Trace,
        rates: np.ndarray,
        progress: Callable[[int], None] | None = None,
    ) -> Training:
        """Train every run along its trace with its rate.

        Args:
            keys: key[R].
            traces: of R runs.
            rates: f[R].
            progress: called after each chunk with the gradients that it used, all runs together.

        Returns:
            As `replay`, on the host, with a leading axis of runs.

        Raises:
            ValueError: if the numbers of runs differ.
        """
        count = _count("Fleet.train", (keys, traces, rates))
        length, width = traces.worker.shape[1:]
        block = max(1, self.evaluate_every // width)
        chunks = -(-length // block)
        spare = chunks * block - length
        table = jax.tree.map(
            lambda leaf: np.pad(
                np.asarray(leaf), [(0, 0), (0, spare)] + [(0, 0)] * (leaf.ndim - 2)
            ),
            rows_of(traces),
        )
        begin_ = self._started.setdefault(
            (traces.workers, traces.slots), self._start(traces.workers, traces.slots)
        )
        parts = []
        for index, real in waves(count, self.block):
            key, rate = _put((keys, np.asarray(rates, float)), index)
            state, first = begin_(self._task, key, rate)
            measured, losses = [first], []
            for chunk in range(chunks):
                rows = jax.tree.map(
                    lambda leaf, c=chunk: leaf[:, c * block : (c + 1) * block], table
                )
                if not rows.examples[index].any():
                    break
                state, (loss, now) = self._turn(self._task, state, key, rate, _put(rows, index))
                measured.append(now)
                losses.append(loss)
                if progress is not None:
                    jax.block_until_ready(now)
                    progress(int((rows.examples[index[:real]] > 0).sum()))
            parts.append(_real(_training(state, measured, losses, chunks, length), real))
        return _join(parts)


def _training(
    state: TrainState, measured: list[Measured], losses: list[Any], chunks: int, length: int
) -> Training:
    """Put the chunks of a wave together; chunks in which no run had an update repeat the last."""
    measured += [measured[-1]] * (chunks + 1 - len(measured))
    stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(x) for x in leaves], 1), *measured)
    none = np.zeros((len(state.diverged), 0), jnp.zeros((), float).dtype)
    loss = np.concatenate([none, *(np.asarray(x) for x in losses)], axis=1)
    loss = np.pad(loss, [(0, 0), (0, max(0, length - loss.shape[1]))], constant_values=np.nan)
    return Training(
        loss=jnp.asarray(loss[:, :length]),
        measures=stacked.measures,
        updates=stacked.updates,
        gradients=stacked.gradients,
        diverged=state.diverged,
        params=state.params,
    )


def seconds_at(traces: Trace, updates: np.ndarray) -> np.ndarray:
    """Return the second of each evaluation.

    Args:
        traces: of R runs.
        updates: i[R, E], updates made by each evaluation.

    Returns:
        float64 [R, E].
    """
    times = np.cumsum(np.asarray(traces.dt, np.float64), axis=-1)
    padded = np.concatenate([np.zeros((*times.shape[:-1], 1)), times], axis=-1)
    return np.take_along_axis(padded, np.asarray(updates), axis=-1)


def trim(traces: Trace, rows: int | None = None, width: int | None = None) -> Trace:
    """Cut padding off a batch of traces: rows and entries that no run uses.

    Args:
        traces: of R runs.
        rows: how many rows to keep; None: as many as the longest run made.
        width: how many entries a row to keep; None: as many as the widest row has.

    Returns:
        Traces on the host.
    """
    used = np.asarray(traces.examples) > 0
    rows = max(1, int(used.any(-1).sum(-1).max())) if rows is None else rows
    width = max(1, int(used.sum(-1).max())) if width is None else width

    def cut(leaf: Any) -> np.ndarray:
        host = np.asarray(leaf)
        if host.ndim == 3:
            return host[:, :rows, :width]
        return host[:, :rows] if host.ndim == 2 else host

    return jax.tree.map(cut, traces)


__all__ = ["Fleet", "map_runs", "seconds_at", "spread", "trim", "waves"]
