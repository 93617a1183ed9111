"""What links cost the clock: arrivals a second of the general kernel with and without a network.

python -m benchmarks.links --out results/links.json
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import tyro

import dtjax
from benchmarks import timing
from benchmarks.table import Table, save
from dtjax import delays, network, policies
from dtjax.core import checks


@dataclass(frozen=True)
class Options:
    """What to time."""

    n: tuple[int, ...] = (8, 64, 256)
    """Numbers of workers."""
    policies: tuple[str, ...] = ("asp", "k-asp")
    """Which of these two; k is a quarter of the workers."""
    collect: tuple[str, ...] = ("statistics", "trace")
    """What is kept of a run."""
    servers: int = 4
    """Number of servers, where there are several."""
    arrivals: int = 4096
    """Arrivals a run."""
    runs: int = 256
    """Runs side by side on one device."""
    repeats: int = 7
    """Timings of each, by turns; the best counts."""
    out: Path | None = None
    """A JSON file to write the numbers to."""
    smoke: bool = False
    """A tiny size, to see that everything works."""


SMOKE = Options(
    n=(3,),
    policies=("asp",),
    collect=("statistics",),
    servers=2,
    arrivals=32,
    runs=2,
    repeats=1,
)


class Cell(NamedTuple):
    """One line of the table."""

    policy: str
    n: int
    network: str
    collect: str
    rate: float  # arrivals a second
    ratio: float  # seconds in seconds without a network


def networks(n: int, servers: int) -> dict[str, Any]:
    """Return what is timed, by name: an ingress that is busy half of the time."""
    load: dict[str, Any] = {"payload": 0.5, "bandwidth": float(n), "latency": 0.01}
    shards = [[0.5 / n / servers * (1 + (w + s) % 2) for s in range(servers)] for w in range(n)]
    return {
        "none": None,
        "one ingress": network.star(**load),
        "and pulls": network.star(**load, pull=0.1),
        "servers": network.star(**load, servers=servers),
        "unequal shards": network.fixed(push=shards, latency=0.01),
        "two events": network.fixed(push=shards, latency=[0.01 * (1 + w % 2) for w in range(n)]),
    }


def main(options: Options) -> None:
    """Run the benchmark and print its table."""
    if options.smoke:
        options = dataclasses.replace(SMOKE, out=options.out)
    for name in ("servers", "arrivals", "runs", "repeats"):
        checks.integer("main", name, getattr(options, name), low=1)
    keys = jax.random.split(jax.random.key(0), options.runs)
    table = Table(("policy", "n", "network       ", "kept      ", "arrivals / s", "times none"))
    print(table.title(), flush=True)
    cells = []
    for n in options.n:
        known = {"asp": policies.asp(), "k-asp": policies.k_asp(max(1, n // 4))}
        for policy in options.policies:
            rule = known[checks.choice("main", "policies", policy, known)]
            width = rule.width(n)
            updates = -(-options.arrivals // width)
            for collect in options.collect:
                calls: dict[str, Callable[[], Any]] = {}
                for name, net in networks(n, options.servers).items():
                    cluster = dtjax.Cluster(n=n, delay=delays.exponential(1.0), network=net)
                    one = _one(cluster, rule, updates, collect)
                    call = jax.jit(jax.vmap(one)).lower(keys).compile()
                    calls[name] = lambda call=call: jax.block_until_ready(call(keys))
                seconds = timing.best(calls, options.repeats)
                for name, spent in seconds.items():
                    rate = options.runs * updates * width / spent
                    cells.append(Cell(policy, n, name, collect, rate, spent / seconds["none"]))
                    row = (policy, str(n), name, collect, f"{rate:.3g}", f"{cells[-1].ratio:.2f}")
                    print(table.line(row), flush=True)
    save(options.out, dataclasses.replace(options), timing.machine(), cells=cells)


def _one(cluster: Any, rule: Any, updates: int, collect: Any) -> Any:
    def one(key: jax.Array) -> Any:
        run = dtjax.simulate(key, cluster, rule, updates=updates, collect=collect, path="general")
        return run.accounts, run.trace if collect == "trace" else run.statistics

    return one


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 1)
    main(tyro.cli(Options, description=__doc__))
