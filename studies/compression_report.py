"""What studies/compression.py makes of its trainings: who is first where, what a memory does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from dtjax.analysis.bootstrap import bounds, estimate, median, median_interval, ratio, resampled
from dtjax.analysis.dataset import final
from dtjax.analysis.ranking import ranking
from dtjax.core.table import table
from studies.compression_seconds import break_evens

HELPS, HURTS, NEITHER = "helps", "hurts", "makes no clear difference to"
VERDICTS = (HELPS, HURTS, NEITHER)


def judged(study: Any, whole: xr.Dataset) -> xr.Dataset:
    """Add who is first at each reported bandwidth, break-evens, mean errors, and verdicts."""
    places = [int(np.argmin(abs(whole.ratio.values - ratio))) for ratio in study.ratios]
    times = whole[["target_seconds"]].isel(bandwidth=places)
    ranks = ranking(times.rename(setting="arm", bandwidth="world"))
    ranks = ranks.drop_vars(["arm", "world"]).rename(arm="setting", world="reported")
    finite = np.isfinite(whole.bandwidth.values)
    seconds = whole.target_seconds.transpose("setting", "bandwidth", "run").values[:, finite]
    speeds = whole.bandwidth.values[finite]
    evens = np.array([break_evens(speeds, own, seconds[0]) for own in seconds])
    evens[0] = np.nan
    verdicts = np.full(whole.sizes["setting"], -1)
    for plain, kept in pairs(whole):
        place = whole.setting.values.tolist().index(kept.setting)
        verdicts[place] = VERDICTS.index(verdict(plain, kept))
    flags = {"flag_values": [0, 1, 2], "flag_meanings": "helps hurts undecided"}
    note = "0: at none; infinite: at all; NaN: dense gradients themselves"
    return (
        whole.merge(ranks)
        .assign(
            break_even=("setting", evens[:, 0], {"units": "bit s-1", "note": note}),
            break_even_bounds=(("setting", "bound"), evens[:, 1:], {"units": "bit s-1"}),
            verdict=("setting", verdicts, {**flags, "note": "-1: no memory"}),
            mean_error=(("setting", "run"), mean_of(whole, "error")),
            mean_carried=(("setting", "run"), mean_of(whole, "carried")),
        )
        .assign_coords(reported=list(study.ratios))
    )


def mean_of(whole: xr.Dataset, name: str) -> np.ndarray:
    """Return each run's mean of a sum over updates, until it diverges: f[setting, run]."""
    dims = ("setting", "run", "evaluation")
    sums, updates = (whole[one].transpose(*dims).values for one in (name, "updates"))
    last = np.isfinite(sums).sum(-1, keepdims=True) - 1
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.take_along_axis(sums / updates, last, axis=-1)[..., 0]


def pairs(whole: xr.Dataset) -> list[tuple[Any, Any]]:
    """Return each setting with a memory, beside the same compressor without one."""
    names = whole.setting.values.tolist()
    return [
        (whole.sel(setting=text), whole.isel(setting=place))
        for place, text in enumerate(whole.compressor.values)
        if whole.memory.values[place] != "none" and text in names
    ]


def ratio_of(plain: Any, kept: Any) -> tuple[float, float, float]:
    """Return how many times the updates a memory takes, with the interval of paired runs."""
    both = np.stack([kept.target_updates.values, plain.target_updates.values])
    middle, ends = estimate(both, lambda pair: ratio(median(pair[0]), median(pair[1])))
    return float(middle), *ends.tolist()


def verdict(plain: Any, kept: Any) -> str:
    """Say what a memory does: by the updates to the target, or else by the final accuracy."""
    _, low, high = ratio_of(plain, kept)
    if low > 1 or high < 1:
        return HELPS if high < 1 else HURTS
    if np.isinf([median(x.target_updates.values) for x in (plain, kept)]).any():
        without, own = (resampled(last_accuracy(x)) for x in (plain, kept))
        low, high = bounds(own - without)
        if low > 0 or high < 0:
            return HELPS if low > 0 else HURTS
    return NEITHER


def last_accuracy(one: Any) -> np.ndarray:
    """Return each run's final accuracy; one that diverged has the lowest."""
    return np.nan_to_num(final(one.test_accuracy), nan=0.0)


def tables(study: Any, whole: xr.Dataset) -> str:
    """Lay out what each compressor takes, who is first, and what a memory does."""
    head = f"{study.workers} workers, {study.runs} runs; medians, 95 % bootstrap intervals"
    first = f"{head}; dense = seconds of a dense gradient's transfer over a mean compute time"
    text = [first, _costs(study, whole), *_leaders(whole), *notes(whole)]
    if pairs(whole):
        text += ["", "what a memory does (error: |C(x) - x|^2 / |x|^2, mean of all messages)"]
        text += [_memories(whole), *findings(whole)]
    return "\n".join(text)


