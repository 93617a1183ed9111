"""SimPy, as a user would write it: a process for each worker, an event for what is waited for."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import simpy

from benchmarks.peers.schedule import Numbers, Peer, Schedule, draws, one_by_one


def play(
    n: int, numbers: Numbers, updates: int, *, table: np.ndarray | None = None, seed: int = 0
) -> Schedule:
    """Simulate one run with SimPy: a process for each worker, an event for each thing waited for.

    Args:
        n: workers.
        numbers: the policy.
        updates: how many updates to make.
        table: f[n, J] seconds of computation (worker, step); None: exponential times.
        seed: of the exponential times.
    """

    class Computation(simpy.Event):
        """A timeout that comes in order of worker number among those of one instant.

        SimPy's own timeouts come in the order in which they were made. Priorities 0 and 1 are
        SimPy's: what an arrival causes at once happens before the next arrival.
        """

        def __init__(self, env: simpy.Environment, worker: int, seconds: float) -> None:
            super().__init__(env)
            self._ok, self._value = True, None
            env.schedule(self, priority=2 + worker, delay=seconds)  # ty: ignore[invalid-argument-type]

    class Server:
        def __init__(self, env: simpy.Environment) -> None:
            self.env = env
            self.version = 0
            self.buffer: list[tuple[int, int]] = []  # worker, staleness
            self.completed = [0] * n
            self.slowest = 0
            self.computing = [False] * n
            self.updated, self.raised, self.finished = env.event(), env.event(), env.event()
            self.time: list[float] = []
            self.used: list[tuple[int, int]] = []
            self.workers = [env.process(self.work(worker)) for worker in range(n)]

        def work(self, worker: int) -> Generator[simpy.Event, Any, None]:
            """Compute on the newest version, deliver, wait as the policy says; for ever."""
            while True:
                version = self.version
                self.computing[worker] = True
                try:
                    yield Computation(self.env, worker, draw(worker))
                except simpy.Interrupt:
                    continue
                self.computing[worker] = False
                updated = self.updated
                self.deliver(worker, version)
                if numbers.distinct:
                    yield updated
                while self.completed[worker] - self.slowest > numbers.bound:
                    yield self.raised

        def deliver(self, worker: int, version: int) -> None:
            self.completed[worker] += 1
            if self.completed[worker] - 1 == self.slowest:
                self.raise_slowest()
            self.buffer.append((worker, self.version - version))
            if len(self.buffer) == numbers.k:
                self.update()

        def raise_slowest(self) -> None:
            slowest = min(self.completed)
            if slowest > self.slowest:
                self.slowest = slowest
                self.raised.succeed()
                self.raised = self.env.event()

        def update(self) -> None:
            self.version += 1
            self.time.append(self.env.now)
            self.used += self.buffer
            self.buffer = []
            self.updated.succeed()
            self.updated = self.env.event()
            if numbers.cancel:
                for process, computing in zip(self.workers, self.computing, strict=True):
                    if computing:
                        process.interrupt()
            if self.version == updates:
                self.finished.succeed()

    draw = draws(table, seed)
    env = simpy.Environment()
    server = Server(env)
    env.run(until=server.finished)
    worker, staleness = np.asarray(server.used, np.int32).T
    return Schedule(np.asarray(server.time), worker, staleness)


PEERS: dict[str, Peer] = {"simpy": Peer(play, one_by_one(play), share=32)}
