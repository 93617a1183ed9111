"""Tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]], *, digits: int = 4) -> str:
    """Lay out a table as text: words to the left, numbers to the right.

    Args:
        headers: of the columns.
        rows: cells.
        digits: of floats.

    Example:
        >>> print(table(["policy", "seconds"], [["bsp", 7.0], ["asp", 12.5]]))
        policy  seconds
        ------  -------
        bsp           7
        asp        12.5
    """
    cells = [[_cell(value, digits) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    right = [
        all(isinstance(row[c], (int, float)) for row in rows) and bool(rows)
        for c in range(len(headers))
    ]

    def line(row: Sequence[str]) -> str:
        padded = (
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(row, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(headers), rule, *(line(row) for row in cells)])


def _cell(value: Any, digits: int) -> str:
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return str(value)


def summary(run: Any, *, network: Any = None) -> str:
    """Lay out what many runs were like: means over the runs, with their 95 % intervals.

    Args:
        run: a `Summary` with statistics, with a leading axis of two runs or more.
        network: of their cluster; None: nothing is said of communication.

    Raises:
        ValueError: if there are fewer runs.
    """
    import numpy as np

    from dtjax.measures import mean_interval

    accounts, statistics = run.accounts, run.statistics
    fates = () if network is None else ("communicating", "queueing")
    values = {
        "seconds an update": statistics.dt_mean,
        "their standard deviation": np.sqrt(statistics.dt_variance),
        "updates a second": accounts.update_rate,
        "gradients a second": accounts.gradient_rate,
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
