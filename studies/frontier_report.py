"""What studies/frontier.py says of its result."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from dtjax.core.table import table


def tables(study: Any, whole: xr.Dataset) -> str:
    """Lay out one table a plan, and below them how far the trainer is from theory at most."""
    titles = {
        "same": f"one rate for all, {study.rate:g}",
        "deadline": f"the rate with the least expected loss at {study.deadline:g} s",
        "target": f"the rate that reaches an expected loss of {study.target:g} soonest",
        "switch": "the best change of rate on the way to that target",
    }
    headers = ["policy", "rate", "floor", f"loss at {study.deadline:g} s: theory", "trainer"]
    headers += ["s to target: by updates", "by seconds", "trainer", "max |z|"]
    text = []
    for plan, title in titles.items():
        every = [whole.sel(plan=plan, policy=policy) for policy in whole.policy.values]
        rows = [row(study.deadline, one) for one in every if one.rate_after.notnull()]
        text += [f"\n{title} ({study.runs} runs; means, 95 % intervals)", table(headers, rows)]
    count = int(sum(np.isfinite(whole[name]).sum() for name in ("z", "z_update_loss")))
    if count:
        bound = stats.norm.isf(0.025 / count)
        text.append(
            f"\ntrainer against theory: max |z| = {largest(whole):.2f} of {count} comparisons; "
            f"of as many independent ones it would pass {bound:.2f} in one case of twenty"
        )
    if "ssp" in whole.policy:
        text.append("ssp has no theory: its rates were tuned, and its numbers are the trainer's")
    return "\n".join(text)


def largest(one: xr.Dataset) -> float:
    """Return the largest |z| of a plan, or of all of them; NaN where there is no theory."""
    every = [one[name].values.ravel() for name in ("z", "z_update_loss", "z_update_seconds")]
    sizes = np.abs(np.concatenate(every))
    return float(np.nanmax(sizes)) if np.isfinite(sizes).any() else math.nan


def row(deadline: float, one: xr.Dataset) -> list[str]:
    """Write the cells of one policy under one plan."""
    before, after = float(one.rate_before), float(one.rate_after)
    rates = f"{before:.3g}"
    if before != after:
        rates += f", {after:.3g} after {int(one.switch_updates)} updates"
    known, unstable = bool(one.theory_floor.notnull()), bool(one.unstable)
    at = one.sel(time=deadline, method="nearest")
    loss = at.loss.values
    error = 1.96 * float(loss.std(ddof=1)) / math.sqrt(len(loss))
    lost = int(one.diverged)
    middle, low, high = (seconds(value) for value in one.reached.values.tolist())
    return [
        str(one.policy.values),
        rates,
        "unstable" if unstable else number(one.theory_floor),
        number(at.theory_loss),
        f"{lost} of {len(loss)} runs diverged" if lost else f"{loss.mean():.4g} \u00b1 {error:.2g}",
        seconds(float(one.theory_planned)),
        seconds(float(one.theory_reached)) if at.theory_loss.notnull() else "-",
        "not reached" if low == "never" else f"{middle} [{low}, {high}]",
        f"{largest(one):.2f}" if known and not unstable else "-",
    ]


def number(value: Any) -> str:
    """Write a number, or a dash for NaN."""
    return "-" if math.isnan(float(value)) else f"{float(value):.4g}"


def seconds(value: float) -> str:
    """Write seconds, which may be infinite."""
    if math.isnan(value):
        return "-"
    return f"{value:.3g}" if math.isfinite(value) else "never"
