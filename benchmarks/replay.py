"""A replay along a trace beside a PyTorch parameter server and SGD without delays, on this machine.

    python -m benchmarks.replay --out results/replay.json

All train the same network with as many gradients an update. The replay computes each at the version
that its worker had read, as PyTorch's does in a loop over the arrivals of one run; SGD without
delays has the replay's mini-batches, so that its ratio is what staleness costs.
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
from benchmarks import peers, timing
from benchmarks.ours import numbers
from benchmarks.table import Table, ratio, save
from dtjax import data, models
from dtjax.core import checks
from dtjax.policies import Rule

RATE = 0.1


@dataclass(frozen=True)
class Options:
    """What to time."""

    policies: tuple[str, ...] = ("asp", "k-asp", "bsp")
    """Which of these policies: one, k and all gradients an update."""
    workers: int = 16
    """Number of workers."""
    k: int = 4
    """Gradients an update for k-ASP."""
    hidden: tuple[int, ...] = (32,)
    """Widths of the hidden layers between 64 inputs and 10 outputs."""
    batch: int = 32
    """Examples in a mini-batch."""
    runs: int = 64
    """Runs side by side on one device."""
    gradients: int = 1024
    """Gradients a run, rounded up to whole updates."""
    repeats: int = 9
    """Timings of each, by turns; the best counts."""
    out: Path | None = None
    """A JSON file to write the numbers to."""
    smoke: bool = False
    """A tiny size, to see that everything works."""


SMOKE = Options(
    policies=("asp",), workers=4, k=2, hidden=(8,), batch=4, runs=2, gradients=32, repeats=1
)


class Cell(NamedTuple):
    """One line of the table."""

    policy: str
    width: int  # gradients an update
    slots: int  # versions that are kept
    replay: float  # gradients a second, all runs together
    plain: float  # the same without delays
    ratio: float  # seconds of the replay in seconds of the other
    torch: float | None  # gradients a second of PyTorch, one run; None: not installed


def rules(options: Options) -> dict[str, Rule]:
    """Return the policies by name.

    Raises:
        ValueError: if one is not known.
    """
    known = {
        "asp": dtjax.policies.asp(),
        "k-asp": dtjax.policies.k_asp(options.k),
        "bsp": dtjax.policies.bsp(),
    }
    return {
        checks.choice("main", "policies", name, known): known[name] for name in options.policies
    }


def learning(options: Options) -> dtjax.Task:
    """Return what is learned: the digits."""
    model = models.mlp(options.hidden, 10)
    return dtjax.task.classification(model, data.digits(), batch=options.batch)


def replayed(task: dtjax.Task, rows: int) -> Callable[..., Any]:
    """Make the training along a trace, measured at its start and its end."""

    def one(key: jax.Array, trace: dtjax.Trace) -> Any:
        every = rows * trace.worker.shape[-1]
        return dtjax.replay(key, trace, task, optax.sgd(RATE), evaluate_every=every)

    return one


def plain(task: dtjax.Task, rows: int) -> Callable[..., Any]:
    """Make SGD without delays: the same K mini-batches an update, at the newest version."""

    def one(key: jax.Array, trace: dtjax.Trace) -> Any:
        first, batches = jax.random.split(key)
        optimizer = optax.sgd(RATE)
        params = task.init(task.data, first)
        before = task.evaluate(task.data, params)

        def gradient(params: Any, worker: Any, step: Any, examples: Any) -> Any:
            batch = task.batch(task.data, batches, worker, step, examples)
            return jax.value_and_grad(task.loss)(params, batch)

        def update(carry: Any, row: Any) -> Any:
            params, state = carry
            losses, gradients = jax.vmap(gradient, (None, 0, 0, 0))(params, *row)
            mean = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), gradients)
            change, state = optimizer.update(mean, state, params)
            return (optax.apply_updates(params, change), state), jnp.mean(losses)

        table = (trace.worker, trace.step, trace.examples)
        (params, _), losses = lax.scan(update, (params, optimizer.init(params)), table)
        return params, losses, before, task.evaluate(task.data, params)

    return one


def schedules(options: Options, rule: Rule) -> tuple[jax.Array, dtjax.Trace]:
    """Simulate the runs: their training keys and their traces."""
    law = dtjax.delays.exponential(1.0, shift=0.5)
    cluster = dtjax.Cluster(n=options.workers, delay=law, examples=options.batch)
    updates = math.ceil(options.gradients / rule.width(options.workers))
    keys = jax.random.split(jax.random.key(0), options.runs)
    simulate = jax.vmap(lambda key: dtjax.simulate(key, cluster, rule, updates=updates))
    run = jax.jit(simulate)(keys).check(complete=True)
    return jax.random.split(jax.random.key(1), options.runs), run.trace


def check() -> None:
    """Hold them to one another where they must agree.

    The replay and SGD under BSP, where nothing is stale; the replay and PyTorch under each policy
    of this benchmark, on recorded times in which many arrivals tie.

    Raises:
        RuntimeError: if they do not.
    """
    task = learning(SMOKE)
    keys, traces = schedules(SMOKE, dtjax.policies.bsp())
    rows = traces.dt.shape[-1]
    result = jax.jit(jax.vmap(replayed(task, rows)))(keys, traces)
    params, losses, _, _ = jax.jit(jax.vmap(plain(task, rows)))(keys, traces)
    if not _close((result.params, result.loss), (params, losses)):
        raise RuntimeError("check: a replay without staleness differs from plain SGD")
    torch, _ = peers.module("torch_")
    if torch is not None:
        for name, rule in rules(dataclasses.replace(SMOKE, policies=("asp", "k-asp"))).items():
            _check_torch(torch, name, rule, task)


def _close(found: Any, expected: Any) -> bool:
    close = jax.tree.map(lambda a, b: np.allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)
    return all(jax.tree.leaves(close))


def _check_torch(torch: Any, name: str, rule: Rule, task: dtjax.Task, updates: int = 24) -> None:
    """Hold PyTorch to the replay: the parameters after a number of updates."""
    n, key = SMOKE.workers, jax.random.key(2)
    table = np.random.default_rng(0).integers(1, 9, (n, 4 * updates)) / 64
    law = dtjax.delays.recorded(table)
    cluster = dtjax.Cluster(n=n, delay=law, examples=SMOKE.batch)
    run = dtjax.simulate(key, cluster, rule, updates=updates).check(complete=True)
    trained = replayed(task, updates)(key, run.trace)
    first, batches = jax.random.split(key)

    def batch(worker: int, step: int) -> Any:
        x, y, _ = task.batch(task.data, batches, worker, step, float(SMOKE.batch))
        return torch.tensors(x, y)

    server = torch.network((64, *SMOKE.hidden, 10), layers(task.init(task.data, first)))
    found = torch.train(n, numbers(rule, n), updates, server, batch, RATE, table=table)
    if not _close(found, layers(trained.params)):
        raise RuntimeError(f"check: PyTorch and the replay differ under {name}")


def layers(params: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the weights and biases of a perceptron, layer by layer."""
    dense = params["params"]
    names = sorted(dense, key=lambda name: int(name.rpartition("_")[2]))
    return [(np.asarray(dense[name]["kernel"]), np.asarray(dense[name]["bias"])) for name in names]


