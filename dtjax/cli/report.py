"""One run as text: its updates, what became of each worker's time, and sums."""

from __future__ import annotations

from typing import Any

FATES = ("useful", "discarded", "cancelled", "in_flight", "waiting")


def one_run(run: Any, network: Any) -> str:
    """Return the tables and the sums of one run, as text.

    Args:
        run: of `dtjax.simulate`.
        network: of its cluster, or None.
    """
    from dtjax.clock.status import DONE, STATUS, UNTIL

    parts = [_updates(run.trace), _workers(run.accounts, network), _sums(run.accounts, network)]
    text = "\n\n".join(parts)
    if int(run.status) not in (DONE, UNTIL):
        text += f"\nstopped early: {STATUS[int(run.status)]}"
    return text


def _updates(trace: Any) -> str:
    """Write a row for each update."""
    import numpy as np

    import dtjax
    from dtjax.core.table import table

    times, stale = dtjax.seconds(trace), np.asarray(dtjax.staleness(trace))
    valid, rows = np.asarray(trace.valid), []
    for t in np.flatnonzero(np.asarray(trace.made)):
        used = np.flatnonzero(valid[t])
        names = [f"{int(trace.worker[t, j])}.{int(trace.step[t, j])}" for j in used]
        ages = [str(stale[t, j]) for j in used]
        rows.append([int(t) + 1, float(times[t]), " ".join(names), " ".join(ages)])
    headers = ["update", "seconds", "gradients (worker.step)", "staleness"]
    return table(headers, rows, digits=7)


def _workers(accounts: Any, network: Any) -> str:
    """Write a row for each worker."""
    from dtjax.cli.network import FATES as LINKED
    from dtjax.core.table import table

    fates = FATES if network is None else FATES + LINKED
    rows = [
        [w, int(accounts.started[w]), int(accounts.useful_count[w])]
        + [float(getattr(accounts, fate)[w]) for fate in fates]
        for w in range(len(accounts.started))
    ]
    headers = ["worker", "started", "used", *(fate.replace("_", " ") for fate in fates)]
    return table(headers, rows, digits=7)


def _sums(accounts: Any, network: Any) -> str:
    """Write a line for each sum."""
    import numpy as np

    from dtjax.cli import network as links

    lines = [
        ["seconds", float(accounts.elapsed)],
        ["updates", int(accounts.updates)],
        ["gradients used", int(np.sum(accounts.useful_count))],
        ["gradients waiting for the next update", int(accounts.buffered)],
        ["utilisation", float(accounts.utilisation)],
        ["gradients a second", float(accounts.gradients_per_second)],
        ["updates a second", float(accounts.updates_per_second)],
        ["cancelled seconds, share", float(accounts.share("cancelled"))],
        ["cancelled computations, share", float(accounts.cancelled_share)],
        *links.sums(network, accounts),
    ]
    return "\n".join(f"{name}: {value:.6g}" for name, value in lines)