def _costs(study: Any, whole: xr.Dataset) -> str:
    headers = ["compressor", "memory", "class", "bits", "dense/bits", "rate", "accuracy"]
    headers += [f"updates to {study.target:.0%}", "kB"]
    headers += [f"s, dense = {ratio:g}" for ratio in study.ratios] + ["break-even, bit/s"]
    places = [int(np.argmin(abs(whole.ratio.values - ratio))) for ratio in study.ratios]
    rows = []
    for setting in whole.setting.values:
        one = whole.sel(setting=setting)
        kilobytes = float(median(one.target_bytes.values)) / 1000
        row: list[Any] = [str(one[name].values) for name in ("compressor", "memory", "family")]
        row += [int(one.bits), round(float(whole.bits[0] / one.bits), 1), float(one.rate)]
        row += [f"{median(last_accuracy(one)):.3f}", str(median_interval(one.target_updates))]
        row += [f"{kilobytes:.4g}" if math.isfinite(kilobytes) else "-"]
        row += [str(median_interval(one.target_seconds.values[place])) for place in places]
        rows.append([*row, _break_even(one)])
    return table(headers, rows)


def _break_even(one: xr.Dataset) -> str:
    if one.break_even.isnull():
        return "-"
    every = [float(one.break_even), *one.break_even_bounds.values]
    middle, low, high = (
        "never" if x == 0 else "any" if math.isinf(x) else f"{x:.3g}" for x in every
    )
    return middle if middle == low == high else f"{middle} [{low}, {high}]"


def _leaders(whole: xr.Dataset) -> list[str]:
    """Say who is first at each reported bandwidth, and by how much dense gradients are behind."""
    found = []
    for times in whole.reported.values:
        at = whole.sel(reported=times)
        if not (best := str(at.best.values)):
            continue
        share, dense = float(at.first_probability.sel(setting=best)), at.isel(setting=0)
        text = f"dense = {times:g}: {best} is first, with probability {share:.0%}"
        if best != str(dense.setting.values):
            low, high = (_number(x) for x in dense.behind_bounds.values)
            text += f"; dense gradients take {_number(dense.behind)} [{low}, {high}] s more"
        found.append(text)
    return found


def _memories(whole: xr.Dataset) -> str:
    headers = ["compressor", "kept", "class", "declared", "error, gradient", "with memory"]
    headers += ["|x|/|gradient|", "accuracy without", "with"]
    headers += ["updates without", "with", "with / without", "memory"]
    rows = []
    for plain, kept in pairs(whole):
        times, low, high = (_number(x) for x in ratio_of(plain, kept))
        errors = (plain.mean_error, kept.mean_error, kept.mean_carried)
        row = [str(kept[name].values) for name in ("compressor", "memory", "family")]
        row += [_number(kept.declared), *(_number(np.median(x)) for x in errors)]
        row += [f"{median(last_accuracy(x)):.3f}" for x in (plain, kept)]
        row += [_number(median(x.target_updates)) for x in (plain, kept)]
        does = VERDICTS[int(kept.verdict)]
        rows.append([*row, f"{times} [{low}, {high}]", "-" if does == NEITHER else does])
    return table(headers, rows)


def _number(value: Any) -> str:
    value = float(value)
    return "?" if math.isnan(value) else "never" if math.isinf(value) else f"{value:.3g}"


def findings(whole: xr.Dataset) -> list[str]:
    """Say for which compressors a memory helps, and for which it hurts."""
    found: dict[tuple[str, str], list[str]] = {}
    for _, kept in pairs(whole):
        text = f"{kept.compressor.values} (error {float(np.median(kept.mean_error)):.2g})"
        does = VERDICTS[int(kept.verdict)]
        found.setdefault((str(kept.memory.values), does), []).append(text)
    return [f"{memory} {does}: {', '.join(texts)}" for (memory, does), texts in found.items()]


def notes(whole: xr.Dataset) -> list[str]:
    """Name the cells whose best rate is at an edge, and those with runs that diverged."""
    found = []
    for place in np.ndindex(whole.rate.shape):
        one = whole.isel(dict(zip(whole.rate.dims, place, strict=True)))
        name = ", ".join(f"{dim} {one[dim].item()}" for dim in whole.rate.dims)
        if str(one.rate_warning.values):
            found.append(f"{name}: {one.rate_warning.values}")
        if lost := int((one.diverged.values >= 0).sum()):
            found.append(f"{name}: {lost} of {one.sizes['run']} runs diverged")
    return found
