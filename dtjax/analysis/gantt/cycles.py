"""What one run did when: the bars of its Gantt chart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dtjax.clock.trace import seconds, staleness
from dtjax.clock.transport import links
from dtjax.clock.transport.choose import queued
from dtjax.core import checks
from dtjax.core.protocols import COMPUTING

NAMES = {
    "useful": "computing, used",
    "lost": "computing, cancelled or discarded",
    "open": "computing, not used by the end",
    "pull": "pulling",
    "push": "pushing",
    "queue": "queueing",
    "server": "folding, updating",
}

Name = tuple[int, int]  # worker, step


class Bar(NamedTuple):
    """One bar: a worker's seconds from `start` to `end`, or the server's."""

    worker: int  # n: the server
    start: float
    end: float
    fate: str  # one of `NAMES`
    label: str


class Way(NamedTuple):
    """How a gradient came to the server: `clock.trace.Transit`, in seconds of the run."""

    ready: float
    effect: float
    moving: float
    pull: float
    private: float


class Cycle(NamedTuple):
    """What is known of one pull, computation and push."""

    worker: int
    step: int
    start: float
    free: float  # when the worker could start again
    bars: list[Bar]


def bars(run: Any, *, holds: bool, network: Any = None) -> list[Bar]:
    """Find the bars of one run.

    A used computation lies where the trace puts it; what is under way, or waits for the next
    update, is in the clock. Steps missing between two of these were cancelled or discarded: they
    fill the time between, with their pulls and pushes, and the server's time for them is not shown.
    A push lies at the end of its way: with several servers its shards may have moved in turns.

    Args:
        run: of `dtjax.simulate`, one run that began at second 0.
        holds: whether a worker that has delivered waits for the update (`Rule.distinct`).
        network: of the run's cluster.

    Raises:
        ValueError: if the run is of a cluster with a network and `network` is None.
    """
    trace, clock = run.trace, run.clock
    if trace.transit is not None and network is None:
        raise checks.fail(
            "bars", "network", "must be given: the run is of a cluster with one", None
        )
    known = [*_updated(trace, holds, network), *_buffered(run, holds, network)]
    known += _under_way(run, network)
    end = float(run.accounts.elapsed)
    found: list[Bar] = []
    idle = {worker: (0.0, 0) for worker in range(len(clock.of.step))}  # idle from, next step
    for cycle in sorted(known):
        if cycle.worker not in idle:  # the server's
            found += cycle.bars
            continue
        since, expected = idle[cycle.worker]
        if cycle.step > expected:
            label = f"{cycle.step - expected} lost"
            found.append(Bar(cycle.worker, since, cycle.start, "lost", label))
        found += cycle.bars
        idle[cycle.worker] = (cycle.free, cycle.step + 1)
    for worker, (since, expected) in idle.items():
        if (lost := int(clock.of.step[worker]) - expected) > 0:
            found.append(Bar(worker, since, end, "lost", f"{lost} lost"))
    return found


def _updated(trace: Any, holds: bool, network: Any) -> Iterator[Cycle]:
    """Walk through what the trace holds."""
    times, stale, valid = seconds(trace), np.asarray(staleness(trace)), np.asarray(trace.valid)
    for t, j in zip(*np.nonzero(valid), strict=True):
        now = float(times[t])
        name, compute = (int(trace.worker[t, j]), int(trace.step[t, j])), float(trace.compute[t, j])
        arrival, way, free = now - float(trace.arrival[t, j]), None, now
        if trace.transit is not None:
            ready, effect, *spent = (0.0 if x is None else float(x[t, j]) for x in trace.transit)
            way = Way(now - ready, now - effect, *spent)
        if not holds:
            free = arrival if way is None else way.effect
        done = _cycle(name, compute, arrival, free, ("useful", f"s={stale[t, j]}"), way)
        if way is not None and network.collective:  # the last one queues for nothing else
            done.bars[:] = [bar for bar in done.bars if bar.fate != "queue"]
            done.bars.append(Bar(done.worker, now - float(network.apply), now, "push", ""))
        yield done
        if way is not None:
            last = j == valid[t].nonzero()[0][-1]
            yield from _served(trace.workers, done, way.effect, network, last)


def _buffered(run: Any, holds: bool, network: Any) -> Iterator[Cycle]:
    """Walk through what waits for the next update."""
    clock, end = run.clock, float(run.accounts.elapsed)
    updated = end - float((clock.now - clock.updated[0]) - clock.updated[1])
    for j in range(int(clock.pending)):
        arrival, way = updated + float(clock.buffer.age[j]), None
        if network is not None:
            columns = queued(network).columns
            found = dict(zip(columns, map(float, clock.buffer.transit[j]), strict=True))
            spent = (found.get(name, 0.0) for name in ("moving", "pull", "private"))
            way = Way(updated + found["ready"], updated + found["effect"], *spent)
        effect = arrival if way is None else way.effect
        name = (int(clock.buffer.worker[j]), int(clock.buffer.step[j]))
        compute, free = float(clock.buffer.compute[j]), end if holds else effect
        done = _cycle(name, compute, arrival, free, ("open", "waits"), way)
        yield done
        if network is not None:
            yield from _served(len(clock.of.step), done, effect, network, False)


def _under_way(run: Any, network: Any) -> Iterator[Cycle]:
    """Walk through the cycles that are not over."""
    clock, end, n = run.clock, float(run.accounts.elapsed), len(run.clock.of.step)
    busy: Any = np.flatnonzero(np.asarray(clock.of.phase) == COMPUTING).tolist()
    begun, spent, steps = map(np.asarray, (clock.begun, clock.at.seconds, clock.of.step - 1))
    spent = np.nan_to_num(spent, nan=np.inf)  # missing duration
    if network is None:
        for w in busy:
            start = end - float(begun[w])
            yield Cycle(w, int(steps[w]), start, end, [Bar(w, start, end, "open", "")])
        return
    sent, arrived = _sent(clock, network, busy, steps), []
    pulls = queued(network).times(clock).pull
    for w in busy:
        own = float(links.own_link(network, w, steps[w], spent[w]))
        ready = end - float(begun[w]) + float(pulls[w]) + float(spent[w]) + own
        arrival, moved = sent.get(w, (np.inf, 0.0))
        arrival += end
        way = Way(ready, end, moved, float(pulls[w]), own)
        name = (w, int(steps[w]))
        done = _cycle(name, float(spent[w]), min(arrival, end), end, ("open", ""), way)
        parts = [bar._replace(end=min(bar.end, end)) for bar in done.bars if bar.start < end]
        if network.collective:
            parts = [bar for bar in parts if bar.fate != "queue"]
        if arrival < end:
            arrived.append((arrival, w))
        yield done._replace(bars=parts)
    if not arrived:
        return
    first, worker = min(arrived)  # the server is at it
    first = max(first, end - float(clock.now - clock.links.server))
    if network.collective:
        for w in np.flatnonzero(steps >= 0).tolist():
            yield Cycle(w, int(steps[w]), first, end, [Bar(w, first, end, "push", "")])
    elif first < end:
        yield Cycle(n, 0, first, end, [Bar(n, first, end, "server", str(worker))])


def _sent(clock: Any, network: Any, busy: Any, steps: Any) -> dict[int, tuple[float, float]]:
    """Say of each gradient that is ready when it arrives, after now, and how long it has moved.

    The queues hold what has arrived; the others are put on the ingresses in their turn.
    """
    now, free, origin = clock.now, clock.links.free, clock.origin[0] + clock.origin[1]
    sending, found = queued(network).sending(clock), {}
    for w in sorted(busy, key=lambda w: (float(np.nan_to_num(clock.due[w], nan=np.inf)), w)):
        if np.isfinite(sending.begin[0, w]):  # its turn was set before
            begin, end = sending.begin[:, w], sending.end[:, w]
        elif clock.due[w] <= now:
            free, begin, end = links.send(network, free, w, steps[w], clock.due[w], origin)
        else:
            continue
        moved = links.moving(begin, end, np.minimum(end.max(), now))
        found[w] = (float(end.max() - now), float(moved))
    return found


def _cycle(
    name: Name, compute: float, arrival: float, free: float, kind: tuple[str, str], way: Way | None
) -> Cycle:
    """Lay out one cycle; the times of its way are since the run began."""
    if way is None:
        start = arrival - compute
        return Cycle(*name, start, free, [Bar(name[0], start, arrival, *kind)])
    computed = way.ready - way.private
    start, sent = computed - compute, arrival - way.moving
    marks = (
        (start - way.pull, start, "pull", ""),
        (start, computed, *kind),
        (computed, way.ready, "push", ""),
        (way.ready, sent, "queue", ""),
        (sent, arrival, "push", ""),
        (arrival, way.effect, "queue", ""),
    )
    least = 1e-5 * max(arrival - start, 1e-30)  # shorter ones are rounding
    parts = [Bar(name[0], *mark) for mark in marks if mark[1] - mark[0] > least]
    return Cycle(*name, start - way.pull, free, parts)


def _served(n: int, done: Cycle, effect: float, network: Any, last: bool) -> Iterator[Cycle]:
    """Lay out the server's time for one gradient; the `last` one of an update makes it."""
    cost = float(network.fold) + float(network.apply) * bool(last)
    if cost > 0 and not network.collective:
        label = str(done.worker)
        yield Cycle(n, 0, effect, effect, [Bar(n, effect - cost, effect, "server", label)])
