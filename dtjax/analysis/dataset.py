"""Raw arrays with names: what a study writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dtjax.clock.accounting import COUNTS, FATES
from dtjax.clock.trace import staleness

if TYPE_CHECKING:
    import xarray as xr

    from dtjax.training.replay import Training


def label(run: Any, training: Training, *, network: Any = None) -> xr.Dataset:
    """Label the arrays of many runs of one setting.

    Args:
        run: R runs with `trace` and `accounts`, as of `dtjax.simulate` under `vmap`, on the host.
        training: theirs, on the host.
        network: of the runs' cluster.

    Returns:
        Measures, `seconds`, `updates` and `gradients` with dimensions (run, evaluation), further
        axes of a measure as (run, evaluation, <measure>_entry), accounts (run, worker), staleness
        (run,). With a network also `bits_sent` (run,), NaN if that is not known.
    """
    valid, stale = np.asarray(run.trace.examples) > 0, np.asarray(staleness(run.trace))
    accounts = run.accounts
    values: dict[str, Any] = {}
    for name in (*FATES, "started", *COUNTS):
        units = {"units": "s"} if name in FATES else {}
        values[name] = (("run", "worker"), np.asarray(getattr(accounts, name)), units)
    values |= {
        "elapsed": ("run", np.asarray(accounts.elapsed), {"units": "s"}),
        "update_count": ("run", np.asarray(accounts.updates)),
        "mean_staleness": ("run", stale.sum((1, 2)) / np.maximum(valid.sum((1, 2)), 1)),
        "max_staleness": ("run", stale.max((1, 2))),
    }
    if network is not None:
        bits = bits_sent(network, accounts)
        bits = np.full(len(accounts.elapsed), np.nan) if bits is None else bits
        values["bits_sent"] = ("run", bits, {"units": "bit", "note": "of delivered gradients"})
    return training.to_xarray().drop_vars("batch_loss").assign(values)


def final(measure: xr.DataArray) -> np.ndarray:
    """Return each run's last measure: NaN, if it has diverged by then."""
    others = [dim for dim in measure.dims if dim != "evaluation"]
    padding = np.asarray(measure.isnull().all(others))
    return measure.transpose("run", "evaluation", ...).values[:, ~padding][:, -1]


def bits_sent(network: Any, accounts: Any) -> np.ndarray | None:
    """Count the bits of the gradients that the server has received, f64[...].

    None if they are not known: the network has no payload, or one that varies by step.
    """
    payload = getattr(network, "payload", None)
    if payload is None or np.size(payload) != 1:
        return None
    received = np.sum(accounts.useful_count, axis=-1) + np.sum(accounts.discarded_count, axis=-1)
    received = np.asarray(received + accounts.buffered, np.float64)
    return received * np.float64(np.reshape(payload, ())).item()


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
