"""What studies/stragglers.py says of its result."""

from __future__ import annotations

import numpy as np
import xarray as xr
from scipy import stats

from dtjax.analysis.bootstrap import mean_interval, median_interval
from dtjax.core.table import table


def compare(whole: xr.Dataset) -> xr.Dataset:
    """Add how far Monte Carlo is from theory: Student's t, as a normal number as rare."""
    added, runs = {}, whole.sizes["run"]
    for one in ("bsp", "asp", "best", "k_asp", "k_batch_bsp"):
        error = whole[one].std("run", ddof=1) / np.sqrt(runs)
        t = (whole[one].mean("run") - whole[f"{one}_theory"]) / error
        t = t.where(whole.finite_variance & (error > 0))
        chance = np.maximum(stats.t.sf(abs(t), runs - 1), 1e-300)
        added[f"{one}_z"] = np.sign(t) * stats.norm.isf(chance)
    z = np.concatenate([np.abs(value.values.ravel()) for value in added.values()])
    z = z[~np.isnan(z)]
    return whole.assign(added | {"largest_z": z.max(initial=0.0), "comparisons": z.size})


def estimate(one: xr.Dataset, values: xr.DataArray) -> str:
    """Write the mean of runs with its 95 % interval; a median where the variance is infinite."""
    if values.isnull().any():
        return "-"
    if not one.finite_variance:
        return str(median_interval(values.values))
    mean, half = mean_interval(values.values)
    return f"{float(mean):.4g} +-{float(half):.2g}"


def outcomes(whole: xr.Dataset) -> str:
    """Lay out theory, and simulation with intervals, for the middle and the largest clusters."""
    share, rows = float(whole.share[-1]), []
    headers = ["law", "workers", "BSP s", "simulated", "utilisation", "ASP updates/s", "best k/n"]
    headers += ["gradients/s", "worker-s each", "simulated", f"k={share:g}n: k-BSP s", "k-ASP s"]
    sizes = whole.workers.values[whole.bsp.notnull().any(["law", "run"]).values]
    for name in whole.law.values:
        for n in sorted({int(sizes[len(sizes) * i // 6]) for i in (2, 4)} | {int(sizes[-1])}):
            one = whole.sel(law=name, workers=n, share=share)
            kind, each = ("bsp" if one.finite_variance else "bsp_median"), n / one.best_k
            numbers = [one[f"{kind}_theory"], one.asp_update_speedup, 1 / each]
            numbers += [n / each / one.best_theory, each * one.best_theory, one.k_bsp_theory]
            bsp, asp, *best, k_bsp = ("-" if x.isnull() else f"{float(x):.4g}" for x in numbers)
            runs = [one[kind], one.bsp_utilisation, each * one.best, one.k_bsp, one.k_asp]
            cells = [estimate(one, values) for values in (*runs, one.k_batch_bsp)]
            k_bsp = cells[3] if one.k_bsp_theory.isnull() else k_bsp
            rows.append([name, n, bsp, *cells[:2], f"x {asp}", *best, cells[2], k_bsp, *cells[4:]])
    return table([*headers, "k-batch-BSP s"], rows)
