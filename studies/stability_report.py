"""What studies/stability.py makes of the growth that it measured."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from dtjax.analysis.bootstrap import mean_interval
from dtjax.core.table import table
from studies.stability_runs import edge

VERDICTS = ("shrinks", "grows", "undecided", "diverged")
UNIT = {"units": "1 / eigenvalue"}


def judged(whole: xr.Dataset, seed: int) -> xr.Dataset:
    """Add to each growth its 95 % interval, verdict and edge, and to the mean square's its t."""
    flags = {"flag_values": list(range(len(VERDICTS))), "flag_meanings": " ".join(VERDICTS)}
    dims, added = ("policy", "workers", "factor"), {}
    rates = whole.rate.transpose(*dims).values
    for name, population, prefix in (("growth", "island", ""), ("typical", "plain", "typical_")):
        values = whole[name].transpose(*dims, population).values
        mean, half = mean_interval(values)
        seen = np.stack([mean, mean - half, mean + half], axis=-1)
        found = [
            [edge(*one, seed) for one in zip(*policy, strict=True)]
            for policy in zip(rates, values, strict=True)
        ]
        added |= {
            f"{name}_interval": ((*dims, "interval"), seen, whole[name].attrs),
            f"{prefix}verdict": (dims, verdicts(seen), flags),
            f"{prefix}edge": ((*dims[:2], "interval"), np.array(found), UNIT),
        }
    error = whole.growth.std("island", ddof=1) / math.sqrt(whole.sizes["island"])
    t = (whole.growth.mean("island") - whole.theory_growth) / error.where(error > 1e-9)
    t.attrs = {"long_name": "(growth - theory) / standard error"}  # where anything is random
    return whole.assign(added | {"t": t}).assign_coords(interval=["mean", "low", "high"])


def verdicts(seen: np.ndarray) -> np.ndarray:
    """Return an index of `VERDICTS` for each interval f[..., 3] of a growth."""
    _, low, high = np.moveaxis(seen, -1, 0)
    decided = np.select([high < 0, low > 0], [0, 1], 2)
    return np.where(np.isfinite(low) & np.isfinite(high), decided, 3).astype(np.int8)


def tables(study: Any, whole: xr.Dataset) -> str:
    """Lay out the edges of each policy and number of workers, and what does not agree."""
    headers = ["policy", "workers", "edge: theory", "trainer", "typical run", "constant delay"]
    headers += [*(f"{verdict} at" for verdict in VERDICTS), "max |t|"]
    rows = []
    for policy in whole.policy.values:
        for n in whole.workers.values:
            one = whole.sel(policy=policy, workers=n)
            line = one.sel(n=n)
            at = [one.factor.values[one.verdict.values == i] for i in range(len(VERDICTS))]
            edges = [number(line.theory_edge), interval(one.edge), interval(one.typical_edge)]
            edges += [number(line.constant_delay_edge)]
            factors = [" ".join(f"{x:g}" for x in every) or "-" for every in at]
            known = bool(one.t.notnull().any())
            largest = f"{float(abs(one.t).max()):.2f}" if known else "-"
            rows.append([str(policy), int(n), *edges, *factors, largest])
    title = f"rates x eigenvalue; {study.islands} populations of {study.particles} cloned runs, "
    title += "95 % intervals, the trainer's edges interpolated between rates; `at`: factors of the "
    title += "edge, of ssp of its estimate"
    notes = wrong(whole) or ["every dot is on its side of the line, or undecided"]
    if count := int(whole.t.notnull().sum()):
        bound = stats.t.isf(0.025 / count, study.islands - 1)
        notes.append(
            f"growth against theory: max |t| = {float(abs(whole.t).max()):.2f} of {count}; "
            f"of as many independent ones it would pass {bound:.2f} in one case of twenty"
        )
    return "\n".join([title, table(headers, rows), *notes])


def wrong(whole: xr.Dataset) -> list[str]:
    """Name each setting whose verdict is not that of theory."""
    found = []
    cells = whole.verdict.stack(cell=("policy", "workers", "factor"))
    for (policy, n, factor), verdict in zip(cells.cell.values, cells.values, strict=True):
        beyond, grew = factor > 1, verdict in (1, 3)
        if policy != "ssp" and verdict != 2 and beyond != grew:
            what = VERDICTS[int(verdict)]
            found.append(f"{policy}, {n} workers: {what} at {factor:g} of the edge")
    return found


def number(value: Any) -> str:
    """Write a number, or a dash for NaN."""
    return "-" if math.isnan(float(value)) else f"{float(value):.4g}"


def interval(bounds: xr.DataArray) -> str:
    """Write an edge with its interval."""
    middle, low, high = (float(x) for x in bounds)
    if math.isnan(middle):
        return "not between the rates"
    return f"{middle:.4g} [{low:.4g}, {high:.4g}]"
