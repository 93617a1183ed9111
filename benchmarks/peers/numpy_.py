"""NumPy, all runs side by side: one arrival of each run a turn."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from benchmarks.peers.schedule import Numbers, Peer, Schedule


def simulate(
    n: int,
    numbers: Numbers,
    updates: int,
    runs: int,
    *,
    table: np.ndarray | None = None,
    seed: int = 0,
) -> Schedule:
    """Simulate runs in step: each turn takes the next arrival of every run.

    Without a bound every run updates at the same turns, since k arrivals make an update.

    Args:
        n: workers.
        numbers: the policy.
        updates: how many updates to make.
        runs: R.
        table: f[n, J] seconds of computation (worker, step) of every run; None: exponential times.
        seed: of the exponential times.

    Returns:
        Times f[R, T], workers i[R, T k], staleness i[R, T k].
    """
    k, distinct, cancel, bound = numbers
    bounded = bound < math.inf
    generator = np.random.default_rng(seed)
    every = np.arange(runs)
    rows, columns = np.indices((runs, n), sparse=True)
    due = np.zeros((runs, n))  # infinite: waits
    step = np.zeros((runs, n), np.int32)
    read = np.zeros((runs, n), np.int32)
    completed = np.zeros((runs, n), np.int32)
    time = np.empty((runs, updates))
    worker = np.empty((runs, updates * k), np.int32)
    staleness = np.empty((runs, updates * k), np.int32)

    def draw(run: np.ndarray, who: np.ndarray) -> np.ndarray:
        if table is None:
            return generator.standard_exponential(np.broadcast_shapes(run.shape, who.shape))
        seconds = table[who, step[run, who]]
        step[run, who] += 1
        return seconds

    due += draw(rows, columns)
    version = pending = 0
    for turn in range(updates * k):
        first = due.argmin(axis=1)  # the smallest index among equal times
        now = due[every, first]
        worker[:, turn] = first
        staleness[:, turn] = version - read[every, first]
        pending += 1
        commit = pending == k
        if commit:
            time[:, version] = now
            version += 1
            pending = 0
        if commit and cancel:
            due = now[:, None] + draw(rows, columns)
            read[:] = version
        elif bounded or distinct:
            due[every, first] = np.inf
            if bounded:
                completed[every, first] += 1
                ahead = completed - completed.min(axis=1, keepdims=True)
                run, who = np.nonzero(np.isinf(due) & (ahead <= bound))
            elif commit:
                run, who = np.nonzero(np.isinf(due))
            else:
                continue
            due[run, who] = now[run] + draw(run, who)
            read[run, who] = version
        else:
            due[every, first] = now + draw(every, first)
            read[every, first] = version
    return Schedule(time, worker, staleness)


def play(
    n: int, numbers: Numbers, updates: int, *, table: np.ndarray | None = None, seed: int = 0
) -> Schedule:
    """Simulate three runs and return the last: arguments as in `simulate`."""
    runs = simulate(n, numbers, updates, 3, table=table, seed=seed)
    return Schedule(*(field[-1] for field in runs))


PEERS: dict[str, Peer] = {"numpy": Peer(play, partial(simulate, seed=0))}
