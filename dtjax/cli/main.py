"""The command line: one schedule as text and as a picture, or statistics of many; tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from dtjax.cli import network, transfers
from dtjax.cli.network import NetworkOptions

NAMES = "{bsp,asp,ssp,k-bsp,k-batch-bsp,k-asp,k-batch-asp}"


@dataclass(frozen=True)
class Simulate:
    """Simulate one schedule and print its updates, staleness and accounts; or many (--runs).

    Say how long workers compute in one of three ways: --compute-times (constant, one a worker),
    --table (a CSV file of measured seconds, one row a worker), or --workers with --mean and --shift
    (exponential).
    """

    policy: Annotated[str, tyro.conf.arg(metavar=NAMES)] = "asp"
    """Synchronisation policy."""
    k: int | None = None
    """Gradients an update, for the four policies whose names begin with k."""
    bound: int | None = None
    """How far ahead of the slowest a worker may run, for ssp."""
    max_staleness: int | None = None
    """Discard gradients older than this, for the asynchronous policies."""
    preempt: bool = True
    """Whether an update of k-bsp and k-batch-bsp stops unfinished work."""
    compute_times: tuple[float, ...] = ()
    """Seconds of a computation, one number a worker."""
    table: Path | None = None
    """CSV file of seconds: a row a worker, a column a computation."""
    workers: int | None = None
    """Number of workers, with exponential times."""
    mean: float | None = None
    """Mean of the random part of exponential times, seconds; 1 if not given."""
    shift: float | None = None
    """Constant part of exponential times, seconds; 0 if not given."""
    until: float | None = None
    """Stop at this second."""
    updates: int | None = None
    """Stop after this many updates (20 if --until is not given)."""
    runs: int = 1
    """With 2 or more, simulate so many on all cores and print their statistics, with intervals."""
    seed: int = 0
    """Of the random times."""
    figure: Path | None = None
    """Write a Gantt chart here (.png, .pdf, .svg)."""
    network: Annotated[NetworkOptions, tyro.conf.arg(name="")] = NetworkOptions()


def policy_of(
    name: str,
    *,
    k: int | None = None,
    bound: int | None = None,
    max_staleness: int | None = None,
    preempt: bool = True,
) -> Any:
    """Make a policy from its name and the numbers that it takes.

    Raises:
        ValueError: if a number is missing that the policy needs, or given that it does not take.
    """
    from dtjax import policies
    from dtjax.core import checks

    checks.choice("simulate", "policy", name, policies.FACTORIES)
    factory = policies.FACTORIES[name]
    wants_k, synchronous = name.startswith("k-"), name.endswith("bsp")
    given: dict[str, Any] = {}
    for argument, value, takes, needs in (
        ("k", k, wants_k, wants_k),
        ("bound", bound, name == "ssp", name == "ssp"),
        ("max_staleness", max_staleness, not synchronous, False),
        ("preempt", None if preempt else False, wants_k and synchronous, False),
    ):
        if value is not None and not takes:
            raise checks.fail("simulate", argument, f"is not an option of {name}", value)
        if value is None and needs:
            raise checks.fail("simulate", argument, f"must be given for {name}", value)
        if value is not None:
            given[argument] = value
    return factory(**given)


def _cluster(options: Simulate) -> Any:
    import dtjax

    n, law = _law(options)
    links = network.network_of(options.network)
    return dtjax.Cluster(n=n, delay=law, network=links)


def _law(options: Simulate) -> tuple[int, Any]:
    """Return the number of workers and how long they compute."""
    import numpy as np

    from dtjax.cluster import delays
    from dtjax.core import checks

    ways = [bool(options.compute_times), options.table is not None, options.workers is not None]
    if sum(ways) != 1:
        rule = "must be given one of --compute-times, --table and --workers"
        raise checks.fail("simulate", "compute times", rule, f"{sum(ways)} of them")
    for name in ("mean", "shift"):
        if getattr(options, name) is not None and options.workers is None:
            rule = "must not be given without --workers"
            raise checks.fail("simulate", name, rule, getattr(options, name))
    if options.compute_times:
        return len(options.compute_times), delays.deterministic(options.compute_times)
    if options.table is not None:
        try:
            rows = [
                [float(cell.strip() or "nan") for cell in line.split(",")]
                for line in options.table.read_text().splitlines()
                if line.strip()
            ]
        except (OSError, ValueError) as error:
            rule = f"must be a CSV file of numbers ({error})"
            raise checks.fail("simulate", "table", rule, str(options.table)) from error
        if not rows:
            raise checks.fail("simulate", "table", "must hold a row a worker", str(options.table))
        full = np.full((len(rows), max(map(len, rows))), np.nan)
        for row, numbers in zip(full, rows, strict=True):
            row[: len(numbers)] = numbers
        if np.isnan(full[:, 0]).any():
            rule = "must hold a time in the first column of each row"
            raise checks.fail("simulate", "table", rule, str(options.table))
        return len(rows), delays.recorded(full)
    workers = checks.integer("simulate", "workers", options.workers, low=1)
    mean = 1.0 if options.mean is None else options.mean
    shift = 0.0 if options.shift is None else options.shift
    return workers, delays.exponential(mean, shift)


def _given(options: Simulate) -> tuple[Any, Any, Any]:
    """Return the key, the cluster and the policy."""
    import jax

    from dtjax.core import checks

    cluster = _cluster(options)
    policy = policy_of(
        options.policy,
        k=options.k,
        bound=options.bound,
        max_staleness=options.max_staleness,
        preempt=options.preempt,
    )
    checks.integer("simulate", "seed", options.seed, low=0, high=2**32 - 1)
    if options.until is not None and not 0 < options.until < math.inf:
        rule = "must be a positive and finite number of seconds"
        raise checks.fail("simulate", "until", rule, options.until)
    return jax.random.key(options.seed), cluster, policy


def _many(options: Simulate) -> None:
    """Print statistics of many runs."""
    import jax

    import dtjax
    from dtjax.analysis import tables
    from dtjax.clock.status import STATUS
    from dtjax.core import checks

    if options.figure is not None:
        rule = "must not be given with several runs: it shows one"
        raise checks.fail("simulate", "figure", rule, str(options.figure))
    key, cluster, policy = _given(options)
    updates = 20 if options.updates is None and options.until is None else options.updates
    keys = jax.random.split(key, options.runs)
    run = dtjax.simulate_runs(keys, cluster, policy, updates=updates, until=options.until)
    print(tables.summary(run, network=cluster.network))
    for status in sorted(set(run.status.tolist())):
        print(f"{int((run.status == status).sum())} runs: {STATUS[status]}")


def _run(options: Simulate) -> tuple[Any, bool, Any]:
    """Return the run, whether the policy makes workers wait for the update, and the network."""
    import dtjax
    from dtjax.clock.status import DONE

    key, cluster, policy = _given(options)
    if options.updates is not None or options.until is None:
        updates = 20 if options.updates is None else options.updates
        run = dtjax.simulate(key, cluster, policy, updates=updates, until=options.until)
        return run, policy.distinct, cluster.network
    rows = 64
    while True:  # the trace has a fixed number of rows: take more until they are enough
        run = dtjax.simulate(key, cluster, policy, updates=rows, until=options.until)
        if int(run.status) != DONE:
            return run, policy.distinct, cluster.network
        rows *= 4


def simulate(options: Simulate) -> None:
    """Run the command."""
    import numpy as np

    import dtjax
    from dtjax.clock.status import DONE, STATUS, UNTIL
    from dtjax.core import checks
    from dtjax.core.table import table
    from dtjax.experiment import study

    checks.integer("simulate", "runs", options.runs, low=1)
    if options.figure is not None:
        if options.figure.suffix not in (".png", ".pdf", ".svg"):
            rule = "must end in .png, .pdf or .svg"
            raise checks.fail("simulate", "figure", rule, str(options.figure))
        study.output_folder(options.figure.parent)
    study.prepare(devices=1 if options.runs == 1 else None, cache=options.runs == 1)
    if options.runs > 1:
        _many(options)
        return
    run, holds, links = _run(options)
    trace, accounts = run.trace, run.accounts
    times, stale = dtjax.seconds(trace), np.asarray(dtjax.staleness(trace))
    valid = np.asarray(trace.valid)
    rows = []
    for t in np.flatnonzero(np.asarray(trace.made)):
        names = [
            f"{int(trace.worker[t, j])}.{int(trace.step[t, j])}" for j in np.flatnonzero(valid[t])
        ]
        ages = [str(stale[t, j]) for j in np.flatnonzero(valid[t])]
        rows.append([int(t) + 1, float(times[t]), " ".join(names), " ".join(ages)])
    headers = ["update", "seconds", "gradients (worker.step)", "staleness"]
    print(table(headers, rows, digits=7))
    print()
    fates = ("useful", "discarded", "cancelled", "in_flight", "waiting")
    if links is not None:
        fates += network.FATES
    per_worker = [
        [w, int(accounts.started[w]), int(accounts.useful_count[w])]
        + [float(getattr(accounts, fate)[w]) for fate in fates]
        for w in range(len(accounts.started))
    ]
    headers = ["worker", "started", "used", *(f.replace("_", " ") for f in fates)]
    print(table(headers, per_worker, digits=7))
    print()
    reason = STATUS[int(run.status)]
    summary = [
        ["seconds", float(accounts.elapsed)],
        ["updates", int(accounts.updates)],
        ["gradients used", int(np.sum(accounts.useful_count))],
        ["gradients waiting for the next update", int(accounts.buffered)],
        ["utilisation", float(accounts.utilisation)],
        ["gradients a second", float(accounts.gradients_per_second)],
        ["updates a second", float(accounts.updates_per_second)],
        ["cancelled seconds, share", float(accounts.share("cancelled"))],
        ["cancelled computations, share", float(accounts.cancelled_share)],
        *network.sums(links, accounts),
    ]
    print("\n".join(f"{name}: {value:.6g}" for name, value in summary))
    if int(run.status) not in (DONE, UNTIL):
        print(f"stopped early: {reason}")
    if options.figure is not None:
        from dtjax.analysis import gantt

        gantt.draw(run, options.figure, holds=holds, title=options.policy, network=links)
        print(f"wrote {options.figure}")


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and run it."""
    commands: Any = Annotated[
        Annotated[Simulate, tyro.conf.subcommand("simulate")]
        | Annotated[transfers.TransferTable, tyro.conf.subcommand("transfer-table")]
        | Annotated[_Version, tyro.conf.subcommand("version")],
        tyro.conf.arg(name=""),
    ]
    options = tyro.cli(commands, prog="dtjax", args=arguments)
    if isinstance(options, _Version):
        import dtjax

        print(dtjax.__version__)
        return
    if isinstance(options, transfers.TransferTable):
        transfers.run(options)
        return
    simulate(options)


@dataclass(frozen=True)
class _Version:
    """Print the version."""
