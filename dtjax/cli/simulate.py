"""`dtjax simulate`: one schedule as text and as a picture, or statistics of many."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from dtjax.cli import network
from dtjax.cli.network import COMPRESSORS, NetworkOptions
from dtjax.cli.workers import LAWS, WorkerOptions, law_of
from dtjax.core import plugins

POLICIES = "dtjax.policies"


@dataclass(frozen=True)
class Simulate:
    """Simulate one schedule and print its updates, staleness and accounts; or many (--runs).

    Say how long workers compute in one of three ways: --workers with --law (or with --mean and
    --shift: exponential), --compute-times (constant, one a worker), or --table (a CSV file of
    measured seconds, one row a worker).

    Policies, laws and compressors are named as NAME, NAME:NUMBERS or "NAME(NUMBERS)", with the
    arguments that they have in Python: --law pareto:2.5,1.0, --policy k-asp:2,max_staleness=4,
    --compressor "error_feedback(top_k(0.01))". Dashes may stand for underscores.
    """

    policy: Annotated[str, tyro.conf.arg(metavar="NAME[:NUMBERS]")] = "asp"
    """Synchronisation policy: one of those above."""
    k: int | None = None
    """Gradients an update, if the policy has a k."""
    bound: int | None = None
    """How far ahead of the slowest a worker may run, for ssp."""
    max_staleness: int | None = None
    """Discard gradients older than this, for the asynchronous policies."""
    preempt: bool = True
    """Whether an update of k_bsp and k_batch_bsp stops unfinished work."""
    workers: Annotated[WorkerOptions, tyro.conf.arg(name="")] = WorkerOptions()
    network: Annotated[NetworkOptions, tyro.conf.arg(name="")] = NetworkOptions()
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

    def run(self) -> None:
        """Run the command.

        Raises:
            ValueError: if an option is out of its range or contradicts another.
        """
        from dtjax.cli import report
        from dtjax.core import checks
        from dtjax.experiment import study

        checks.integer("simulate", "runs", self.runs, low=1)
        if self.figure is not None:
            if self.figure.suffix not in (".png", ".pdf", ".svg"):
                rule = "must end in .png, .pdf or .svg"
                raise checks.fail("simulate", "figure", rule, str(self.figure))
            study.output_folder(self.figure.parent)
        study.prepare(devices=1 if self.runs == 1 else None, cache=self.runs == 1)
        if self.runs > 1:
            _many(self)
            return
        key, cluster, policy = _given(self)
        run = _one(self, key, cluster, policy)
        print(report.one_run(run, cluster.network))
        if self.figure is not None:
            from dtjax.analysis import gantt

            holds = bool(getattr(policy, "distinct", False))
            title, links = self.policy, cluster.network
            gantt.draw(run, self.figure, holds=holds, title=title, network=links)
            print(f"wrote {self.figure}")


def description() -> str:
    """Return the text above the options: how to use them, and every name that they take."""
    text = str(Simulate.__doc__).replace("\n    ", "\n")
    for title, package in (("Policies", POLICIES), ("Laws", LAWS), ("Compressors", COMPRESSORS)):
        each = (f"{name}({given})" for name, given in plugins.signatures(package).items())
        text += f"\n{title}: {', '.join(each)}.\n"
    return text


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

    Example:
        >>> policy_of("k-asp", k=2) == policy_of("k_asp:2")
        True
    """
    from dtjax.core import expressions

    return expressions.make(
        "simulate",
        "policy",
        POLICIES,
        name,
        k=k,
        bound=bound,
        max_staleness=max_staleness,
        preempt=None if preempt else False,
    )


def _given(options: Simulate) -> tuple[Any, Any, Any]:
    """Return the key, the cluster and the policy."""
    import jax

    import dtjax
    from dtjax.core import checks

    n, law = law_of(options.workers)
    cluster = dtjax.Cluster(n=n, delay=law, network=network.network_of(options.network))
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


def _one(options: Simulate, key: Any, cluster: Any, policy: Any) -> Any:
    """Simulate one run, to its end."""
    import dtjax
    from dtjax.clock.status import DONE

    if options.updates is not None or options.until is None:
        updates = 20 if options.updates is None else options.updates
        return dtjax.simulate(key, cluster, policy, updates=updates, until=options.until)
    rows = 64
    while True:  # the trace has a fixed number of rows: take more until they are enough
        run = dtjax.simulate(key, cluster, policy, updates=rows, until=options.until)
        if int(run.status) != DONE:
            return run
        rows *= 4
