"""Arrivals a second of dtjax alone over numbers of workers and runs: what accelerators are for."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import jax

from benchmarks import agree, floors, ours, timing
from benchmarks.ours import Collect, Work
from benchmarks.table import Table

MEMORY = 8
"""A row is left out if this many times the state of its runs does not fit into the memory."""


@dataclass(frozen=True)
class Sizes:
    """What to time."""

    policies: tuple[str, ...] = ("asp",)
    """Names of policies."""
    n: tuple[int, ...] = (8, 64, 512, 4096)
    """Numbers of workers."""
    runs: tuple[int, ...] = (1_000, 10_000, 100_000)
    """Numbers of runs side by side on one device; the first is compared with the CPU."""
    arrivals: int = 256
    """Arrivals a run, rounded up to whole updates."""


class Cell(NamedTuple):
    """One row."""

    policy: str
    n: int
    runs: int
    rate: float  # arrivals a second
    compile: float  # seconds


TABLE = Table(("policy", "n", "runs", "arrivals / s", "compile s"))


def rows(options: Sizes, collect: Collect, deadline: float) -> list[Cell]:
    """Compare with the CPU, time and print, until the deadline (of `time.perf_counter`) comes."""
    print("Millions of arrivals a second on one device.", TABLE.title(), sep="\n", flush=True)
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    cells, longest = [], 0.0
    for name in options.policies:
        for n in options.n:
            width = ours.rule(name, n).width(n)
            for runs in options.runs:
                work = Work(name, n, -(-options.arrivals // width), runs, collect)
                if limit is not None and MEMORY * floors.state(work) > limit:
                    print(f"{name}, n = {n}, {runs} runs: left out, too large for the memory")
                    continue
                begin = time.perf_counter()
                if begin + longest > deadline:
                    print("the rest is left out: its share of the time is over")
                    return cells
                cells.append(_measure(work, deadline, check=runs == options.runs[0]))
                longest = max(longest, time.perf_counter() - begin)
                cell = cells[-1]
                print(
                    TABLE.line(
                        (cell.policy, str(cell.n), str(cell.runs), f"{cell.rate / 1e6:.2f}",
                         f"{cell.compile:.1f}")
                    ),
                    flush=True,
                )  # fmt: skip
    return cells


def _measure(work: Work, deadline: float, *, check: bool) -> Cell:
    call, seconds = timing.compiled(work, jax.devices()[:1], work.keys(), work.cluster())
    if check and timing.accelerated():
        agree.check_device(work, call())
    least = timing.best({"call": call}, 3, deadline)["call"]
    return Cell(work.policy, work.n, work.runs, work.arrivals / least, seconds)
