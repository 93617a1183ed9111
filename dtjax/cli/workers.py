"""The options of `dtjax simulate` that say how many workers compute, and how long."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

LAWS = "dtjax.cluster.delays"


@dataclass(frozen=True)
class WorkerOptions:
    """How long workers compute."""

    law: Annotated[str | None, tyro.conf.arg(metavar="NAME[:NUMBERS]")] = None
    """How long workers compute: one of the laws above. With --workers, unless it says how many."""
    workers: int | None = None
    """Number of workers; their times are exponential if no law is given."""
    mean: float | None = None
    """Mean of the random part of exponential times, seconds; 1 if not given."""
    shift: float | None = None
    """Constant part of exponential times, seconds; 0 if not given."""
    compute_times: tuple[float, ...] = ()
    """Seconds of a computation, one number a worker."""
    table: Path | None = None
    """CSV file of seconds: a row a worker, a column a computation."""


def law_of(options: WorkerOptions) -> tuple[int, Any]:
    """Return the number of workers and the law of their computation times.

    Raises:
        ValueError: if the options contradict each other, or one is out of its range.
    """
    from dtjax.cluster import delays
    from dtjax.core import checks

    named = options.law is not None or options.workers is not None
    ways = [bool(options.compute_times), options.table is not None, named]
    if sum(ways) != 1:
        rule = "must be given one of --compute-times, --table, and --law with --workers"
        raise checks.fail("simulate", "compute times", rule, f"{sum(ways)} of them")
    for name in ("mean", "shift"):
        value = getattr(options, name)
        if value is not None and options.workers is None:
            raise checks.fail("simulate", name, "must not be given without --workers", value)
        if value is not None and options.law is not None:
            raise checks.fail("simulate", name, "must not be given with --law", value)
    if options.compute_times:
        return len(options.compute_times), delays.deterministic(options.compute_times)
    if options.table is not None:
        return _recorded(options.table)
    if options.law is not None:
        return _named(options.law, options.workers)
    workers = checks.integer("simulate", "workers", options.workers, low=1)
    mean = 1.0 if options.mean is None else options.mean
    shift = 0.0 if options.shift is None else options.shift
    return workers, delays.exponential(mean, shift)


def _named(text: str, workers: int | None) -> tuple[int, Any]:
    """Make the law that a text names."""
    from dtjax.cluster.delays.law import count
    from dtjax.core import checks, expressions

    law = expressions.make("simulate", "law", LAWS, text)
    workers = count(law) if workers is None else workers
    if workers is None:
        rule = "must be given: the law is for any number of workers"
        raise checks.fail("simulate", "workers", rule, workers)
    return checks.integer("simulate", "workers", workers, low=1), law


def _recorded(path: Path) -> tuple[int, Any]:
    """Read a table of measured seconds."""
    import numpy as np

    from dtjax.cluster import delays
    from dtjax.core import checks

    try:
        rows = [
            [float(cell.strip() or "nan") for cell in line.split(",")]
            for line in path.read_text().splitlines()
            if line.strip()
        ]
    except (OSError, ValueError) as error:
        rule = f"must be a CSV file of numbers ({error})"
        raise checks.fail("simulate", "table", rule, str(path)) from error
    if not rows:
        raise checks.fail("simulate", "table", "must hold a row a worker", str(path))
    full = np.full((len(rows), max(map(len, rows))), np.nan)
    for row, numbers in zip(full, rows, strict=True):
        row[: len(numbers)] = numbers
    if np.isnan(full[:, 0]).any():
        rule = "must hold a time in the first column of each row"
        raise checks.fail("simulate", "table", rule, str(path))
    return len(rows), delays.recorded(full)
