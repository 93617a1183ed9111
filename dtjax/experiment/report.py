"""The table that answers which arm is first, by how much, and how sure one can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtjax.analysis.bootstrap import Interval
from dtjax.analysis.dataset import final
from dtjax.analysis.ranking import ranking
from dtjax.core import checks
from dtjax.core.table import table

if TYPE_CHECKING:
    import xarray as xr


def report(dataset: xr.Dataset, *, target: float | None = None) -> str:
    """Lay out a comparison: a table for each world, one row an arm.

    Columns: the learning rate; the median seconds to the target with its 95 % interval and the
    number of censored runs; how much longer that is than the best arm's, paired by run; the
    probability of being first; the updates made; the share of the workers' time that went into
    used gradients and, with a network, into communication (queueing included); the mean staleness;
    the measure at the end. Below: rates at an edge of their grid, diverged runs.

    Args:
        dataset: of `dtjax.compare`.
        target: another target than the dataset's, as in `ranking`.

    Raises:
        ValueError: if it is no such dataset.

    Example:
        >>> import dtjax, optax
        >>> found = dtjax.compare(
        ...     {"bsp": dtjax.policies.bsp(), "asp": dtjax.policies.asp()},
        ...     dtjax.Cluster(n=4, delay=dtjax.delays.exponential(1.0)),
        ...     dtjax.task.quadratic([1.0, 0.5]),
        ...     optimizer=optax.sgd, rates=[0.1, 0.2, 0.4], target=0.01, until=60.0,
        ...     runs=4, tuning_runs=2, window=8, evaluate_every=8,
        ... )
        >>> print(report(found).splitlines()[1][:42])
        arm  rate  seconds to loss 0.01  over best
    """
    if not {"target_seconds", "rate", "arm", "world"} <= set(dataset.variables):
        raise checks.fail("report", "dataset", "must be of dtjax.compare", list(dataset))
    ranks = ranking(dataset, target=target)
    goal = float(dataset.attrs["target"]) if target is None else target
    parts = [
        _world(dataset.sel(world=world), ranks.sel(world=world), str(world), goal)
        for world in dataset.world.values
    ]
    return "\n\n".join(parts)


def _world(whole: xr.Dataset, ranks: xr.Dataset, world: str, goal: float) -> str:
    measure, runs = whole.attrs["measure"], whole.sizes["run"]
    what = f"{100 * goal:.4g}%" if measure.endswith("accuracy") else f"{measure} {goal:g}"
    linked = "bits_sent" in whole
    headers = ["arm", "rate", f"seconds to {what}", "over best", "first", "updates", "useful"]
    headers += [*(["link"] if linked else []), "staleness", measure.removeprefix("test_")]
    rows, notes = [], []
    for arm in whole.arm.values:
        one, rank = whole.sel(arm=arm), ranks.sel(arm=arm)
        rows.append([str(arm), *_answer(one, rank, runs), *_costs(one, linked, measure)])
        if str(one.rate_warning.values):
            notes.append(f"{arm}: {one.rate_warning.values}")
        if lost := int((one.diverged.values >= 0).sum()):
            notes.append(f"{arm}: {lost} of {runs} runs diverged")
    if (nobody := float(ranks.nobody_probability)) >= 0.005:
        notes.insert(0, f"nobody is first, no arm's median being finite, in {nobody:.0%}")
    if not str(ranks.best.values):
        notes.insert(0, f"no arm reaches {what} in half of its runs: a longer `until` would help")
    title = f"world: {world} ({runs} runs; medians with 95 % bootstrap intervals, paired by run)"
    return "\n".join([title, table(headers, rows), *notes])


def _answer(one: xr.Dataset, rank: xr.Dataset, runs: int) -> list[Any]:
    """Return rate, seconds, difference to the best arm, and the probability of being first."""
    low, high = (float(x) for x in rank.median_bounds.values)
    seconds = Interval(float(rank.median_seconds), low, high, int(rank.censored), runs)
    behind = "-"
    if str(rank.best.values) not in ("", str(one.arm.values)):
        behind = _signed(float(rank.behind), *rank.behind_bounds.values)
    return [float(one.rate), str(seconds), behind, f"{float(rank.first_probability):.0%}"]


def _signed(middle: float, low: float, high: float) -> str:
    """Write a difference with its interval; infinite: one of the two never gets there."""
    words = [_seconds(x) for x in (middle, low, high)]
    return words[0] if words[0] == words[1] == "never" else f"{words[0]} [{words[1]}, {words[2]}]"


def _seconds(x: float) -> str:
    if np.isinf(x):
        return "never" if x > 0 else "-never"
    return f"{x:+.3g}" if x else "0"


def _costs(one: xr.Dataset, linked: bool, measure: str) -> list[Any]:
    """Return updates, shares of the workers' seconds, staleness and final quality."""
    workers = int(one.useful.notnull().any("run").sum())  # another world may have more
    total = one.elapsed.values * workers
    shares = [one.useful]
    if linked:
        shares.append(one.communicating + one.queueing)
    last = final(one[measure])
    last = last[np.isfinite(last)]
    return [
        f"{np.median(one.update_count.values):.0f}",
        *(f"{np.mean(share.sum('worker').values / total):.0%}" for share in shares),
        round(float(np.mean(one.mean_staleness.values)), 1),
        f"{np.median(last):.3g}" if last.size else "-",
    ]
