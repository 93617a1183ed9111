"""What compressing costs: in a replay, and on one large array beside a copy and library calls.

    python -m benchmarks.compressors --out results/compressors.json

The replay trains the digits network along the same traces with and without each compressor. On an
array, a copy is the floor of the bytes; `lax.top_k` and NumPy's `argpartition` are what one would
write for top-k.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from jax import lax

import dtjax
from benchmarks import replay, timing
from benchmarks.table import Table, ratio, save
from dtjax import compressors
from dtjax.core import checks

MADE: dict[str, Callable[[], Any]] = {
    "top-k 1 %": lambda: compressors.top_k(0.01),
    "random-k 1 %": lambda: compressors.random_k(0.01),
    "threshold": lambda: compressors.threshold(0.01),
    "qsgd 4": lambda: compressors.qsgd(4),
    "terngrad": lambda: compressors.terngrad(),
    "one-bit": lambda: compressors.one_bit(),
    "scaled sign": lambda: compressors.scaled_sign(),
    "majority sign": lambda: compressors.majority_sign(),
    "natural": lambda: compressors.natural(),
    "int8": lambda: compressors.int8(),
    "fp16": lambda: compressors.fp16(),
    "bf16": lambda: compressors.bf16(),
    "fp8 e4m3": lambda: compressors.fp8_e4m3(),
    "powersgd 1": lambda: compressors.power_sgd(1),
}


@dataclass(frozen=True)
class Options:
    """What to time."""

    names: tuple[str, ...] = tuple(MADE)
    """Which compressors."""
    sizes: tuple[int, ...] = (1_000_000, 10_000_000)
    """Entries of the large arrays."""
    workers: int = 16
    """Number of workers in the replay, under ASP."""
    batch: int = 32
    """Examples in a mini-batch."""
    hidden: tuple[int, ...] = (32,)
    """Widths of the hidden layers between 64 inputs and 10 outputs."""
    runs: int = 64
    """Runs of the replay side by side on one device."""
    gradients: int = 512
    """Gradients a run."""
    repeats: int = 5
    """Timings of each, by turns; the best counts."""
    out: Path | None = None
    """A JSON file to write the numbers to."""
    smoke: bool = False
    """A tiny size, to see that everything works."""


SMOKE = Options(
    names=("top-k 1 %",),
    sizes=(1000,),
    workers=3,
    batch=4,
    hidden=(8,),
    runs=2,
    gradients=16,
    repeats=1,
)


class Replayed(NamedTuple):
    """One line of the replay's table."""

    name: str
    memory: bool
    rate: float  # gradients a second, all runs together
    ratio: float  # seconds in seconds of the replay without a compressor


class Array(NamedTuple):
    """One line of the arrays' table."""

    name: str
    size: int
    seconds: float
    copies: float  # in seconds of a copy
    library: float | None  # seconds of the call one would write, in seconds of ours


def replays(options: Options) -> list[Replayed]:
    """Time the replays on one device, all by turns."""
    given = replay.Options(
        workers=options.workers,
        batch=options.batch,
        hidden=options.hidden,
        runs=options.runs,
        gradients=options.gradients,
    )
    keys, traces = replay.schedules(given, dtjax.policies.asp())
    task = replay.learning(given)
    rows = traces.worker.shape[1]

    def train(encoder: Any) -> Callable[..., Any]:
        def one(key: jax.Array, trace: dtjax.Trace) -> Any:
            return dtjax.replay(
                key, trace, task, optax.sgd(replay.RATE), evaluate_every=rows, encoder=encoder
            ).params

        return jax.vmap(one)

    encoders: dict[tuple[str, bool], Any] = {("none", False): None}
    for name in options.names:
        made = MADE[name]()
        encoders[name, False] = made
        if made.family != compressors.UNBIASED and not hasattr(made, "decode"):
            encoders[name, True] = compressors.error_feedback(made)
    calls: dict[str, Callable[[], Any]] = {}
    for name, encoder in encoders.items():
        call = jax.jit(train(encoder)).lower(keys, traces).compile()
        calls["/".join(map(str, name))] = lambda call=call: jax.block_until_ready(
            call(keys, traces)
        )
    seconds = timing.best(calls, options.repeats)
    plain, total = seconds["none/False"], options.runs * rows
    table = Table(("compressor      ", "memory", "gradients / s", "times none"))
    print("Replay with each compressor.", table.title(), sep="\n", flush=True)
    cells = []
    for (name, memory), spent in zip(encoders, seconds.values(), strict=True):
        cell = Replayed(name, memory, total / spent, spent / plain)
        cells.append(cell)
        print(table.line((name, "yes" if memory else "", f"{cell.rate:.3g}", f"{cell.ratio:.2f}")))
    return cells


def library(name: str, size: int) -> dict[str, Callable[[jax.Array], Any]]:
    """Return the calls that one would write."""
    if name.startswith("top-k"):
        k = max(1, size // 100)
        return {
            "lax": jax.jit(lambda x: lax.top_k(jnp.abs(x), k)),
            "numpy": lambda x: np.argpartition(np.abs(np.asarray(x)), size - k)[size - k :],
        }
    kinds = {"fp16": jnp.float16, "bf16": jnp.bfloat16, "fp8 e4m3": jnp.float8_e4m3fn}
    if name in kinds:
        return {"cast": jax.jit(lambda x: x.astype(kinds[name]).astype(jnp.float32))}
    return {}


def arrays(options: Options) -> list[Array]:
    """Time one array on one device."""
    table = Table(("compressor      ", "entries   ", "ms", "copies", "library / ours"))
    print("\nOne array.", table.title(), sep="\n", flush=True)
    cells, key = [], jax.random.key(2)
    copy = jax.jit(lambda x: x + 0.0)
    for size in options.sizes:
        side = math.isqrt(size)
        x = jax.random.normal(key, (side, size // side))
        for name in options.names:
            made = MADE[name]()
            memory = made.array_memory(x)
            ours = jax.jit(lambda x, memory=memory, made=made: made.compress(memory, x, key, 0)[1])
            flat = x.reshape(-1)
            calls: dict[str, Callable[[], Any]] = {
                "copy": lambda x=x: jax.block_until_ready(copy(x)),
                "ours": lambda x=x, ours=ours: jax.block_until_ready(ours(x)),
            }
            others = library(name, flat.size)
            for other, call in others.items():
                calls[other] = lambda call=call, flat=flat: jax.block_until_ready(call(flat))
            seconds = timing.best(calls, options.repeats)
            least = min((seconds[other] for other in others), default=None)
            mine = seconds["ours"]
            cells.append(
                Array(
                    name,
                    flat.size,
                    mine,
                    mine / seconds["copy"],
                    None if least is None else least / mine,
                )
            )
            row = (name, f"{flat.size:,}", f"{mine * 1e3:.3g}", f"{cells[-1].copies:.3g}")
            print(table.line((*row, ratio(least, mine))), flush=True)
    return cells


def main(options: Options) -> None:
    """Run the benchmark and print its tables."""
    if options.smoke:
        options = dataclasses.replace(SMOKE, out=options.out)
    for name in options.names:
        checks.choice("main", "names", name, MADE)
    for name in ("workers", "batch", "runs", "gradients", "repeats"):
        checks.integer("main", name, getattr(options, name), low=1)
    machine = timing.machine()
    save(options.out, options, machine, replays=replays(options), arrays=arrays(options))


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 1)
    main(tyro.cli(Options, description=__doc__))
