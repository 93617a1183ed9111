"""A plain Python event loop with a heap of arrivals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from benchmarks.peers.schedule import Draw, Numbers, Peer, Schedule, draws, one_by_one


class Arrival(NamedTuple):
    """A gradient reaches the server."""

    time: float
    worker: int
    version: int  # that its worker had read
    commit: bool  # whether the server updates now
    start: list[int]  # who starts to compute now, on the newest version


def arrivals(n: int, numbers: Numbers, draw: Draw) -> Iterator[Arrival]:
    """Walk through the arrivals of a run, for ever; at the start all workers compute version 0."""
    k, distinct, cancel, bound = numbers
    everybody = range(n)
    heap = [(draw(worker), worker) for worker in everybody]
    heapify(heap)
    read = [0] * n
    completed = [0] * n
    idle: list[int] = []  # who has delivered and waits
    version = pending = slowest = 0
    while True:
        now, worker = heappop(heap)
        completed[worker] += 1
        delivered = read[worker]
        pending += 1
        commit = pending == k
        if commit:
            version += 1
            pending = 0
        if bound < math.inf:
            idle.append(worker)
            low = slowest
            if completed[worker] - 1 == slowest:
                slowest = min(completed)
            if slowest > low:
                start = sorted(w for w in idle if completed[w] - slowest <= bound)
                idle = [w for w in idle if completed[w] - slowest > bound]
            else:
                start = [idle.pop()] if completed[worker] - slowest <= bound else []
        elif commit and cancel:
            heap.clear()
            idle, start = [], list(everybody)
        elif distinct:
            idle.append(worker)
            idle, start = ([], sorted(idle)) if commit else (idle, [])
        else:
            start = [worker]
        for other in start:
            heappush(heap, (now + draw(other), other))
            read[other] = version
        yield Arrival(now, worker, delivered, commit, start)


def play(
    n: int, numbers: Numbers, updates: int, *, table: np.ndarray | None = None, seed: int = 0
) -> Schedule:
    """Simulate one run.

    Args:
        n: workers.
        numbers: the policy.
        updates: how many updates to make.
        table: f[n, J] seconds of computation (worker, step); None: exponential times.
        seed: of the exponential times.
    """
    time: list[float] = []
    worker: list[int] = []
    staleness: list[int] = []
    for arrival in arrivals(n, numbers, draws(table, seed)):
        worker.append(arrival.worker)
        staleness.append(len(time) - arrival.version)
        if arrival.commit:
            time.append(arrival.time)
            if len(time) == updates:
                break
    return Schedule(np.asarray(time), np.asarray(worker), np.asarray(staleness))


PEERS: dict[str, Peer] = {"heapq": Peer(play, one_by_one(play), share=32)}
