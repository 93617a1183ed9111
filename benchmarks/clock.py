"""Arrivals a second of the clock beside SimPy and a numba event loop, on this machine.

    python -m benchmarks.clock --out results/clock.json

An arrival is a gradient that reaches the server. The table says which peers are not installed:
`pip install dtjax[bench]` brings them.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import dtjax
from benchmarks import peers, timing
from dtjax import keys
from dtjax.policies import FACTORIES, Rule, stack

NUMBER = {"bsp": (), "asp": (), "ssp": (3,)}  # what a factory is given; all others take k


@dataclass(frozen=True)
class Options:
    """What to time."""

    n: tuple[int, ...] = (8, 64, 256)
    """Numbers of workers."""
    policies: tuple[str, ...] = tuple(FACTORIES)
    """Names of policies; SSP's bound is 3, k is n // 4 and at least 2."""
    runs: int = 256
    """Runs that dtjax simulates side by side; a multiple of the number of devices."""
    arrivals: int = 4096
    """Arrivals a run, rounded up to whole updates."""
    repeats: int = 5
    """Timings of each implementation, by turns; the best counts."""
    devices: int = 0
    """CPU devices: 0 is one for each core that this process may use."""
    out: Path | None = None
    """A JSON file to write the numbers to."""
    smoke: bool = False
    """A tiny size, to see that everything works."""


SMOKE = Options(n=(4,), policies=("k-bsp",), runs=8, arrivals=64, repeats=1, devices=1)


class Cell(NamedTuple):
    """One line of the table. Rates are arrivals a second; a missing peer's are None."""

    policy: str
    n: int
    one: float  # dtjax on one device
    all: float  # dtjax on all devices
    simpy: float | None
    numba: float | None
    drawn: float  # computations started for each arrival
    floor: float  # the share of its time in which one device draws these computations' numbers
    compile: float  # seconds


