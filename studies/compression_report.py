"""The tables that studies/compression.py prints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dtjax.analysis.bootstrap import bounds, median, median_interval, ratio, resampled
from dtjax.analysis.dataset import final
from dtjax.core.table import table
from studies import compression_runs as runs

HELPS, HURTS, NEITHER = "helps", "hurts", "makes no clear difference to"
VERDICTS = (HELPS, HURTS, NEITHER)

if TYPE_CHECKING:
    import xarray as xr

    from studies.compression import Config


def judged(whole: xr.Dataset) -> xr.Dataset:
    """Add what follows from the raw arrays: break-even bandwidths, and what a memory does."""
    settings = whole.setting.values
    evens = [(float("nan"),) * 3, *(even(whole, str(setting)) for setting in settings[1:])]
    verdicts = {str(kept.setting.values): verdict(plain, kept) for plain, kept in pairs(whole)}
    places = [VERDICTS.index(verdicts[x]) if x in verdicts else -1 for x in map(str, settings)]
    flags = {"flag_values": [0, 1, 2], "flag_meanings": "helps hurts undecided"}
    note = "0: at none; infinite: at all; NaN: dense gradients themselves"
    return whole.assign(
        break_even=(("setting", "bound"), evens, {"units": "bit s-1", "note": note}),
        verdict=("setting", places, {**flags, "note": "-1: no memory"}),
    ).assign_coords(bound=["median", "low", "high"])


def tables(config: Config, whole: xr.Dataset) -> str:
    """Lay out what each compressor takes, and what a memory does to it."""
    head = f"{config.workers} workers, {config.runs} runs; medians, 95 % bootstrap intervals"
    first = f"{head}; dense = seconds of a dense gradient's transfer over a mean compute time"
    text = [first, _costs(config, whole), *_notes(whole)]
    if "none" in config.memories and len(config.memories) > 1:
        text += ["", "what a memory does (error: |C(x) - x|^2 / |x|^2, mean of all messages)"]
        text += [_memories(whole), *findings(whole)]
    return "\n".join(text)


def _costs(config: Config, whole: xr.Dataset) -> str:
    percent = f"{config.target:.0%}"
    headers = ["compressor", "memory", "class", "bits", "dense/bits", "rate", "accuracy"]
    headers += [f"updates to {percent}", "kB"]
    headers += [f"s, dense = {ratio:g}" for ratio in config.ratios] + ["break-even, bit/s"]
    rows = []
    places = [int(np.argmin(abs(whole.ratio.values - ratio))) for ratio in config.ratios]
    for setting in whole.setting.values:
        one = whole.sel(setting=setting)
        times = [str(median_interval(one.target_seconds.values[place])) for place in places]
        rows.append(
            [
                str(one.compressor.values),
                str(one.memory.values),
                str(one.family.values),
                int(one.bits),
                round(float(whole.bits[0] / one.bits), 1),
                float(one.rate),
                accuracy(one),
                str(median_interval(one.target_updates.values)),
                _kilobytes(one.target_bytes.values),
                *times,
                _break_even(one),
            ]
        )
    return table(headers, rows)


def _kilobytes(values: np.ndarray) -> str:
    middle = float(median(values)) / 1000
    return f"{middle:.4g}" if math.isfinite(middle) else "-"


def accuracy(one: xr.Dataset) -> str:
    """Write the median final accuracy; a run that diverged counts as the lowest."""
    last = np.nan_to_num(final(one.test_accuracy), nan=0.0)
    return f"{float(median(last)):.3f}"


def even(whole: xr.Dataset, setting: str) -> tuple[float, ...]:
    """Return the break-even bandwidth against dense gradients, with its interval."""
    finite = np.isfinite(whole.bandwidth.values)
    seconds = whole.target_seconds.transpose("setting", "bandwidth", "run").isel(bandwidth=finite)
    own = seconds.sel(setting=setting).values
    return runs.break_evens(whole.bandwidth.values[finite], own, seconds.values[0])


def _break_even(one: xr.Dataset) -> str:
    if one.break_even.isnull().all():
        return "-"
    middle, low, high = (_bandwidth(x) for x in one.break_even.values)
    return middle if middle == low == high else f"{middle} [{low}, {high}]"


def _bandwidth(value: float) -> str:
    return "never" if value == 0 else "any" if math.isinf(value) else f"{value:.3g}"


def mean_error(one: xr.Dataset, name: str = "error") -> np.ndarray:
    """Return each run's mean of a sum over updates, until it diverges: f[R]."""
    sums = one[name].transpose("run", "evaluation").values
    updates = one.updates.transpose("run", "evaluation").values
    last = np.isfinite(sums).sum(axis=1) - 1
    pick = np.arange(len(sums)), last
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums[pick] / updates[pick]