def parameter_server(options: Options, rule: Rule) -> tuple[Callable[[], Any], int] | None:
    """Make PyTorch's training of one run, and how many gradients that is; None: not installed."""
    torch, _ = peers.module("torch_")
    if torch is None:
        return None
    policy, updates = (
        numbers(rule, options.workers),
        math.ceil(options.gradients / rule.width(options.workers)),
    )
    given = data.digits()
    batch = torch.drawn(given.x_train, given.y_train, options.batch)

    def call() -> Any:
        server = torch.network((64, *options.hidden, 10))
        return torch.train(options.workers, policy, updates, server, batch, RATE)

    return call, updates * policy.k


def measure(options: Options, name: str, rule: Rule, task: dtjax.Task) -> Cell:
    """Time one policy."""
    keys, traces = schedules(options, rule)
    rows, width = traces.worker.shape[1:]
    calls = {}
    for call, make in (("replay", replayed), ("plain", plain)):
        one = make(task, rows)

        def several(runs: Any, other: tuple[()], one: Callable[..., Any] = one) -> Any:
            del other
            return jax.vmap(one)(*runs)

        calls[call], _ = timing.compiled(several, jax.devices()[:1], (keys, traces), ())
    server = parameter_server(options, rule)
    if server is not None:
        calls["torch"] = server[0]
    seconds = timing.best(calls, options.repeats)
    work = options.runs * rows * width
    return Cell(
        policy=name,
        width=width,
        slots=traces.slots,
        replay=work / seconds["replay"],
        plain=work / seconds["plain"],
        ratio=seconds["replay"] / seconds["plain"],
        torch=None if server is None else server[1] / seconds["torch"],
    )


TABLE = Table(
    ("policy", "gradients an update", "versions kept", "replay", "no delays", "PyTorch",
     "replay / PyTorch", "seconds / no delays")
)  # fmt: skip


def line(cell: Cell) -> str:
    """Format a row: rates in thousands of gradients a second."""
    rates = (f"{cell.replay / 1e3:.1f}", f"{cell.plain / 1e3:.1f}")
    torch = "-" if cell.torch is None else f"{cell.torch / 1e3:.1f}"
    sizes = (cell.policy, str(cell.width), str(cell.slots))
    return TABLE.line((*sizes, *rates, torch, ratio(cell.replay, cell.torch), f"{cell.ratio:.2f}"))


def main(options: Options) -> list[Cell]:
    """Check that they train alike where they must, then time them and print the table."""
    if options.smoke:
        options = dataclasses.replace(SMOKE, out=options.out)
    chosen = rules(options)
    jax.config.update("jax_num_cpu_devices", 1)
    check()
    print(*(f"{name}: {value}" for name, value in timing.machine().items()), sep="\n")
    torch, reason = peers.module("torch_")
    if torch is None:
        print(f"PyTorch is not installed: {reason}")
    print(f"{options.runs} runs side by side on one device; thousands of gradients a second.")
    print(TABLE.title(), flush=True)
    task, cells = learning(options), []
    for name, rule in chosen.items():
        cells.append(measure(options, name, rule, task))
        print(line(cells[-1]), flush=True)
    save(options.out, options, timing.machine(), cells=cells)
    return cells


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
