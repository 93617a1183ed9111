"""Tables for people."""

from __future__ import annotations

from typing import Any

from dtjax.core.table import table


def summary(run: Any, *, network: Any = None) -> str:
    """Lay out what many runs were like: means over the runs, with their 95 % intervals.

    Args:
        run: a `Summary` with statistics, with a leading axis of two runs or more.
        network: of their cluster; None: nothing is said of communication.

    Raises:
        ValueError: if there are fewer runs.
    """
    import numpy as np

    from dtjax.analysis.bootstrap import mean_interval

    accounts, statistics = run.accounts, run.statistics
    fates = () if network is None else ("communicating", "queueing")
    values = {
        "seconds an update": statistics.dt_mean,
        "their standard deviation": np.sqrt(statistics.dt_variance),
        "updates a second": accounts.updates_per_second,
        "gradients a second": accounts.gradients_per_second,
        "staleness, mean": statistics.staleness_mean,
        "staleness, largest": statistics.staleness_max,
        "utilisation": accounts.utilisation,
        "waiting seconds, share": accounts.share("waiting"),
        "cancelled seconds, share": accounts.share("cancelled"),
        "discarded seconds, share": accounts.share("discarded"),
        **{f"{fate} seconds, share": accounts.share(fate) for fate in fates},
        "updates": statistics.updates,
        "seconds": accounts.elapsed,
    }
    rows = []
    for name, value in values.items():
        mean, half = mean_interval(np.asarray(value))
        rows.append([name, float(mean), f"+-{float(half):.2g}"])
    return table(["mean of runs", "", "95 %"], rows, digits=5)
