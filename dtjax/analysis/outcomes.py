"""The table that comparisons print: time to target, quality and where the seconds went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtjax.analysis.measures import median_interval
from dtjax.core.table import table

if TYPE_CHECKING:
    import xarray as xr


def final(measure: xr.DataArray) -> np.ndarray:
    """Return each run's last measure: NaN, if it has diverged by then."""
    others = [dim for dim in measure.dims if dim != "evaluation"]
    padding = np.asarray(measure.isnull().all(others))
    return measure.transpose("run", "evaluation", ...).values[:, ~padding][:, -1]


def outcomes(whole: xr.Dataset, *, target: float, by: str = "policy") -> str:
    """Lay out what became of each setting: medians, with 95 % bootstrap intervals where it matters.

    Args:
        whole: as `dtjax.analysis.dataset.label` makes it, with `target_seconds`, `rate`,
            `rate_warning` and one dimension more. If it has `bits_sent`, so has the table, as
            bytes, with the shares of communicating and queueing.
        target: accuracy that `target_seconds` is about.
        by: that dimension, one row of the table each.

    Returns:
        The table, and below it a line for each rate at the edge of its grid and for diverged runs.
    """
    percent = f"{target:.0%}"
    headers = [by, "rate", f"seconds to {percent}", f"worker-s to {percent}", "accuracy"]
    headers += ["worst class", "utilisation", "gradients/s", "updates/s", "staleness mean", "max"]
    headers += ["waiting", "cancelled", "least share"]
    linked = "bits_sent" in whole
    if linked:
        headers += ["communicating", "queueing", "bytes"]
    rows, notes = [], []
    for name in whole[by].values:
        one = whole.sel({by: name})
        rows.append([str(name), *_row(one), *(_links(one) if linked else [])])
        if str(one.rate_warning.values):
            notes.append(f"{name}: {one.rate_warning.values}")
        if lost := int((one.diverged.values >= 0).sum()):
            notes.append(f"{name}: {lost} of {one.sizes['run']} runs diverged")
    return "\n".join([table(headers, rows), *notes])


def _row(one: xr.Dataset) -> list[Any]:
    time = median_interval(one.target_seconds.values)
    used, elapsed = one.useful_count.values, one.elapsed.values
    total = elapsed * one.sizes["worker"]
    least = used.min(-1) / np.maximum(used.sum(-1), 1)
    reached = np.isfinite(time.median)
    return [
        float(one.rate),
        str(time),
        f"{time.median * one.sizes['worker']:.4g}" if reached else "-",
        _median(final(one.test_accuracy)),
        _median(final(one.test_class_accuracy).min(-1)),
        f"{np.mean(one.useful.values.sum(-1) / total):.1%}",
        float(np.mean(used.sum(-1) / elapsed)),
        float(np.mean(one.update_count.values / elapsed)),
        float(np.mean(one.mean_staleness.values)),
        int(one.max_staleness.values.max()),
        f"{np.mean(one.waiting.values.sum(-1) / total):.1%}",
        f"{np.mean(one.cancelled.values.sum(-1) / total):.1%}",
        f"{np.mean(least):.1%}",
    ]


def _links(one: xr.Dataset) -> list[Any]:
    total = one.elapsed.values * one.sizes["worker"]
    shares = [np.mean(one[name].values.sum(-1) / total) for name in ("communicating", "queueing")]
    return [*(f"{share:.1%}" for share in shares), float(np.mean(one.bits_sent.values)) / 8]


def _median(values: np.ndarray) -> str:
    """Write a median over the runs that have not diverged."""
    kept = values[np.isfinite(values)]
    return f"{np.median(kept):.3f}" if kept.size else "-"
