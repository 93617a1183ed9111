"""Who is first: medians, paired differences to the best arm, and how sure one can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtjax.analysis import bootstrap
from dtjax.analysis.time_to_target import due_gradients, time_to_target
from dtjax.core import checks

if TYPE_CHECKING:
    import xarray as xr


def ranking(
    dataset: xr.Dataset,
    *,
    target: float | None = None,
    resamples: int = bootstrap.RESAMPLES,
    seed: int = 0,
) -> xr.Dataset:
    """Rank the arms of every world by the seconds that they take to the target.

    All intervals are of 95 %, by resampling runs: the same runs of every arm, so that differences
    are paired. Censored runs count as infinite; where both medians of a difference are infinite it
    is 0.

    Args:
        dataset: of `dtjax.compare`, or any with `target_seconds` of dimensions (world, arm, run).
        target: another target than the dataset's, found again in its curves (the learning rates
            stay those that suit the first one); None: `target_seconds` as they are.
        resamples: bootstrap samples.
        seed: of the resampling.

    Returns:
        With dimensions (world, arm): `median_seconds`, `censored` runs, `behind`, the difference of
        medians to that of the best arm, both also with dimension `bound` (low, high) as
        `median_bounds` and `behind_bounds`, and `first_probability`, that of having the least
        median. With dimension (world,): `best`, the arm with the least median ("": no arm's is
        finite), and `nobody_probability`, that no arm's is.

    Raises:
        ValueError: if the dataset has no such variable.

    Example:
        >>> import xarray as xr
        >>> times = xr.DataArray([[[1.0, 2.0, 3.0], [2.0, 4.0, 9.0]]], dims=("world", "arm", "run"))
        >>> data = xr.Dataset({"target_seconds": times}, {"arm": ["asp", "bsp"]})
        >>> found = ranking(data)
        >>> found.best.item(), found.behind.values.tolist()
        ('asp', [[0.0, 2.0]])
    """
    if "target_seconds" not in dataset:
        raise checks.fail("ranking", "dataset", "must be of dtjax.compare", list(dataset))
    times = dataset.target_seconds if target is None else retarget(dataset, target)
    times = times.transpose("world", "arm", "run")
    worlds = [
        _world(one, [str(arm) for arm in dataset.arm.values], resamples, seed)
        for one in times.values
    ]
    import xarray as xr

    each, dims = ("world", "arm"), {"median_bounds": ("bound",), "behind_bounds": ("bound",)}
    values: dict[str, Any] = {}
    for name in worlds[0]:
        own = ("world",) if name in ("best", "nobody_probability") else each
        values[name] = ((*own, *dims.get(name, ())), np.stack([one[name] for one in worlds]))
    for name in ("median_seconds", "median_bounds", "behind", "behind_bounds"):
        values[name] = (*values[name], {"units": "s"})
    coords = {name: dataset[name].values for name in each if name in dataset.coords}
    return xr.Dataset(values, coords | {"bound": ["low", "high"]})


def _world(times: np.ndarray, arms: list[str], resamples: int, seed: int) -> dict[str, Any]:
    """Rank the arms of one world, f[A, R]."""
    options: Any = {"resamples": resamples, "seed": seed}
    middle, around = bootstrap.estimate(times, **options)
    best = int(np.argmin(middle))

    def behind(rows: np.ndarray) -> np.ndarray:
        medians = bootstrap.median(rows)
        return bootstrap.difference(medians, medians[best])

    gap, gap_around = bootstrap.estimate(times, behind, **options)
    *first, nobody = bootstrap.first_probability(times, **options)
    return {
        "median_seconds": middle,
        "median_bounds": around,
        "censored": np.isinf(times).sum(-1),
        "behind": gap,
        "behind_bounds": gap_around,
        "first_probability": np.array(first),
        "best": np.array(arms[best] if np.isfinite(middle[best]) else "", dtype=object),
        "nobody_probability": np.array(nobody),
    }


def retarget(dataset: xr.Dataset, target: float) -> xr.DataArray:
    """Find the seconds to another target in the curves of a comparison.

    Args:
        dataset: of `dtjax.compare`.
        target: of its measure.
    """
    goal = dataset.attrs
    checks.real("retarget", "target", target, ndim=0)
    found = np.empty([dataset.sizes[dim] for dim in ("world", "arm", "run")])
    for place in np.ndindex(found.shape[:2]):
        one = dataset.isel(world=place[0], arm=place[1]).transpose("run", "evaluation", ...)
        kept = np.asarray(one.seconds.notnull().all("run"))  # what a join has padded goes
        gradients = one.gradients.values[:, kept]
        found[place] = time_to_target(
            one.seconds.values[:, kept],
            due_gradients(gradients, int(goal["evaluate_every"])),
            one[goal["measure"]].values[:, kept],
            target,
            window=int(goal["window"]),
            rising=bool(goal["rising"]),
        )
    return dataset.target_seconds.transpose("world", "arm", "run").copy(data=found)