def rule(name: str, n: int) -> Rule:
    """Make a policy by its name, which `dtjax.policies.FACTORIES` must hold."""
    if name not in FACTORIES:
        raise ValueError(f"rule: name must be one of {', '.join(FACTORIES)}, got {name!r}")
    factory = cast(Callable[..., Rule], FACTORIES[name])
    return factory(*NUMBER.get(name, (max(2, n // 4),)))


def numbers(policy: Rule, n: int) -> peers.Numbers:
    """Return a policy's numbers for the peers."""
    bound = math.inf if policy.bound is None else float(policy.bound)
    return peers.Numbers(policy.width(n), bool(policy.distinct), bool(policy.cancel), bound)


def check(n: int = 12, updates: int = 24, columns: int = 192) -> None:
    """Hold all three implementations to one schedule for each policy, on a recorded table.

    Times are multiples of 1/64, so that all sums are exact and many arrivals tie.

    Raises:
        RuntimeError: naming the first implementation and policy that differ from dtjax.
    """
    speed = 1 + np.arange(n)[:, None] % 3
    table = speed * np.random.default_rng(0).integers(1, 33, (n, columns)) / 64
    cluster = dtjax.Cluster(n=n, delay=dtjax.delays.recorded(table))
    rules = {name: rule(name, n) for name in FACTORIES}

    def one(policy: Rule) -> dtjax.Run:
        return dtjax.simulate(jax.random.key(0), cluster, policy, updates=updates, width=n)

    trace = jax.vmap(one)(stack(list(rules.values()))).check(complete=True).trace
    times, worker = dtjax.seconds(trace), np.asarray(trace.worker)
    stale = np.asarray(dtjax.staleness(trace))
    for lane, (name, policy) in enumerate(rules.items()):
        valid = np.asarray(trace.valid)[lane]
        expected = (times[lane], worker[lane][valid], stale[lane][valid])
        for peer, play in peers.installed().items():
            if play is None:
                continue
            found = play(n, numbers(policy, n), updates, table=table)
            for field, a, b in zip(found._fields, found, expected, strict=True):
                if not np.array_equal(a, b):
                    raise RuntimeError(f"check: {peer} and dtjax differ under {name} in {field}")


def bits(options: Options) -> Callable[[], Any]:
    """Make the floor: draw a uniform number for each arrival of each run, and nothing else."""

    def draw(runs: jax.Array, other: tuple[()]) -> jax.Array:
        del other

        def one(key: jax.Array) -> jax.Array:
            steps = jnp.arange(options.arrivals)
            none = jnp.zeros((), float)
            return jax.lax.scan(lambda sum_, s: (sum_ + keys.uniform(key, s), None), none, steps)[0]

        return jax.vmap(one)(runs)

    runs = jax.random.split(jax.random.key(0), options.runs)
    return timing.compiled(draw, jax.devices()[:1], runs, ())[0]


def measure(options: Options, name: str, n: int, floor: Callable[[], Any]) -> Cell:
    """Time one policy at one number of workers."""
    policy = rule(name, n)
    width = policy.width(n)
    updates = math.ceil(options.arrivals / width)
    arrivals = options.runs * updates * width

    def simulate(runs: jax.Array, machines: tuple[Any, Rule]) -> dtjax.Run:
        def one(key: jax.Array) -> dtjax.Run:
            return dtjax.simulate(key, *machines, updates=updates, width=width)

        return jax.vmap(one)(runs)

    runs = jax.random.split(jax.random.key(0), options.runs)
    cluster = dtjax.Cluster(n=n, delay=dtjax.delays.exponential(1.0))
    machines = (cluster, jax.tree.map(jnp.asarray, policy))
    one, seconds = timing.compiled(simulate, jax.devices()[:1], runs, machines)
    calls = {"one": one, "bits": floor}
    work = {"one": arrivals, "bits": options.runs * options.arrivals}
    if jax.device_count() > 1:
        calls["all"], _ = timing.compiled(simulate, jax.devices(), runs, machines)
        work["all"] = arrivals
    # SimPy is so slow that a few runs take long enough.
    share = {"simpy": max(1, options.runs // 32), "numba": options.runs}
    for peer, play in peers.installed().items():
        if play is not None:
            calls[peer] = partial(many, play, n, numbers(policy, n), updates, share[peer])
            work[peer] = share[peer] * updates * width
    rate = {call: work[call] / least for call, least in timing.best(calls, options.repeats).items()}
    started = int(jnp.sum(one().accounts.started)) / arrivals
    return Cell(
        policy=name,
        n=n,
        one=rate["one"],
        all=rate.get("all", rate["one"]),
        simpy=rate.get("simpy"),
        numba=rate.get("numba"),
        drawn=started,
        floor=started * rate["one"] / rate["bits"],
        compile=seconds,
    )


def many(play: peers.Play, n: int, policy: peers.Numbers, updates: int, runs: int) -> None:
    """Let a peer simulate runs one after the other."""
    for seed in range(runs):
        play(n, policy, updates, seed=seed)


HEAD = (
    "policy", "n", "dtjax", "all devices", "SimPy", "numba",
    "dtjax/SimPy", "dtjax/numba", "of floor", "compile s",
)  # fmt: skip


def line(cell: Cell) -> str:
    """Format a line of the table: rates in millions a second; ratios are of one device."""

    def rate(value: float | None) -> str:
        return "not installed" if value is None else f"{value / 1e6:.2f}"

    def ratio(value: float | None) -> str:
        return "-" if value is None else f"{cell.one / value:.2f}"

    entries = (
        cell.policy, str(cell.n), rate(cell.one), rate(cell.all), rate(cell.simpy),
        rate(cell.numba), ratio(cell.simpy), ratio(cell.numba), f"{cell.floor:.0%}",
        f"{cell.compile:.1f}",
    )  # fmt: skip
    return joined(entries)


def joined(entries: tuple[str, ...]) -> str:
    """Format one row of a Markdown table that also reads well as text."""
    cells = (entry.rjust(max(len(head), 6)) for entry, head in zip(entries, HEAD, strict=True))
    return f"| {' | '.join(cells)} |"


def main(options: Options) -> list[Cell]:
    """Check the three implementations against each other, then time them and print the table."""
    if options.smoke:
        options = dataclasses.replace(SMOKE, out=options.out)
    jax.config.update("jax_num_cpu_devices", options.devices or timing.cores())
    if options.runs % jax.device_count():
        raise ValueError(
            f"main: runs must be a multiple of {jax.device_count()} devices, got {options.runs}"
        )
    check()
    print(*(f"{name}: {value}" for name, value in timing.machine().items()), sep="\n")
    print("Millions of arrivals a second; ratios and the share of the floor are of one device.")
    print(joined(HEAD), "|" + "|".join("---:" for _ in HEAD) + "|", sep="\n", flush=True)
    floor = bits(options)
    cells = []
    for n in options.n:
        for name in options.policies:
            cells.append(measure(options, name, n, floor))
            print(line(cells[-1]), flush=True)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        given = {**dataclasses.asdict(options), "out": None}
        result = {
            "machine": timing.machine(),
            "options": given,
            "cells": [c._asdict() for c in cells],
        }
        options.out.write_text(json.dumps(result, indent=1))
    return cells


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
