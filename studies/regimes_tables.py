"""What studies/regimes.py prints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dtjax.analysis.bootstrap import median_interval
from dtjax.core.table import table
from studies import regimes_findings as say
from studies.regimes_findings import median_of
from studies.regimes_runs import COMPRESSORS, gradients_an_update

if TYPE_CHECKING:
    import xarray as xr


def tables(config: Any, whole: xr.Dataset) -> str:
    """Lay out every cell, the server's seconds, and a line for each finding."""
    lines = [_cells(config, whole), "", _server(config, whole), ""]
    return "\n".join(lines + notes(config, whole))


def _cells(config: Any, whole: xr.Dataset) -> str:
    dense = float(whole.bits.isel(policy=0, workers=0).sel(compressor="none"))
    headers = ["policy", "workers", "bits/s", "push s", "encode s", *COMPRESSORS, "first", "lead"]
    headers += ["guess", "s/update", "useful", "link", "waiting", "cancelled"]
    rows = []
    for policy in config.policies:
        for n in config.workers:
            for bandwidth in config.bandwidths:
                for rate in config.encode_rates:
                    one = whole.sel(policy=policy, workers=n, bandwidth=bandwidth, encode_rate=rate)
                    who = int(one.winner)
                    times = [str(median_interval(x)) for x in one.target_seconds.values]
                    best = one.isel(compressor=max(who, 0))
                    share = best.share.mean("run")
                    link = share.sel(fate="communicating") + share.sel(fate="queueing")
                    shares = [
                        share.sel(fate="useful"),
                        link,
                        share.sel(fate="waiting"),
                        share.sel(fate="cancelled"),
                    ]
                    rows.append(
                        [
                            policy,
                            n,
                            f"{bandwidth:.3g}",
                            dense / bandwidth,
                            dense / rate,
                            *times,
                            _named(who) + ("" if who < 0 or not int(one.clear) else " *"),
                            _interval(one.lead.values),
                            _named(int(one.guess_winner)),
                            float(best.seconds_an_update.mean()),
                            *(f"{float(x):.1%}" for x in shares),
                        ]
                    )
    title = f"seconds to {config.target:.0%} test accuracy ({config.runs} runs; medians, 95 % "
    title += "bootstrap intervals); *: before both others, by paired intervals; lead: over the "
    title += "second; guess: first by the closed form; from there on of the first: link is moving "
    title += "and queueing"
    return "\n".join([title, table(headers, rows)])


def _named(who: int) -> str:
    return "nobody" if who < 0 else COMPRESSORS[who]


def _interval(bounds: Any, unit: str = "") -> str:
    middle, low, high = (float(x) for x in bounds)
    if math.isnan(middle):
        return "-"
    words = ["never" if math.isinf(x) else f"{x:.3g}" for x in (middle, low, high)]
    return f"{words[0]}{unit} [{words[1]}, {words[2]}]"


def _server(config: Any, whole: xr.Dataset) -> str:
    headers = ["workers", "load", "apply s", *config.policies]
    asp = "asp" in config.policies
    headers += ["asp's rate", "staleness", "queueing"] if asp else []
    rows = []
    for n in config.workers:
        for load in config.loads:
            one = whole.sel(workers=n, load=load)
            times = [
                str(median_interval(one.apply_target_seconds.sel(policy=policy).values))
                for policy in config.policies
            ]
            row = [n, load, float(one["apply"].isel(policy=0)), *times]
            if asp:
                own = one.sel(policy="asp")
                queue = own.apply_share.sel(fate="queueing").mean("run")
                row += [float(own.apply_chosen_rate), float(own.apply_staleness.mean())]
                row += [f"{float(queue):.1%}"]
            rows.append(row)
    title = "the server's seconds for an update, without links; load: workers x apply, in mean "
    title += "compute times"
    return "\n".join([title, table(headers, rows)])


def notes(config: Any, whole: xr.Dataset) -> list[str]:
    """Write one line for each finding."""
    lines = []
    for policy in config.policies:
        for n in config.workers:
            lines.append(_where(config, whole, policy, n))
    for n in config.workers:
        lines.append(_overall(whole, n))
    for policy in config.policies:
        if policy != "asp":
            for n in config.workers:
                lines.append(_encode(config, whole, policy, n))
    lines += _guesses(config, whole)
    if "crossing" in whole:
        for n in config.workers:
            lines += _crossings(config, whole, n)
    warned = [whole[f"{part}chosen_warning"].values.astype(str) for part in ("", "apply_")]
    count = sum(int((words != "").sum()) for words in warned)
    lines.append(
        f"{count} of {sum(words.size for words in warned)} chosen rates are at an edge of what was "
        "tried"
    )
    return lines


