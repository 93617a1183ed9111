"""Arrivals a second of dtjax beside other ways to simulate the same, on this machine: one table.

    python -m benchmarks.clock --out results/clock.json

An arrival is a gradient that reaches the server. `pip install dtjax[bench]` brings the peers; the
columns of those that are not installed hold "-". `benchmarks/README.md` says how to read it.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import tyro

from benchmarks import agree, floors, ours, peers, scaling, timing
from benchmarks.ours import Work
from benchmarks.scaling import Sizes
from benchmarks.table import Table, ratio, save
from dtjax.montecarlo.simulate_many import lanes
from dtjax.policies import FACTORIES

SYNCHRONOUS = ("bsp", "k-bsp")  # in the rows with many workers
PATIENCE = 230.0
"""Seconds that a run on an accelerator may take, unless `limit` says otherwise."""


@dataclass(frozen=True)
class Options:
    """What to time."""

    n: tuple[int, ...] = (8, 64, 256)
    """Numbers of workers."""
    policies: tuple[str, ...] = tuple(FACTORIES)
    """Names of policies; SSP's bound is 3, k is n // 4 and at least 2."""
    large: int = 1024
    """Number of workers of further rows for BSP and k-BSP, with an eighth of the runs; 0: none."""
    collect: Literal["statistics", "trace"] = "statistics"
    """What dtjax keeps of a run; some of the last rows keep only seconds."""
    runs: int = 0
    """Runs that dtjax simulates side by side on a device; 0: as many as `simulate_runs` would."""
    arrivals: int = 4096
    """Arrivals a run, rounded up to whole updates."""
    updates: int = 64
    """Updates a run, at least: of a few the beginning would be timed."""
    repeats: int = 5
    """Timings of each implementation, by turns; the best counts."""
    devices: int = 0
    """CPU devices: 0 is one for each core that this process may use."""
    peers: tuple[str, ...] = tuple(peers.MODULES)
    """Which peers to time."""
    scale: bool = False
    """Also time dtjax alone over numbers of workers and runs; always on an accelerator."""
    sizes: Sizes = dataclasses.field(default_factory=Sizes)
    """These numbers."""
    limit: float = 0.0
    """Seconds after which no further row begins; 0: no limit on CPUs, 230 on an accelerator."""
    out: Path | None = None
    """A JSON file to write the numbers to."""
    smoke: bool = False
    """A tiny size, to see that everything works."""


SMOKE = Options(
    n=(4,),
    policies=("k-bsp",),
    large=8,
    runs=8,
    arrivals=64,
    updates=1,
    repeats=1,
    devices=1,
    scale=True,
    sizes=Sizes(policies=("asp",), n=(4,), runs=(8,), arrivals=16),
)


class Cell(NamedTuple):
    """One row. Rates are arrivals a second."""

    policy: str
    n: int
    runs: int
    updates: int  # of each run
    collect: str
    one: float  # dtjax on one device
    all: float  # dtjax on all devices
    busy: float  # cores of this process that one device keeps busy
    peers: dict[str, float | None]  # None: not installed, or does not play this policy
    drawn: float  # computations started for each arrival
    bits: float  # the share of its time in which one device draws these computations' numbers
    bytes: float  # the share in which it moves the bytes that it must
    compile: float  # seconds