def _memories(whole: xr.Dataset) -> str:
    headers = ["compressor", "kept", "class", "declared", "error, gradient", "with memory"]
    headers += ["|x|/|gradient|", "accuracy without", "with"]
    headers += ["updates without", "with", "with / without", "memory"]
    rows = []
    for plain, kept in pairs(whole):
        ratio, low, high = ratio_of(plain, kept)
        rows.append(
            [
                str(kept.compressor.values),
                str(kept.memory.values),
                str(kept.family.values),
                _number(float(kept.declared), 3),
                _number(float(np.median(mean_error(plain))), 3),
                _number(float(np.median(mean_error(kept))), 3),
                _number(float(np.median(mean_error(kept, "carried"))), 3),
                accuracy(plain),
                accuracy(kept),
                _number(float(median(plain.target_updates.values)), 3),
                _number(float(median(kept.target_updates.values)), 3),
                f"{_number(ratio, 3)} [{_number(low, 3)}, {_number(high, 3)}]",
                verdict(plain, kept).split()[0].replace("makes", "-"),
            ]
        )
    return table(headers, rows)


def _number(value: float, digits: int) -> str:
    return "?" if math.isnan(value) else "never" if math.isinf(value) else f"{value:.{digits}g}"


def pairs(whole: xr.Dataset) -> list[tuple[Any, Any]]:
    """Return each setting with a memory, beside the same compressor without one."""
    found = []
    for place, memory in enumerate(whole.memory.values):
        if memory == "none":
            continue
        text = whole.compressor.values[place]
        plain = whole.setting.values == text
        if plain.any():
            found.append((whole.isel(setting=int(np.argmax(plain))), whole.isel(setting=place)))
    return found


def ratio_of(plain: Any, kept: Any) -> tuple[float, float, float]:
    """Return how many times the updates a memory takes, with the interval of paired runs."""
    a, b = kept.target_updates.values, plain.target_updates.values
    middle = float(ratio(median(a), median(b)))
    return middle, *bounds(ratio(resampled(a), resampled(b))).tolist()


def verdict(plain: Any, kept: Any) -> str:
    """Say what a memory does: by the updates to the target, or else by the final accuracy."""
    _, low, high = ratio_of(plain, kept)
    if low > 1 or high < 1:
        return HELPS if high < 1 else HURTS
    if np.isinf([median(x.target_updates.values) for x in (plain, kept)]).any():
        last = [np.nan_to_num(final(x.test_accuracy), nan=0.0) for x in (plain, kept)]
        low, high = bounds(resampled(last[1]) - resampled(last[0]))
        if low > 0 or high < 0:
            return HELPS if low > 0 else HURTS
    return NEITHER


def findings(whole: xr.Dataset) -> list[str]:
    """Say for which compressors a memory helps, and for which it hurts."""
    found: dict[tuple[str, str], list[str]] = {}
    for plain, kept in pairs(whole):
        error = float(np.median(mean_error(kept)))
        text = f"{kept.compressor.values} (error {error:.2g})"
        found.setdefault((str(kept.memory.values), verdict(plain, kept)), []).append(text)
    return [f"{memory} {does}: {', '.join(texts)}" for (memory, does), texts in found.items()]


def _notes(whole: xr.Dataset) -> list[str]:
    notes = []
    for setting in whole.setting.values:
        one = whole.sel(setting=setting)
        if str(one.rate_warning.values):
            notes.append(f"{setting}: {one.rate_warning.values}")
        if lost := int((one.diverged.values >= 0).sum()):
            notes.append(f"{setting}: {lost} of {one.sizes['run']} runs diverged")
    return notes
