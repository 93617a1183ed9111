"""Which arm reaches the target first: schedules, learning rates, trainings, times to the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh

from dtjax.analysis.dataset import join, label
from dtjax.core import checks
from dtjax.experiment.arms import Arm, Entry, entries
from dtjax.experiment.lanes import Goal, Trainer
from dtjax.experiment.schedules import Schedule, schedules
from dtjax.training.rate_search import Choice, RateSearch
from dtjax.training.result import Training
from dtjax.training.task import Task

if TYPE_CHECKING:
    import xarray as xr


def compare(
    arms: Mapping[str, Any],
    cluster: Any,
    task: Task,
    *,
    optimizer: Callable[[Any], Any],
    rates: Sequence[float],
    target: float,
    until: float | None = None,
    gradients: int | None = None,
    runs: int = 16,
    tuning_runs: int = 5,
    measure: str | None = None,
    tuning_measure: str | None = None,
    rising: bool | None = None,
    window: int = 100,
    evaluate_every: int = 100,
    widenings: int = 3,
    seed: int = 0,
    block: int = 8,
    mesh: Mesh | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> xr.Dataset:
    """Train every arm in every world along many runs, with the learning rate that suits each.

    Run r has the same compute times (the same table of worker and step), initial parameters and
    mini-batches in every arm and world, so that differences are the arms'. Learning rates are
    chosen by the median time to the target on other runs, the grid widened while the best is at an
    edge. Every arm is evaluated at the same numbers of gradients. `dtjax.report` lays out the
    answer.

    Args:
        arms: by name, a policy or an `Arm`, at least one.
        cluster: the machines; or several worlds, by name.
        task: what is learned.
        optimizer: from a learning rate, f[], to an optax transformation.
        rates: learning rates to try, positive.
        target: of the measure; reached where the measure, smoothed over `window` gradients, gets
            there and stays for another `window`. A run that does not is censored: infinity.
        until: simulated seconds of every run.
        gradients: used in every run, as many whole updates as they make; `until` or this there
            must be.
        runs: to report.
        tuning_runs: to choose rates by.
        measure: of the task; None: `test_accuracy`, or `loss`, whichever it has.
        tuning_measure: to choose rates by; None: `validation_x` for `test_x` if the task has it,
            else the measure.
        rising: whether larger is better; None: unless the measure is named a loss or an error.
        window: gradients, 0 or more.
        evaluate_every: gradients between two evaluations.
        widenings: how often the grid of rates may grow.
        seed: of everything.
        block: trainings side by side on a device: part of what the bits of a run depend on.
        mesh: of devices; None: all the local ones.
        progress: called now and then with the gradients trained, and those planned by now.

    Returns:
        Raw arrays with dimensions world, arm, run, evaluation, worker, candidate, tuning_run:
        measures and `seconds`, `gradients`, `updates` of each evaluation, accounts, staleness,
        `target_seconds` (infinite: not reached), `rate`, `rate_warning`, `tried`, and
        `tuning_seconds`.

    Raises:
        ValueError: if there is no arm, an argument is out of its range, the task has no such
            measure, or no update is made by `until`.
        RuntimeError: if a clock stops for a reason that nobody asked for.

    Example:
        >>> import dtjax, optax
        >>> found = compare(
        ...     {"bsp": dtjax.policies.bsp(), "asp": dtjax.policies.asp()},
        ...     dtjax.Cluster(n=4, delay=dtjax.delays.exponential(1.0)),
        ...     dtjax.task.quadratic([1.0, 0.5]),
        ...     optimizer=optax.sgd, rates=[0.1, 0.2, 0.4], target=0.01, until=60.0,
        ...     runs=4, tuning_runs=2, window=8, evaluate_every=8,
        ... )
        >>> found.target_seconds.dims, bool(np.isfinite(found.target_seconds).all())
        (('world', 'arm', 'run'), True)
    """
    rows = entries(arms, cluster, task, optimizer)
    flat = [entry for row in rows for entry in row]
    _check(until, gradients, runs=runs, tuning_runs=tuning_runs, evaluate_every=evaluate_every)
    checks.integer("compare", "seed", seed, low=0, high=2**31 - 1)
    goal = _goal(task, measure, tuning_measure, rising, target, window, evaluate_every)
    clocks, learners = (_keys(seed, use, tuning_runs + runs) for use in range(2))
    search = RateSearch(dict.fromkeys(range(len(flat)), rates), widenings=widenings)
    found = schedules(flat, clocks, until=until, gradients=gradients, mesh=mesh)
    count = _Count(progress)
    trainer = Trainer(task, flat, found, learners, evaluate_every, block, mesh, count.done)
    first, reported = np.arange(tuning_runs), tuning_runs + np.arange(runs)
    choices = _tune(trainer, search, goal, first, reported, count)
    cells = [(place, choices[place].rate) for place in range(len(flat))]
    trainings = trainer.train(cells, reported)
    parts = [
        _dataset(entry, one, training, choices[place], goal, reported)
        for place, (entry, one, training) in enumerate(zip(flat, found, trainings, strict=True))
    ]
    width = len(rows[0])
    whole = join([parts[i : i + width] for i in range(0, len(parts), width)], "world", "arm")
    whole = whole.transpose("world", "arm", "run", "evaluation", ...)
    ends = {"until": until, "gradients_a_run": gradients}
    return (
        whole.drop_vars(list(whole.coords))
        .assign_coords(
            world=[row[0].world for row in rows], arm=[one.arm for one in rows[0]], run=range(runs)
        )
        .assign_attrs(
            goal._asdict() | {"rising": int(goal.rising), "seed": seed, "block": block},
            **{name: value for name, value in ends.items() if value is not None},
        )
    )


def _tune(
    trainer: Trainer,
    search: RateSearch,
    goal: Goal,
    runs: np.ndarray,
    reported: np.ndarray,
    count: _Count,
) -> dict[Any, Choice]:
    """Choose a rate for every entry, training what all of them want together."""
    count.plan(sum(trainer.gradients(place, reported) for place in range(len(trainer.entries))))
    while wanted := search.ask():
        count.plan(sum(trainer.gradients(place, runs) for place, _ in wanted))
        for (place, rate), one in zip(wanted, trainer.train(wanted, runs), strict=True):
            search.tell(place, rate, goal.reached(one, goal.tuning_measure), goal.quality(one))
    return search.choices()


def _dataset(
    entry: Entry,
    schedule: Schedule,
    training: Training,
    choice: Choice,
    goal: Goal,
    reported: np.ndarray,
) -> xr.Dataset:
    """Return what came of one arm in one world."""
    mine = jax.tree.map(lambda leaf: leaf[reported], schedule)
    seconds = goal.reached(training, goal.measure)
    return label(mine, training, network=entry.cluster.network).assign(
        target_seconds=("run", seconds, {"units": "s", "note": "infinite: not reached"}),
        rate=choice.rate,
        rate_warning=choice.warning,
        tried=("candidate", choice.tried),
        tuning_seconds=(("candidate", "tuning_run"), choice.seconds),
    )


def _goal(
    task: Task,
    measure: str | None,
    tuning: str | None,
    rising: bool | None,
    target: float,
    window: int,
    every: int,
) -> Goal:
    """Find the measures, and whether they rise."""
    name = "compare"
    checks.real(name, "target", target, ndim=0)
    checks.integer(name, "window", window, low=0)
    params = jax.eval_shape(task.init, task.data, jax.random.key(0))
    shapes = jax.eval_shape(task.evaluate, task.data, params)
    known = [own for own, one in shapes.items() if one.ndim == 0]
    if measure is None:
        measure = next((own for own in ("test_accuracy", "loss") if own in known), "")
    checks.choice(name, "measure", measure, known)
    if tuning is None:
        other = measure.replace("test_", "validation_", 1)
        tuning = other if other in known else measure
    checks.choice(name, "tuning_measure", tuning, known)
    if rising is None:
        rising = not any(word in measure for word in ("loss", "error"))
    return Goal(measure, tuning, float(target), bool(rising), window, every)


def _check(until: float | None, gradients: int | None, **counts: int) -> None:
    for name, value in counts.items():
        checks.integer("compare", name, value, low=1)
    if until is None and gradients is None:
        raise checks.fail("compare", "until", "or gradients must be given", until)
    if until is not None:
        checks.real("compare", "until", until, checks.POSITIVE, ndim=0)
    if gradients is not None:
        checks.integer("compare", "gradients", gradients, low=1)


def _keys(seed: int, use: int, count: int) -> jax.Array:
    """Return a key a run: of its schedule (use 0) or its training (1)."""
    return jax.random.split(jax.random.fold_in(jax.random.key(seed), use), count)


class _Count:
    """Counts gradients, for progress."""

    def __init__(self, tell: Callable[[int, int], None] | None) -> None:
        self._tell, self._done, self._planned = tell, 0, 0

    def plan(self, more: int) -> None:
        self._planned += more
        self.done(0)

    def done(self, more: int) -> None:
        self._done += more
        if self._tell is not None:
            self._tell(self._done, self._planned)


__all__ = ["Arm", "compare"]
