"""Trainings of many cells side by side: those of one shape in one call."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from dtjax.analysis.time_to_target import due_gradients, time_to_target
from dtjax.experiment.arms import Entry
from dtjax.experiment.schedules import Schedule
from dtjax.training.many_runs import take, train_runs
from dtjax.training.result import Training
from dtjax.training.task import Task


class Goal(NamedTuple):
    """What is to be reached, and how it is looked at."""

    measure: str
    tuning_measure: str
    target: float
    rising: bool
    window: int  # gradients
    evaluate_every: int  # gradients

    def reached(self, training: Training, measure: str) -> np.ndarray:
        """Return the seconds at which a measure of many runs reaches the target, f[R]."""
        return time_to_target(
            training.seconds,
            due_gradients(training.gradients, self.evaluate_every),
            training.measures[measure],
            self.target,
            window=self.window,
            rising=self.rising,
        )

    def quality(self, training: Training) -> np.ndarray:
        """Return the last tuning measure of many runs, f[R]: larger is better, diverged worst."""
        last = np.asarray(training.measures[self.tuning_measure], np.float64)[:, -1]
        return np.nan_to_num(last if self.rising else -last, nan=-np.inf)


@dataclasses.dataclass(frozen=True)
class Trainer:
    """Trains any of the entries with any rate along any of their runs."""

    task: Task
    entries: Sequence[Entry]
    schedules: Sequence[Schedule]
    keys: jax.Array
    """key[R], of the trainings."""
    evaluate_every: int
    block: int
    mesh: Mesh | None
    progress: Callable[[int], None]

    def gradients(self, entry: int, runs: np.ndarray) -> int:
        """Count the gradients of some runs."""
        return int(self.schedules[entry].accounts.useful_count[runs].sum())

    def train(self, cells: Sequence[tuple[int, float]], runs: np.ndarray) -> list[Training]:
        """Train cells, (entry, rate), each along the same runs.

        Returns:
            For each cell the training of its runs.
        """
        groups: dict[Any, list[int]] = defaultdict(list)
        for place, (entry, _) in enumerate(cells):
            groups[self._shape(entry)].append(place)
        found: dict[int, Training] = {}
        for places in groups.values():
            found |= self._together(places, [cells[place] for place in places], runs)
        return [found[place] for place in range(len(cells))]

    def _shape(self, entry: int) -> Any:
        """Return what decides the program of a training, and whether encoders can be lanes."""
        one, trace = self.entries[entry], self.schedules[entry].trace
        leaves, structure = jax.tree.flatten(one.encoder)
        numbers = all(isinstance(leaf, (jax.Array, np.ndarray, float)) for leaf in leaves)
        coder = (structure, tuple(map(np.shape, leaves))) if numbers else id(one.encoder)
        return one.optimizer, trace.worker.shape[2], trace.slots, trace.workers, coder

    def _together(
        self, places: list[int], cells: list[tuple[int, float]], runs: np.ndarray
    ) -> dict[int, Training]:
        count = len(runs)
        traces = [take(self.schedules[entry].trace, runs) for entry, _ in cells]
        rows = [trace.dt.shape[1] for trace in traces]
        longest = max(rows)
        joined = jax.tree.map(
            lambda *leaves: np.concatenate([_longer(leaf, longest) for leaf in leaves]), *traces
        )
        every = [self.entries[entry].encoder for entry, _ in cells]
        coder: dict[str, Any] = {"encoder": every[0]}
        if any(one is not every[0] for one in every):  # numbers that differ, one a run
            coder = {
                "encoders": jax.tree.map(
                    lambda *x: np.repeat(np.stack([np.asarray(v) for v in x]), count, axis=0),
                    *every,
                )
            }
        training = train_runs(
            self.keys[np.tile(runs, len(cells))],
            joined,
            self.task,
            self.entries[cells[0][0]].optimizer,
            np.repeat([rate for _, rate in cells], count),
            evaluate_every=self.evaluate_every,
            block=self.block,
            mesh=self.mesh,
            progress=self.progress,
            **coder,
        )
        width = joined.worker.shape[2]
        found = {}
        for i, (place, length) in enumerate(zip(places, rows, strict=True)):
            ends = 1 - (-length * width // self.evaluate_every)
            mine = jax.tree.map(lambda leaf, i=i: leaf[i * count : (i + 1) * count], training)
            found[place] = _shorter(mine, length, ends)
        return found


def _longer(leaf: np.ndarray, rows: int) -> np.ndarray:
    """Pad the rows of a batch of traces."""
    if leaf.ndim < 2:
        return leaf
    return np.pad(leaf, [(0, 0), (0, rows - leaf.shape[1])] + [(0, 0)] * (leaf.ndim - 2))


def _shorter(training: Training, rows: int, ends: int) -> Training:
    """Cut rows and evaluations off that only longer traces have."""
    return dataclasses.replace(
        training,
        loss=training.loss[:, :rows],
        dt=training.dt[:, :rows],
        measures={name: value[:, :ends] for name, value in training.measures.items()},
        updates=training.updates[:, :ends],
        gradients=training.gradients[:, :ends],
    )
