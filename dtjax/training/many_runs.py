"""Trainings of many runs: in blocks of a fixed width, on all devices, with progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from dtjax.clock.trace import Trace
from dtjax.core import checks
from dtjax.core.protocols import Encoder
from dtjax.montecarlo.sharding import count_runs, join, local_mesh, put, real_runs, spread, waves
from dtjax.training.replay import Measured, Training, advance, begin, fits, measure
from dtjax.training.task import Task
from dtjax.training.update import Rows, TrainState, rows_of


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
        downlink: Encoder | None = None,
        mesh: Mesh | None = None,
    ) -> None:
        """Prepare to train.

        Args:
            task: what is learned.
            optimizer: from a learning rate, f[], to an optax transformation.
            evaluate_every: gradients between two evaluations, as in `replay`.
            block: lanes a device.
            encoder: as in `replay`.
            downlink: as in `replay`.
            mesh: as in `map_runs`.
        """
        self._mesh = local_mesh() if mesh is None else mesh
        self.evaluate_every = checks.integer("Fleet", "evaluate_every", evaluate_every, low=1)
        self.block = checks.integer("Fleet", "block", block, low=1)
        self._task = task

        def start(task: Task, workers: int, slots: int, key: Any, rate: Any, own: Any) -> Any:
            coder = encoder if own is None else own
            state = begin(key, task, optimizer(rate), workers, slots, coder, downlink)
            return state, measure(task, state)

        def turn(task: Task, state: TrainState, key: Any, rate: Any, own: Any, rows: Rows) -> Any:
            coder = encoder if own is None else own
            return advance(key, state, rows, task, optimizer(rate), coder, downlink)

        self._start = lambda workers, slots: spread(
            lambda task, key, rate, own: start(task, workers, slots, key, rate, own),
            shared=1,
            mesh=self._mesh,
        )
        self._turn = spread(turn, shared=1, donate=1, mesh=self._mesh)
        self._started: dict[tuple[int, int], Any] = {}

    def train(
        self,
        keys: jax.Array,
        traces: Trace,
        rates: np.ndarray,
        progress: Callable[[int], None] | None = None,
        encoders: Any = None,
    ) -> Training:
        """Train every run along its trace with its rate.

        Args:
            keys: key[R].
            traces: of R runs.
            rates: f[R].
            progress: called after each chunk with the gradients that it used, all runs together.
            encoders: an encoder for each run, a pytree whose leaves have a leading axis R: its
                numbers sweep without a further compile. None: the fleet's one.

        Returns:
            As `replay`, on the host, with a leading axis of runs.

        Raises:
            ValueError: if the numbers of runs differ.
        """
        count = count_runs("Fleet.train", (keys, traces, rates, encoders))
        fits("Fleet.train", self._task, traces)
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
        for index, real in waves(count, self.block, self._mesh.size):
            own = (keys, np.asarray(rates, float), encoders)
            key, rate, coder = put(own, index, self._mesh)
            state, first = begin_(self._task, key, rate, coder)
            measured, losses = [first], []
            for chunk in range(chunks):
                rows = jax.tree.map(
                    lambda leaf, c=chunk: leaf[:, c * block : (c + 1) * block], table
                )
                if not rows.examples[index].any():
                    break
                state, (loss, now) = self._turn(
                    self._task, state, key, rate, coder, put(rows, index, self._mesh)
                )
                measured.append(now)
                losses.append(loss)
                if progress is not None:
                    jax.block_until_ready(now)
                    progress(int((rows.examples[index[:real]] > 0).sum()))
            parts.append(real_runs(_training(state, measured, losses, chunks, length), real))
        return join(parts)


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
