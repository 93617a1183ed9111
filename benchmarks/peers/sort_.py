"""NumPy without a clock: an update of (k-)BSP is the k-th least of n fresh times."""

from __future__ import annotations

import numpy as np

from benchmarks.peers.schedule import Numbers, Peer, Schedule

CHUNK = 1 << 16
"""Times drawn at once: few enough for the cache."""


def plays(n: int, numbers: Numbers) -> bool:
    """Whether each update begins with fresh times of all: BSP and k-BSP."""
    return numbers.distinct and (numbers.cancel or numbers.k == n)


def play(
    n: int, numbers: Numbers, updates: int, *, table: np.ndarray | None = None, seed: int = 0
) -> Schedule:
    """Simulate one run by sorting: arguments as in the other peers."""
    if table is None:
        table = np.random.default_rng(seed).standard_exponential((n, updates))
    seconds = table[:, :updates].T
    first = np.argsort(seconds, axis=1, kind="stable")[:, : numbers.k]
    last = np.take_along_axis(seconds, first[:, -1:], axis=1)[:, 0]
    return Schedule(np.cumsum(last), first.reshape(-1), np.zeros(first.size, np.int32))


def many(n: int, numbers: Numbers, updates: int, runs: int) -> np.ndarray:
    """Draw the seconds of each update of each run, f[R T], and nothing else."""
    generator = np.random.default_rng(0)
    total = runs * updates
    seconds = np.empty(total)
    size = max(1, CHUNK // n)
    for low in range(0, total, size):
        drawn = generator.standard_exponential((min(size, total - low), n))
        if numbers.k == n:
            least = drawn.max(axis=1)
        else:
            drawn.partition(numbers.k - 1, axis=1)
            least = drawn[:, numbers.k - 1]
        seconds[low : low + size] = least
    return seconds


PEERS: dict[str, Peer] = {"sort": Peer(play, many, plays)}
