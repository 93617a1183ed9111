"""The seconds of studies/compression.py: BSP's clock at every bandwidth, and break-evens."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import xarray as xr

import dtjax
from dtjax import delays, network, policies
from dtjax.analysis.bootstrap import estimate, median, ratio
from dtjax.montecarlo.sharding import map_runs
from dtjax.training.result import seconds_at
from studies.compression_runs import parted

GRID = tuple(10 ** (place / 2) for place in range(-6, 7))
"""Bandwidths between which break-evens are interpolated, as `ratios`."""


def timed(study: Any, whole: xr.Dataset) -> xr.Dataset:
    """Add what depends on the bandwidth: seconds of the evaluations and to the target, and bytes.

    The bandwidths are those to report, those of the grid and infinity, rising, bits a second.
    """
    bits, mean = whole.bits.values, study.mean + study.shift
    dense = bits[0]
    ratios = np.unique(np.round([*study.ratios, *GRID], 12))
    speeds = np.append(np.sort(dense / (ratios * mean)), np.inf)
    payloads, place = np.unique(bits, return_inverse=True)
    payload, speed = (x.reshape(-1) for x in np.meshgrid(payloads, speeds, indexing="ij"))
    root = jax.random.fold_in(jax.random.key(study.seed), 0)  # the same runs for all
    keys = jax.random.split(root, study.tuning_runs + study.runs)[study.tuning_runs :]
    dt = update_seconds(
        keys,
        delays.exponential(study.mean, shift=study.shift),
        study.workers,
        study.updates,
        payload=payload,
        bandwidth=speed,
        encode=np.where(payload == dense, 0.0, study.encode),
        pull=np.full(len(payload), study.pull * dense),
    )
    dt = dt.reshape(len(payloads), len(speeds), study.runs, study.updates)[place]
    updates = whole.updates.transpose("setting", "run", "evaluation").values.astype(int)
    reached = whole.target_updates.transpose("setting", "run").values[:, None]
    there = np.isfinite(reached)
    last = seconds_at(dt, np.where(there, reached, 0).astype(int)[..., None])[..., 0]
    dims = ("setting", "bandwidth", "run")
    note = {"units": "s", "note": "infinite: not reached"}
    sent = whole.target_updates * study.workers * whole.bits / 8
    texts, memories = zip(*map(parted, whole.setting.values), strict=True)
    return whole.assign(
        seconds=((*dims, "evaluation"), seconds_at(dt, updates[:, None]), {"units": "s"}),
        target_seconds=(dims, np.where(there, last, np.inf), note),
        target_bytes=sent.assign_attrs(units="B", note="of gradients, all workers together"),
    ).assign_coords(
        bandwidth=("bandwidth", speeds, {"units": "bit s-1"}),
        ratio=("bandwidth", dense / speeds / mean),
        compressor=("setting", list(texts)),
        memory=("setting", list(memories)),
        run=range(study.runs),
    )


def update_seconds(keys: Any, law: Any, workers: int, updates: int, **links: Any) -> np.ndarray:
    """Simulate BSP's clock on many stars: the seconds of each update, f[L, R, T].

    Args:
        keys: key[R]: run r has the same compute times on every star.
        law: of compute times.
        workers: n.
        updates: T.
        links: arguments of `dtjax.network.star`, f[L] each.
    """

    def clock(one: Any, key: Any) -> Any:
        cluster = dtjax.Cluster(n=workers, delay=law, network=network.star(**one))
        run = dtjax.simulate(key, cluster, policies.bsp(), updates=updates, collect="seconds")
        return run.dt

    count, runs = len(next(iter(links.values()))), len(keys)
    each = {name: np.repeat(np.asarray(leaf, float), runs) for name, leaf in links.items()}
    width = -(-count * runs // len(jax.local_devices()))
    dt = map_runs(clock, each, keys[np.tile(np.arange(runs), count)], block=min(width, 512))
    return dt.reshape(count, runs, updates)


def break_even(bandwidth: np.ndarray, own: np.ndarray, dense: np.ndarray) -> np.ndarray:
    """Find the largest bandwidth below which one sender is faster than another, f[...].

    The ratio of their seconds is interpolated between bandwidths, logarithm against logarithm. 0 if
    it is faster at none, infinity if it is so at all of them.

    Args:
        bandwidth: f[B], positive and finite.
        own: f[B, ...], seconds of the one; may be infinite.
        dense: f[B, ...], seconds of the other.

    Example:
        >>> found = break_even(np.array([1.0, 100.0]), np.array([5.0, 2.0]), np.array([10.0, 1.0]))
        >>> round(float(found), 6)
        10.0
    """
    order = np.argsort(-bandwidth)
    x = np.log(bandwidth[order])
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.log(ratio(own, dense))[order]
        better = gain < 0
        first = better.argmax(axis=0)
        a, b = (np.take_along_axis(gain, i[None], 0)[0] for i in (np.maximum(first - 1, 0), first))
        part = np.where(np.isfinite(a - b), a / (a - b), 1.0)
        between = np.exp(x[first - 1] + part * (x[first] - x[first - 1]))
    return np.select([~better.any(axis=0), first == 0], [0.0, np.inf], between)


def break_evens(bandwidth: np.ndarray, own: np.ndarray, dense: np.ndarray) -> tuple[float, ...]:
    """Return the break-even bandwidth of the medians, with its 95 % interval.

    Args:
        bandwidth: f[B].
        own: f[B, R].
        dense: f[B, R], of the same runs.
    """
    both = np.stack([own, dense])
    middle, ends = estimate(both, lambda x: break_even(bandwidth, median(x[0]), median(x[1])))
    return float(middle), *ends.tolist()
