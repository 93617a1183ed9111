"""What the times of studies/regimes.py say: winners and their leads, crossings, closed forms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dtjax.analysis.bootstrap import bounds, estimate, median, ratio, resampled
from studies.regimes_runs import COMPRESSORS, gradients_an_update

if TYPE_CHECKING:
    import xarray as xr


BOUND = ("middle", "low", "high")


def lead(times: np.ndarray, seed: int = 0) -> tuple[int, int, np.ndarray, bool]:
    """Find who reaches the target first, and by how much.

    Args:
        times: f[C, R], seconds to the target; infinite: not reached.
        seed: of the bootstrap.

    Returns:
        The winner, the runner-up (-1: at least half of nobody's runs reach the target); the ratio
        of their medians with its 95 % interval, f[3]; whether the interval of the winner's ratio to
        each of the others is above 1.
    """
    middle = median(times)
    winner, second = (int(place) for place in np.argsort(middle, kind="stable")[:2])
    if not np.isfinite(middle[winner]):
        return -1, -1, np.full(3, np.nan), False
    ratios = [over(theirs, times[winner], seed) for theirs in times]
    clear = all(ratio[1] > 1 for other, ratio in enumerate(ratios) if other != winner)
    return winner, second, ratios[second], clear


def over(above: np.ndarray, below: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return the ratio of the medians of two rows of runs, with its 95 % interval, f[3]."""
    pair = np.stack([above, below])
    middle, around = estimate(pair, lambda rows: ratio(*median(rows)), seed=seed)
    return np.array([middle, *around])


def crossing(at: np.ndarray, ours: np.ndarray, theirs: np.ndarray, seed: int = 0) -> np.ndarray:
    """Find from where on our median time is no longer below theirs, with its 95 % interval.

    Between two places the logarithm of the ratio is interpolated linearly; where one side never
    gets there, the middle is taken. 0: never below; infinite: below everywhere.

    Args:
        at: f[A], rising from 0.
        ours: f[A, R], seconds to the target.
        theirs: f[A, R].
        seed: of the bootstrap.
    """
    both = np.stack([ours, theirs])
    found = np.array([_first(at, *one) for one in np.moveaxis(resampled(both, seed=seed), -1, 0)])
    return np.array([_first(at, *median(both)), *bounds(found)])


def _first(at: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> float:
    with np.errstate(divide="ignore"):
        off = np.log(ratio(ours, theirs))
    behind = np.flatnonzero(off >= 0)
    if not len(behind):
        return np.inf
    b = int(behind[0])
    if b == 0:
        return 0.0
    low, high = off[b - 1], off[b]
    part = -low / (high - low) if np.isfinite(low) and np.isfinite(high) else 0.5
    return float(at[b - 1] + part * (at[b] - at[b - 1]))


def break_even(
    none: np.ndarray, ours: np.ndarray, updates: np.ndarray, encode: float, seed: int = 0
) -> np.ndarray:
    """Find the seconds of encoding up to which a compressor pays, with their 95 % interval.

    Under BSP and k-BSP encoding delays every round alike: the time to the target is linear in it.
    Negative: it would not pay if encoding were free. NaN: a median is infinite.

    Args:
        none: f[R], seconds to the target without a compressor.
        ours: f[R], with it, where encoding takes `encode` seconds.
        updates: f[R], to the target, with it.
        encode: seconds.
        seed: of the bootstrap.
    """
    every = np.stack([none, ours, updates])
    samples, middle = resampled(every, seed=seed), median(every)
    with np.errstate(invalid="ignore"):
        found = encode + (samples[0] - samples[1]) / samples[2]
    if not np.isfinite(middle).all():
        return np.full(3, np.nan)
    at = encode + (middle[0] - middle[1]) / middle[2]
    return np.array([at, *bounds(np.nan_to_num(found, nan=at))])


def compute_seconds(config: Any, n: int, k: int) -> float:
    """Return the expected k-th smallest of n compute times."""
    return config.shift + config.mean * sum(1.0 / (n - j) for j in range(k))


def guess(
    config: Any, policy: str, n: int, k: int, *, bits: Any, dense: float, links: tuple[Any, Any]
) -> np.ndarray:
    """Guess the seconds of an update: compute + encode + pull + k bits / bandwidth.

    Of ASP: a worker's cycle over n, or the ingress, whichever takes longer.

    Args:
        config: of the study.
        policy: its name.
        n: workers.
        k: gradients an update.
        bits: of a message.
        dense: bits of the dense gradient and of the model.
        links: bandwidth and encode rate, bits a second; arrays broadcast.
    """
    bandwidth, encode_rate = links
    pull = dense / bandwidth if config.pull else 0.0
    encode = dense / encode_rate
    if policy == "asp":
        own = config.shift + config.mean + encode + pull + bits / bandwidth
        return np.maximum(own / n, bits / bandwidth)
    return compute_seconds(config, n, k) + encode + pull + k * bits / bandwidth


def findings(config: Any, whole: xr.Dataset) -> dict[str, Any]:
    """Return winners, leads, crossings and guesses, as variables to be assigned."""
    grid = ("policy", "workers", "bandwidth", "encode_rate")
    sizes = tuple(whole.sizes[dim] for dim in grid)
    winner, second, clear = (np.full(sizes, -1, np.int32) for _ in range(3))
    ratio = np.full((*sizes, 3), np.nan)
    times = whole.target_seconds.transpose(*grid, "compressor", "run").values
    for place in np.ndindex(sizes):
        winner[place], second[place], ratio[place], clear[place] = lead(times[place], config.seed)
    guesses = guessed(config, whole).transpose(*grid, "compressor")
    updates = median_of(whole.target_updates).transpose(*grid, "compressor").values
    with np.errstate(invalid="ignore"):
        guessed_times = np.nan_to_num(guesses.values * updates, nan=np.inf)
    best = np.where(np.isfinite(guessed_times.min(-1)), guessed_times.argmin(-1), -1)
    flags = {"flag_values": [-1, 0, 1, 2], "flag_meanings": "nobody " + " ".join(COMPRESSORS)}
    found: dict[str, Any] = {
        "winner": (grid, winner, flags),
        "second": (grid, second, flags),
        "clear": (grid, clear, {"long_name": "95 % intervals of both ratios are above 1"}),
        "lead": ((*grid, "bound"), ratio, {"long_name": "runner-up's median over winner's"}),
        "guess": ((*grid, "compressor"), guesses.values, {"units": "s"}),
        "guess_winner": (grid, best.astype(np.int32), flags),
        "bound": ("bound", list(BOUND)),
    }
    others = [policy for policy in config.policies if policy != "asp"]
    if "asp" in config.policies and others:
        load = whole["load"].values
        crossings = np.zeros((len(config.workers), len(others), 3))
        for i, n in enumerate(config.workers):
            one = whole.apply_target_seconds.sel(workers=n).transpose("policy", "load", "run")
            asp = one.sel(policy="asp").values
            for j, other in enumerate(others):
                crossings[i, j] = crossing(load, asp, one.sel(policy=other).values, config.seed)
        note = "workers x server seconds, in mean compute times, from which on asp is not faster"
        found |= {
            "against": ("against", others),
            "crossing": (("workers", "against", "bound"), crossings, {"note": note}),
        }
    return found


def guessed(config: Any, whole: xr.Dataset) -> xr.DataArray:
    """Return the guessed seconds of an update of every cell."""
    import xarray as xr

    bits = whole.bits.isel(policy=0, workers=0)
    dense = float(bits.sel(compressor="none"))
    rate = whole.encode_rate.where(whole.compressor != "none", math.inf)
    rows = []
    for policy in config.policies:
        row = []
        for n in config.workers:
            k = gradients_an_update(config, policy, n)
            links = (whole.bandwidth, rate)
            value = guess(config, policy, n, k, bits=bits, dense=dense, links=links)
            row.append(xr.DataArray(value) if not isinstance(value, xr.DataArray) else value)
        rows.append(xr.concat(row, "workers"))
    return xr.concat(rows, "policy").assign_coords(policy=whole.policy, workers=whole.workers)


def median_of(values: xr.DataArray) -> xr.DataArray:
    """Return medians over runs, infinite where half of them never get there."""
    return values.quantile(0.5, "run", method="higher", skipna=False).drop_vars("quantile")
