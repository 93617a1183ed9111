"""An event loop compiled by numba, on one thread and on all cores.

A linear scan over the workers finds the next arrival where they are few, a binary heap where they
are many. Each thread writes its runs' schedules over one another, so that they stay in its cache.
"""

from __future__ import annotations

from functools import partial

import numba
import numpy as np
from numba import njit, prange

from benchmarks.peers.schedule import Numbers, Peer, Schedule

HEAP, HEAP_CANCEL = 64, 320
"""From these numbers of workers on a heap is faster than a scan, where an update cancels nothing
and where it makes everybody start again (measured on x86-64)."""

CORES = numba.get_num_threads()
"""Threads that numba may use; read here, before `set_num_threads` hides some of them."""


@njit(cache=True)
def _before(due: np.ndarray, a: int, b: int) -> bool:
    """Whether a arrives before b; among equal times the smaller worker does."""
    return due[a] < due[b] or (due[a] == due[b] and a < b)


@njit(cache=True)
def _push(heap: np.ndarray, size: int, due: np.ndarray, w: int) -> None:
    """Add w to a heap of `size` workers."""
    place = size
    while place > 0:
        parent = (place - 1) // 2
        if not _before(due, w, heap[parent]):
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = w


@njit(cache=True)
def _pop(heap: np.ndarray, size: int, due: np.ndarray) -> int:
    """Take the first out of a heap of `size` workers."""
    first, w = heap[0], heap[size - 1]
    place, child = 0, 1
    while child < size - 1:
        if child + 1 < size - 1 and _before(due, heap[child + 1], heap[child]):
            child += 1
        if not _before(due, heap[child], w):
            break
        heap[place] = heap[child]
        place, child = child, 2 * child + 1
    heap[place] = w
    return first


@njit(cache=True)
def _run(
    n: int,
    k: int,
    distinct: bool,
    cancel: bool,
    bound: float,
    use_heap: bool,
    recorded: bool,
    table: np.ndarray,
    generator: np.random.Generator,
    time: np.ndarray,
    worker: np.ndarray,
    staleness: np.ndarray,
) -> None:
    """Fill time f[T], worker i[T k] and staleness i[T k]."""
    due = np.full(n, np.inf)  # infinite: waits
    read = np.zeros(n, np.int32)
    step = np.zeros(n, np.int32)
    completed = np.zeros(n, np.int32)
    heap, size = np.zeros(n, np.int32), 0
    now, version, pending, slowest, entry = 0.0, 0, 0, 0, 0
    low, high, restart = 0, n, True  # who may start now: all that are idle, or all
    while True:
        if restart:
            size = 0
        for w in range(low, high):
            if (restart or due[w] == np.inf) and completed[w] - slowest <= bound:
                seconds = table[w, step[w]] if recorded else generator.standard_exponential()
                due[w] = now + seconds
                read[w] = version
                step[w] += 1
                if use_heap:
                    _push(heap, size, due, w)
                    size += 1
        if version == time.shape[0]:
            return

        if use_heap:
            first = _pop(heap, size, due)
            size -= 1
        else:
            first = 0
            for w in range(1, n):
                if due[w] < due[first]:
                    first = w
        now = due[first]
        due[first] = np.inf
        completed[first] += 1
        worker[entry] = first
        staleness[entry] = version - read[first]  # no update comes before the one that uses it
        entry += 1
        pending += 1

        commit = pending == k
        if commit:
            time[version] = now
            version += 1
            pending = 0
        raised = False
        if bound < np.inf and completed[first] - 1 == slowest:
            slowest = completed.min()
            raised = slowest == completed[first]

        restart = commit and cancel
        if raised or restart or (commit and distinct):
            low, high = 0, n
        elif distinct:
            low, high = 0, 0
        else:
            low, high = first, first + 1


@njit(cache=True, parallel=True)
def _runs(
    n: int,
    k: int,
    distinct: bool,
    cancel: bool,
    bound: float,
    use_heap: bool,
    recorded: bool,
    table: np.ndarray,
    generators: tuple,
    runs: np.ndarray,
    time: np.ndarray,
    worker: np.ndarray,
    staleness: np.ndarray,
) -> None:
    """Let each thread simulate its number of runs, one after the other, into its own row."""
    for thread in prange(len(generators)):
        for _ in range(runs[thread]):
            _run(
                n, k, distinct, cancel, bound, use_heap, recorded, table, generators[thread],
                time[thread], worker[thread], staleness[thread],
            )  # fmt: skip


def simulate(
    n: int,
    numbers: Numbers,
    updates: int,
    runs: int,
    *,
    threads: int | None = 1,
    table: np.ndarray | None = None,
    seed: int = 0,
    heap: bool | None = None,
) -> Schedule:
    """Simulate runs.

    Args:
        n: workers.
        numbers: the policy.
        updates: how many updates to make.
        runs: how many runs.
        threads: how many threads share the runs; None: one for each core that numba may use.
        table: f[n, J] seconds of computation (worker, step); None: exponential times.
        seed: of the exponential times.
        heap: whether a heap finds the next arrival; None: by the number of workers.

    Returns:
        The last run of each thread.
    """
    threads = min(runs, threads or CORES)
    time = np.empty((threads, updates))
    worker, staleness = np.empty((2, threads, updates * numbers.k), np.int32)
    recorded = table is not None
    table = np.zeros((1, 1)) if table is None else np.asarray(table, float)
    generators = tuple(np.random.default_rng((seed, thread)) for thread in range(threads))
    share = runs // threads + (np.arange(threads) < runs % threads)
    numba.set_num_threads(threads)
    k, distinct, cancel, bound = numbers
    use_heap = n >= (HEAP_CANCEL if cancel else HEAP) if heap is None else heap
    _runs(
        n, k, distinct, cancel, float(bound), use_heap, recorded, table, generators, share,
        time, worker, staleness,
    )  # fmt: skip
    return Schedule(time, worker, staleness)


def play(
    n: int, numbers: Numbers, updates: int, *, threads: int | None = 1, heap: bool | None = None,
    table: np.ndarray | None = None, seed: int = 0,
) -> Schedule:  # fmt: skip
    """Simulate one run on each thread and return the last: arguments as in `simulate`."""
    runs = threads or CORES
    found = simulate(n, numbers, updates, runs, threads=threads, table=table, seed=seed, heap=heap)
    return Schedule(*(field[-1] for field in found))


PEERS: dict[str, Peer] = {
    "numba": Peer(play, simulate),
    "numba cores": Peer(partial(play, threads=None), partial(simulate, threads=None)),
}