def _where(config: Any, whole: xr.Dataset, policy: str, n: int) -> str:
    """Say where compression pays and what wins where."""
    one = whole.sel(policy=policy, workers=n)
    winner, clear = (
        one[name].transpose("bandwidth", "encode_rate") for name in ("winner", "clear")
    )
    total = winner.size
    counts = [
        f"{name} {int((winner == c).sum())} ({int(((winner == c) & (clear == 1)).sum())} clear)"
        for c, name in enumerate(COMPRESSORS)
    ]
    text = f"{policy}, {n} workers: first in {total} cells: {', '.join(counts)}"
    top = one.lead.where(one.winner > 0).sel(bound="middle")
    if top.notnull().any():
        at = top.argmax(["bandwidth", "encode_rate"])
        best = one.isel({dim: int(place) for dim, place in at.items()})
        times = best.target_seconds.values
        gain = say.over(times[0], times[int(best.winner)], config.seed)
        where = f"{float(best.bandwidth):.3g} bits/s, encode {float(best.encode_rate):.3g} bits/s"
        text += f"; compression gains most over its second at {where}: {_named(int(best.winner))} "
        text += f"{_interval(best.lead.values)} times, over none {_interval(gain)}"
    easy = one.isel(bandwidth=-1, encode_rate=-1).target_gradients.values
    more = [
        f"{name} {_interval(say.over(easy[c], easy[0], config.seed))}"
        for c, name in enumerate(COMPRESSORS)
        if c
    ]
    return text + f"; gradients to the target over those of none: {', '.join(more)}"


def _overall(whole: xr.Dataset, n: int) -> str:
    """Say which policy and compressor together are first how often."""
    dims = ("bandwidth", "encode_rate", "policy", "compressor")
    times = median_of(whole.target_seconds.sel(workers=n)).transpose(*dims).values
    flat = times.reshape(-1, times.shape[2] * times.shape[3])
    best = np.where(np.isfinite(flat.min(axis=1)), flat.argmin(axis=1), -1)
    who = [f"{policy} {name}" for policy in whole.policy.values for name in COMPRESSORS]
    counts = [f"{text} {int((best == i).sum())}" for i, text in enumerate(who) if i in best]
    return f"{n} workers: least median of all in {len(flat)} cells: {', '.join(counts)}"


def _encode(config: Any, whole: xr.Dataset, policy: str, n: int) -> str:
    """Say how long encoding may take, measured and guessed."""
    one = whole.sel(policy=policy, workers=n).isel(encode_rate=-1)
    bits = one.bits.values
    seconds = bits[0] / float(one.encode_rate)
    k = gradients_an_update(config, policy, n)
    parts = []
    for c, name in enumerate(COMPRESSORS[1:], 1):
        each = []
        for bandwidth in config.bandwidths:
            at = one.sel(bandwidth=bandwidth).transpose("compressor", ...)
            exact = say.break_even(
                at.target_seconds.values[0],
                at.target_seconds.values[c],
                at.target_updates.values[c],
                seconds,
                config.seed,
            )
            rough = k * (bits[0] - bits[c]) / bandwidth
            each.append(f"{_interval(exact)} (guess {rough:.3g})")
        parts.append(f"{name} {', '.join(each)}")
    longer = []
    for bandwidth in config.bandwidths:
        at = one.sel(bandwidth=bandwidth).transpose("compressor", ...)
        times, updates = at.target_seconds.values, at.target_updates.values
        longer.append(_interval(say.break_even(times[2], times[1], updates[1], 0.0, config.seed)))
    rates = ", ".join(f"{bandwidth:.3g}" for bandwidth in config.bandwidths)
    text = f"{policy}, {n} workers: encoding may take, s, at {rates} bits/s: "
    return text + "; ".join(parts) + f"; sparse longer than quantised by {', '.join(longer)}"


def _guesses(config: Any, whole: xr.Dataset) -> list[str]:
    """Compare the closed form with what was measured."""
    lines = []
    for policy in config.policies:
        one = whole.sel(policy=policy)
        off = (one.guess / one.seconds_an_update.mean("run")).values
        same = (one.guess_winner == one.winner).values
        lost = (one.clear == 1).values & ~same
        lines.append(
            f"{policy}: guessed over measured seconds an update: median {np.median(off):.3g}, "
            f"{off.min():.3g} to {off.max():.3g}; times the measured updates it names the first in "
            f"{int(same.sum())} of {same.size} cells ({int(lost.sum())} of the others are clear)"
        )
    return lines


def _crossings(config: Any, whole: xr.Dataset, n: int) -> list[str]:
    """Say from which server seconds on ASP stops paying, and what one would guess."""
    one = whole.sel(workers=n)
    asp = one.sel(policy="asp", load=0.0)
    mean = config.shift + config.mean
    gradients = float(median_of(asp.apply_target_updates))
    lines = []
    for other in one.against.values:
        bounds = one.crossing.sel(against=other).values
        k = gradients_an_update(config, str(other), n)
        wait = say.compute_seconds(config, n, k)
        updates = float(median_of(one.sel(policy=other, load=0.0).apply_target_updates))
        alike = n * wait / (k - 1) / mean if k > 1 else math.inf
        counted = math.inf
        if gradients > updates:
            counted = n * updates * wait / (gradients - updates) / mean
        text = f"{n} workers: asp stops paying against {other} at workers x apply = "
        text += f"{_interval(bounds)} mean compute times (apply {_interval(bounds / n)}); guess "
        text += f"{alike:.3g} with as many gradients, {counted:.3g} with those measured"
        lines.append(text + f" (asp {gradients:g}, {other} {updates * k:g})")
    return lines
