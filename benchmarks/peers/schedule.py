"""What the peers share: a policy as four numbers, a schedule, where computation times come from."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

Draw = Callable[[int], float]  # worker -> seconds of its next computation


class Numbers(NamedTuple):
    """A policy: see the table in `dtjax.policies.Rule`."""

    k: int
    distinct: bool
    cancel: bool
    bound: float  # infinite: no limit


class Schedule(NamedTuple):
    """Who contributed to each of T updates of k gradients."""

    time: np.ndarray  # f[T] seconds since the run began
    worker: np.ndarray  # i[T k] in arrival order
    staleness: np.ndarray  # i[T k] updates


Play = Callable[..., Schedule]  # (n, numbers, updates, *, table f[n, J] | seed) -> Schedule
Many = Callable[[int, Numbers, int, int], object]  # (n, numbers, updates, runs)


def every(n: int, numbers: Numbers) -> bool:
    """Whether a peer that plays all policies plays this one: yes."""
    del n, numbers
    return True


class Peer(NamedTuple):
    """One way to simulate schedules, without accounts of time or slots for old models."""

    play: Play  # one run; from a recorded table in a check
    many: Many  # many runs with exponential times of mean 1; timed
    plays: Callable[[int, Numbers], bool] = every  # which policies it can play
    ties: bool = True  # whether arrivals of one instant come in order of worker number
    share: int = 1  # one of how many runs is timed: for peers that are slow


def one_by_one(play: Play) -> Many:
    """Make the runs of a peer that plays one at a time."""

    def many(n: int, numbers: Numbers, updates: int, runs: int) -> None:
        for seed in range(runs):
            play(n, numbers, updates, seed=seed)

    return many


def draws(table: np.ndarray | None, seed: int) -> Draw:
    """Return where times come from: the rows of a table, or the exponential law of mean 1."""
    if table is None:
        return partial(_exponential, random.Random(seed).expovariate)
    rows = [iter(row.tolist()) for row in table]
    return lambda worker: next(rows[worker])


def _exponential(draw: Callable[[float], float], worker: int) -> float:
    del worker
    return draw(1.0)