def works(options: Options) -> Iterator[Work]:
    """Walk through the rows; those that keep only seconds come where dtjax can."""

    def work(name: str, n: int, runs: int, collect: ours.Collect) -> Work:
        updates = math.ceil(options.arrivals / ours.rule(name, n).width(n))
        return Work(name, n, max(updates, options.updates), runs, collect)

    devices = jax.device_count()
    for n in options.n:
        for name in options.policies:
            runs = options.runs or min(256, lanes(n, jax.default_backend()))
            yield work(name, n, devices * runs, options.collect)
    few = devices * (options.runs // 8 or lanes(options.large, jax.default_backend()))
    for name in SYNCHRONOUS if options.large else ():
        yield work(name, options.large, few, options.collect)
        yield work(name, options.large, few, "seconds")


def measure(options: Options, work: Work, deadline: float) -> Cell:
    """Time one row."""
    arguments, whole = (work.keys(), work.cluster()), work
    work = work._replace(runs=work.runs // jax.device_count())
    one, seconds = timing.compiled(work, jax.devices()[:1], work.keys(), work.cluster())
    found = one()
    if work.collect == "seconds":
        agree.check_seconds(work, found)
    elif timing.accelerated():
        agree.check_device(work, found)
    started, busy = work.started(found), timing.busy(one)
    del found

    draw, drawn = floors.bits(work.runs, min(4096, math.ceil(started * work.arrivals / work.runs)))
    copy, copied = floors.copies(floors.state(work))
    calls = {"one": one, "bits": draw, "bytes": copy}
    amounts = {"one": work.arrivals, "bits": drawn, "bytes": copied}
    if jax.device_count() > 1:
        calls["all"], _ = timing.compiled(whole, jax.devices(), *arguments)
        amounts["all"] = whole.arrivals
    numbers = ours.numbers(work.rule, work.n)
    for name in options.peers:
        peer = peers.load(name)
        if peer is not None and peer.plays(work.n, numbers):
            runs = max(1, work.runs // peer.share)
            calls[name] = partial(peer.many, work.n, numbers, work.updates, runs)
            amounts[name] = runs * work.updates * numbers.k
    rates = {
        call: amounts[call] / least
        for call, least in timing.best(calls, options.repeats, deadline).items()
    }
    return Cell(
        policy=work.policy,
        n=work.n,
        runs=work.runs,
        updates=work.updates,
        collect=work.collect,
        one=rates["one"],
        all=rates.get("all", rates["one"]),
        busy=busy,
        peers={name: rates.get(name) for name in options.peers},
        drawn=started,
        bits=started * rates["one"] / rates["bits"],
        bytes=floors.traffic(work) * rates["one"] / rates["bytes"],
        compile=seconds,
    )


def table(options: Options) -> Table:
    """Return the columns."""
    given = ("policy", "n", "dtjax keeps", "one device", "all devices", "cores")
    return Table((*given, *(f"/ {name}" for name in options.peers), "bits", "bytes", "compile s"))


def entries(cell: Cell) -> list[str]:
    """Format a row: rates in millions a second, ratios of like with like.

    The peer on all cores is compared with all devices, all others with one.
    """
    rates = {name: cell.all if name == "numba cores" else cell.one for name in cell.peers}
    return [
        *(cell.policy, str(cell.n), cell.collect),
        *(f"{cell.one / 1e6:.2f}", f"{cell.all / 1e6:.2f}", f"{cell.busy:.1f}"),
        *(ratio(rates[name], peer) for name, peer in cell.peers.items()),
        *(f"{cell.bits:.1%}", f"{cell.bytes:.1%}", f"{cell.compile:.1f}"),
    ]


def main(options: Options) -> list[Cell]:
    """Check the implementations against each other, then time them and print the table.

    Raises:
        ValueError: if a setting cannot be.
        RuntimeError: if two implementations differ.
    """
    begin = time.perf_counter()
    if options.smoke:
        options = dataclasses.replace(SMOKE, collect=options.collect, out=options.out)
    for name in options.peers:
        if name not in peers.MODULES:
            raise ValueError(f"main: peers must be among {', '.join(peers.MODULES)}, got {name!r}")
    jax.config.update("jax_num_cpu_devices", options.devices or timing.cores())
    limit = options.limit or (PATIENCE if timing.accelerated() else math.inf)
    with jax.default_device(jax.devices("cpu")[0]):
        agree.check_peers()
    print(*(f"{name}: {value}" for name, value in timing.machine().items()), sep="\n")
    for name in options.peers:
        if peers.load(name) is None:
            print(f"{name} is not installed: {peers.module(peers.MODULES[name])[1]}")

    scaled = []
    if options.scale or timing.accelerated():
        scaled = scaling.rows(options.sizes, options.collect, begin + limit / 2)
    print("Millions of arrivals a second; ratios and shares of the floors are of one device.")
    columns, cells = table(options), []
    print(columns.title(), flush=True)
    longest, rows = 0.0, list(works(options))
    for work in rows:
        start = time.perf_counter()
        if start + longest > begin + limit:
            print(f"{len(rows) - len(cells)} rows left out: {limit:.0f} seconds are over")
            break
        cells.append(measure(options, work, begin + limit))
        longest = max(longest, time.perf_counter() - start)
        print(columns.line(entries(cells[-1])), flush=True)
    save(options.out, options, timing.machine(), cells=cells, scale=scaled)
    return cells


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
