"""Slow, readable reference for every schedule: one run, one event at a time, standard library only.

It imports no kernel, so that a kernel and its reference cannot share a mistake. A policy is five
numbers (`k`, `distinct`, `cancel`, `bound`, `max_staleness`); a cycle is pull -> compute -> push.
Times may be floats or Fractions. Zeros that nobody gave are integers, because Fraction + 0.0 would
quietly become a float. Sums run left to right as the definitions write them (start + pull +
duration; max(ready, link free) + push + latency; taken + fold + apply), which decides ties among
floats that do not add exactly.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

Seconds = float | Fraction  # math.inf: never

# Kinds of event, in their order within one instant. Everything that became ready at t is on the
# link before arrivals at t are sorted by worker, and all of those are in the server's line before
# the first of them has its effect. Durations are positive, so no effect adds an event before these.
READY, ARRIVE, EFFECT = range(3)


@dataclass(frozen=True)
class Gradient:
    """One gradient in an update; `version` is the one read, `arrival` the end of its push."""

    worker: int
    step: int
    version: int
    staleness: int
    arrival: Seconds


@dataclass
class Update:
    """One change of the model: when its effect happened, its gradients in arrival order."""

    time: Seconds
    gradients: list[Gradient]


@dataclass
class Schedule:
    """What one run did until `end`; every list has one entry per worker."""

    updates: list[Update]
    end: Seconds
    status: str  # "done" | "exhausted" | "stuck"
    started: list[int]
    buffered: int  # gradients that wait for the next update
    # Seconds: these seven add up to n x end.
    useful: list[Seconds]
    discarded: list[Seconds]
    cancelled: list[Seconds]
    in_flight: list[Seconds]
    waiting: list[Seconds]
    communicating: list[Seconds]
    queueing: list[Seconds]
    # Computations. `completed` counts deliveries whose effect has happened, also discarded ones.
    completed: list[int]
    useful_count: list[int]
    discarded_count: list[int]
    cancelled_count: list[int]


@dataclass
class _Cycle:
    """One computation with its pull and push: kept whole, so that accounts are taken afterwards."""

    worker: int
    step: int
    version: int
    start: Seconds
    computing: Seconds  # the pull is over
    ready: Seconds  # the computation is over
    moving: list[tuple[Seconds, Seconds]] = field(default_factory=list)  # on the wire, per shard
    arrival: Seconds = math.inf
    over: Seconds = math.inf  # its effect or its cancellation: the worker is free again
    fate: str = "in_flight"


def schedule(
    durations: Sequence[Sequence[Seconds]],
    *,
    k: int,
    distinct: bool,
    cancel: bool,
    bound: float | None = None,
    max_staleness: float | None = None,
    updates: int | None = None,
    until: Seconds | None = None,
    push: Sequence[Sequence[Seconds]] | None = None,
    pull: Sequence[Seconds] | None = None,
    latency: Seconds = 0,
    fold: Seconds = 0,
    apply: Seconds = 0,
) -> Schedule:
    """Play one run of `durations[worker][step]` with `push[worker][server]` and `pull[worker]`.

    It ends after the whole effect of update number `updates`, or at `until` (events at that
    instant count), whichever comes first: "done". It stops earlier right after the effect that
    starts a computation without a duration ("exhausted"; not at `until` itself, where nothing
    unknown matters any more), or at its last effect if nothing can arrive and no `until` ends it
    ("stuck").
    """
    n = len(durations)
    bound = math.inf if bound is None else bound
    max_staleness = math.inf if max_staleness is None else max_staleness
    push = [[0]] * n if push is None else push
    pull = [0] * n if pull is None else pull
    rule = k, distinct, cancel, bound, max_staleness
    run = _Run(durations, *rule, push, pull, latency, fold, apply)
    return run.report(*run.play(updates, until))


@dataclass
class _Run:
    durations: Sequence[Sequence[Seconds]]
    k: int
    distinct: bool
    cancel: bool
    bound: float
    max_staleness: float
    push: Sequence[Sequence[Seconds]]
    pull: Sequence[Seconds]
    latency: Seconds
    fold: Seconds
    apply: Seconds

    def __post_init__(self) -> None:
        self.n = len(self.durations)
        self.events: list[tuple[Seconds, int, int, int]] = []  # time, kind, worker, step
        self.cycles: list[list[_Cycle]] = [[] for _ in range(self.n)]  # [worker][step]
        self.completed = [0] * self.n
        self.startable = set(range(self.n))  # idle workers that only the bound may hold
        self.link_free: list[Seconds] = [0] * len(self.push[0])
        self.line: list[tuple[Seconds, int, int]] = []  # arrivals that wait for the server
        self.serving = False
        self.buffer: list[_Cycle] = []
        self.updates: list[Update] = []

    def play(self, updates: int | None, until: Seconds | None) -> tuple[str, Seconds]:
        """Handle events until the run ends; return status and end."""
        now: Seconds = 0  # the last effect: nothing is decided between effects
        self.start(now)
        while True:
            if len(self.updates) == updates:
                return "done", now
            unknown = any(len(c) > len(d) for c, d in zip(self.cycles, self.durations, strict=True))
            if unknown and (until is None or now < until):
                return "exhausted", now
            if until is not None and (not self.events or self.events[0][0] > until):
                return "done", until
            if not self.events:
                return "stuck", now
            time, kind, worker, step = heapq.heappop(self.events)
            cycle = self.cycles[worker][step]
            if cycle.fate == "cancelled":
                continue
            if kind == READY:
                self.send(cycle)
            elif kind == ARRIVE:
                heapq.heappush(self.line, (time, worker, step))
            else:
                now = time
                self.effect(now, cycle)
                self.serving = False
            if not self.serving and self.line:
                self.take(time)

    def expect(self, time: Seconds, kind: int, cycle: _Cycle) -> None:
        if time < math.inf:
            heapq.heappush(self.events, (time, kind, cycle.worker, cycle.step))

    def start(self, now: Seconds) -> None:
        """Start everyone who may; the bound compares completed counts, whatever ended the wait."""
        slowest = min(self.completed)
        for worker in sorted(self.startable):
            if self.completed[worker] - slowest > self.bound:
                continue
            self.startable.remove(worker)
            step = len(self.cycles[worker])
            known = step < len(self.durations[worker])
            computing = now + self.pull[worker]
            ready = computing + self.durations[worker][step] if known else math.inf
            cycle = _Cycle(worker, step, len(self.updates), now, computing, ready)
            self.cycles[worker].append(cycle)
            self.expect(ready, READY, cycle)

    def send(self, cycle: _Cycle) -> None:
        """Put one shard on each ingress; called in FIFO order: by readiness, then worker."""
        for server, seconds in enumerate(self.push[cycle.worker]):
            begin = max(cycle.ready, self.link_free[server])
            sent = begin + seconds
            self.link_free[server] = sent
            cycle.moving.append((begin, sent + self.latency))
        cycle.arrival = max(end for _, end in cycle.moving)
        self.expect(cycle.arrival, ARRIVE, cycle)

    def stale(self, cycle: _Cycle) -> bool:
        # The same when the server takes it as in its effect: no update can come in between.
        return len(self.updates) - cycle.version > self.max_staleness

    def take(self, now: Seconds) -> None:
        """Let the idle server begin with the first in line: max(arrival, server free) is now."""
        _, worker, step = heapq.heappop(self.line)
        cycle = self.cycles[worker][step]
        done = now + self.fold
        if not self.stale(cycle) and len(self.buffer) + 1 >= self.k:
            done = done + self.apply
        self.serving = True
        self.expect(done, EFFECT, cycle)

    def effect(self, now: Seconds, cycle: _Cycle) -> None:
        """Do all that one arrival causes: discard or buffer, update, cancel, start, release."""
        cycle.over = now
        self.completed[cycle.worker] += 1
        if self.stale(cycle):
            cycle.fate = "discarded"
            self.startable.add(cycle.worker)
        else:
            self.buffer.append(cycle)
            if not self.distinct:
                self.startable.add(cycle.worker)
            if len(self.buffer) >= self.k:
                self.update(now)
        self.start(now)

    def update(self, now: Seconds) -> None:
        """Use the buffer, then free those who waited for it, or everyone if work is cancelled."""
        version = len(self.updates)  # updates applied before this one
        gradients = []
        for c in self.buffer:
            c.fate = "useful"
            staleness = version - c.version
            gradients.append(Gradient(c.worker, c.step, c.version, staleness, c.arrival))
            if self.distinct:
                self.startable.add(c.worker)
        self.updates.append(Update(now, gradients))
        self.buffer = []
        if self.cancel:
            for cycles in self.cycles:
                if cycles and cycles[-1].over == math.inf:  # its worker is in the middle of it
                    cycles[-1].over = now
                    cycles[-1].fate = "cancelled"
            self.line = []
            self.link_free = [now] * len(self.link_free)
            self.startable = set(range(self.n))

    def report(self, status: str, end: Seconds) -> Schedule:
        """Divide every worker's seconds up to `end` among the seven accounts."""
        ends = ("useful", "discarded", "cancelled", "in_flight")
        names = (*ends, "waiting", "communicating", "queueing")
        seconds: dict[str, list[Seconds]] = {name: [0] * self.n for name in names}
        for worker, cycles in enumerate(self.cycles):
            free: Seconds = 0  # since when the worker has been idle
            for c in cycles:
                stop = min(c.over, end)
                moving = _covered(c.moving, stop)
                seconds["waiting"][worker] += c.start - free
                seconds["communicating"][worker] += min(c.computing, stop) - c.start + moving
                seconds[c.fate][worker] += max(min(c.ready, stop) - c.computing, 0)
                seconds["queueing"][worker] += max(stop - c.ready, 0) - moving
                free = stop
            seconds["waiting"][worker] += end - free

        started = [len(cycles) for cycles in self.cycles]
        count = {
            fate: [sum(c.fate == fate for c in cycles) for cycles in self.cycles] for fate in ends
        }
        return Schedule(
            updates=self.updates,
            end=end,
            status=status,
            started=started,
            buffered=len(self.buffer),
            completed=self.completed,
            useful_count=count["useful"],
            discarded_count=count["discarded"],
            cancelled_count=count["cancelled"],
            **seconds,
        )


def _covered(intervals: Iterable[tuple[Seconds, Seconds]], stop: Seconds) -> Seconds:
    """Seconds before `stop` that lie in at least one interval: shards on the wire may overlap."""
    total: Seconds = 0
    last: Seconds = 0
    for begin, end in sorted(intervals):
        begin, end = max(begin, last), min(end, stop)
        total += max(end - begin, 0)
        last = max(last, end)
    return total
