"""The same schedules with SimPy and with a numba event loop: what dtjax is timed against.

Neither imports dtjax. Both take a policy as four numbers, draw computation times from a recorded
table or from the exponential law of mean 1, and write down who contributed to each update and how
stale it was; neither keeps accounts of time or slots for old models, as dtjax does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

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


Play = Callable[..., Schedule]  # (n, numbers, updates, *, table | seed) -> Schedule


def installed() -> dict[str, Play | None]:
    """Return the peers by name; None stands for one whose package is not installed."""
    peers: dict[str, Play] = {"simpy": simpy_run, "numba": numba_run}
    return {name: play if find_spec(name) else None for name, play in peers.items()}


def simpy_run(
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
    import simpy

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

    draw = _lookup(table) if table is not None else _exponential(seed)
    env = simpy.Environment()
    server = Server(env)
    env.run(until=server.finished)
    worker, staleness = np.asarray(server.used, np.int32).T
    return Schedule(np.asarray(server.time), worker, staleness)


def _exponential(seed: int) -> Draw:
    generator = random.Random(seed)
    return lambda worker: generator.expovariate(1.0)


def _lookup(table: np.ndarray) -> Draw:
    rows = [iter(row.tolist()) for row in table]
    return lambda worker: next(rows[worker])


def numba_run(
    n: int, numbers: Numbers, updates: int, *, table: np.ndarray | None = None, seed: int = 0
) -> Schedule:
    """Simulate one run with a compiled event loop on one thread: arguments as in `simpy_run`."""
    time = np.empty(updates)
    worker, staleness = np.empty((2, updates * numbers.k), np.int32)
    recorded = table is not None
    table = np.empty((1, 1)) if table is None else table
    generator = np.random.default_rng(seed)
    _compiled()(n, *numbers, recorded, table, generator, time, worker, staleness)
    return Schedule(time, worker, staleness)


@cache
def _compiled() -> Callable[..., None]:
    import numba

    return numba.njit(_event_loop)


def _event_loop(
    n: int,
    k: int,
    distinct: bool,
    cancel: bool,
    bound: float,
    recorded: bool,
    table: np.ndarray,
    generator: np.random.Generator,
    time: np.ndarray,
    worker: np.ndarray,
    staleness: np.ndarray,
) -> None:
    """Fill time f[T], worker i[T k] and staleness i[T k]; a linear scan finds each arrival."""
    due = np.full(n, np.inf)  # infinite: waits
    read = np.zeros(n, np.int32)
    step = np.zeros(n, np.int32)
    completed = np.zeros(n, np.int32)
    now, version, pending, slowest, entry = 0.0, 0, 0, 0, 0
    low, high, restart = 0, n, True  # who may start now: all that are idle, or all
    while True:
        for w in range(low, high):
            if (restart or due[w] == np.inf) and completed[w] - slowest <= bound:
                seconds = table[w, step[w]] if recorded else generator.standard_exponential()
                due[w] = now + seconds
                read[w] = version
                step[w] += 1
        if version == time.shape[0]:
            return

        first, now = 0, due[0]
        for w in range(1, n):
            if due[w] < now:
                first, now = w, due[w]
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
