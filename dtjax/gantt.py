"""The Gantt chart of one run: who computed what, when, and what became of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dtjax.types import COMPUTING, seconds, staleness

COLOURS = {"useful": "#0072B2", "lost": "#D55E00", "open": "#56B4E9"}
NAMES = {
    "useful": "computing, used",
    "lost": "computing, cancelled or discarded",
    "open": "computing, not used by the end",
}


class Bar(NamedTuple):
    """One bar: a worker's seconds from `start` to `end`."""

    worker: int
    start: float
    end: float
    fate: str  # useful, lost or open
    label: str


def bars(run: Any, *, holds: bool) -> list[Bar]:
    """Find the bars of one run.

    A used computation lies where the trace puts it; what is under way, or waits for the next
    update, is in the clock. Steps missing between two of these were cancelled or discarded: they
    fill the time between.

    Args:
        run: of `dtjax.simulate`, one run that began at second 0.
        holds: whether who has delivered waits for the update (`Rule.distinct`).
    """
    trace, clock = run.trace, run.clock
    times, stale = seconds(trace), np.asarray(staleness(trace))
    found: list[Bar] = []
    known: list[tuple[int, int, float, float, float, str, str]] = []
    for t, j in zip(*np.nonzero(np.asarray(trace.valid)), strict=True):
        arrival = float(times[t] - trace.arrival[t, j])
        start = arrival - float(trace.compute[t, j])
        free = float(times[t]) if holds else arrival
        name = (int(trace.worker[t, j]), int(trace.step[t, j]))
        known.append((*name, start, arrival, free, "useful", f"s={stale[t, j]}"))
    end = float(run.accounts.elapsed)
    updated = end - float((clock.now - clock.updated[0]) - clock.updated[1])
    for j in range(int(clock.pending)):
        name = (int(clock.buffer.worker[j]), int(clock.buffer.step[j]))
        arrival = updated + float(clock.buffer.age[j])
        start = arrival - float(clock.buffer.compute[j])
        known.append((*name, start, arrival, end if holds else arrival, "open", "waits"))
    phase, step, begun = (np.asarray(x) for x in (clock.of.phase, clock.of.step, clock.begun))
    for worker in np.flatnonzero(phase == COMPUTING):
        start = end - float(begun[worker])
        known.append((int(worker), int(step[worker]) - 1, start, end, end, "open", ""))
    idle = {worker: (0.0, 0) for worker in range(len(phase))}  # idle from, next step
    for worker, step_, start, arrival, free, fate, label in sorted(known):
        since, expected = idle[worker]
        if step_ > expected:
            found.append(Bar(worker, since, start, "lost", f"{step_ - expected} lost"))
        found.append(Bar(worker, start, arrival, fate, label))
        idle[worker] = (free, step_ + 1)
    for worker, (since, expected) in idle.items():
        if int(step[worker]) > expected:
            lost = f"{int(step[worker]) - expected} lost"
            found.append(Bar(worker, since, end, "lost", lost))
    return found


def draw(run: Any, path: Path, *, holds: bool, title: str = "") -> None:
    """Draw one run and write the picture.

    Args:
        run: of `dtjax.simulate`, one run.
        path: of the picture; its ending says the format.
        holds: as in `bars`.
        title: above it.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    end = float(run.accounts.elapsed)
    n = len(run.accounts.started)
    figure, axes = plt.subplots(figsize=(7.0, 0.9 + 0.42 * n), layout="constrained")
    for bar in bars(run, holds=holds):
        if bar.end <= bar.start:
            continue
        span = [(bar.start, bar.end - bar.start)]
        hatch = None if bar.fate == "useful" else "///"
        axes.broken_barh(
            span,
            (bar.worker - 0.36, 0.72),
            facecolors=COLOURS[bar.fate] if bar.fate == "useful" else "white",
            edgecolors="white" if bar.fate == "useful" else COLOURS[bar.fate],
            hatch=hatch,
        )
        if bar.end - bar.start > end / 25:
            colour = "white" if bar.fate == "useful" else COLOURS[bar.fate]
            axes.text(
                (bar.start + bar.end) / 2,
                bar.worker,
                bar.label,
                ha="center",
                va="center",
                color=colour,
                fontsize=7,
                bbox=None if bar.fate == "useful" else {"fc": "white", "ec": "none", "pad": 1},
            )
    made = np.asarray(run.trace.made)
    for time in seconds(run.trace)[made]:
        axes.axvline(time, color="#333333", linewidth=0.7, linestyle=":")
    axes.set(
        xlim=(0, end),
        ylim=(n - 0.5, -0.5),
        yticks=range(n),
        yticklabels=[f"worker {w}" for w in range(n)],
        xlabel="seconds (dotted: updates; s: staleness of a used gradient; blank: waiting)",
        title=title,
    )
    handles = [
        Patch(
            facecolor=COLOURS[f] if f == "useful" else "white",
            edgecolor="white" if f == "useful" else COLOURS[f],
            hatch=None if f == "useful" else "///",
            label=NAMES[f],
        )
        for f in NAMES
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)
