"""Raw arrays with names: what a study writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dtjax.accounts import FATES
from dtjax.trainer import Training
from dtjax.types import staleness

if TYPE_CHECKING:
    import xarray as xr


def label(run: Any, training: Training, seconds: np.ndarray) -> xr.Dataset:
    """Label the arrays of many runs of one setting.

    Args:
        run: a batch of R runs, of `dtjax.simulate`, on the host.
        training: theirs, on the host.
        seconds: f[R, E], when each evaluation was.

    Returns:
        Measures with dimensions (run, evaluation), further axes of a measure as
        (run, evaluation, <measure>_entry), accounts (run, worker), staleness (run,).
    """
    import xarray as xr

    valid, stale = np.asarray(run.trace.examples) > 0, np.asarray(staleness(run.trace))
    accounts = run.accounts
    values: dict[str, Any] = {}
    for name, value in training.measures.items():
        more = [f"{name}_entry"] if value.ndim == 3 else []
        values[name] = (["run", "evaluation", *more], np.asarray(value))
    for name in (*FATES, "started", "used", "thrown", "stopped"):
        units = {"units": "s"} if name in FATES else {}
        values[name] = (("run", "worker"), np.asarray(getattr(accounts, name)), units)
    values |= {
        "seconds": (("run", "evaluation"), seconds, {"units": "s"}),
        "updates": (("run", "evaluation"), np.asarray(training.updates)),
        "gradients": (("run", "evaluation"), np.asarray(training.gradients)),
        "diverged": ("run", np.asarray(training.diverged)),
        "elapsed": ("run", np.asarray(accounts.elapsed), {"units": "s"}),
        "update_count": ("run", np.asarray(accounts.updates)),
        "mean_staleness": ("run", stale.sum((1, 2)) / np.maximum(valid.sum((1, 2)), 1)),
        "max_staleness": ("run", stale.max((1, 2))),
    }
    return xr.Dataset(values)


def join(grid: Sequence[Sequence[xr.Dataset]], rows: str, columns: str) -> xr.Dataset:
    """Join a grid of datasets along two new dimensions; what is shorter is padded with NaN.

    Args:
        grid: rows of datasets with the same variables.
        rows: name of the first new dimension.
        columns: name of the second.
    """
    import xarray as xr

    sizes = {
        dim: range(max(one.sizes[dim] for row in grid for one in row)) for dim in grid[0][0].dims
    }

    def pad(dataset: xr.Dataset) -> xr.Dataset:
        own = {dim: range(dataset.sizes[dim]) for dim in sizes}
        return dataset.assign_coords(own).reindex(sizes)

    joined = [xr.concat([pad(one) for one in row], columns, data_vars="all") for row in grid]
    return xr.concat(joined, rows, data_vars="all")
