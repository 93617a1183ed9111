"""What studies/stragglers.py computes of one law: theory, and Monte Carlo beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import xarray as xr

import dtjax
from dtjax import delays, theory

if TYPE_CHECKING:
    from dtjax.experiment import Progress

SIMULATED = ("bsp", "bsp_median", "bsp_utilisation", "asp", "best", "k_bsp", "k_asp", "k_batch_bsp")
"""Seconds per update, but for utilisation; best is k-BSP with the k of most gradients a second."""


def law(study: Any, name: str) -> Any:
    """Return a law of compute times with mean 1 s."""
    enter, leave, factor = study.slow_enter, study.slow_leave, study.slow_factor
    mean = (enter + leave) / (enter * factor + leave) if name == "regimes" else 1.0
    shifted = delays.exponential((1.0 - study.shift) * mean, shift=study.shift * mean)
    return {
        "uniform": delays.uniform(0.5, 1.5),
        "weibull": delays.weibull(2.0, 2.0 / math.sqrt(math.pi)),
        "shifted": shifted,
        "exponential": delays.exponential(1.0),
        "log-normal": delays.log_normal(math.exp(-0.5), 1.0),
        "pareto": delays.pareto(study.alpha, 1.0 - 1.0 / study.alpha),
        "regimes": delays.regimes(shifted, factor=factor, enter=enter, leave=leave),
    }[name]


def best_k(delay: Any, n: int) -> int:
    """Return the k with the most gradients a second, k / E[X_(k:n)], taken to have one maximum."""
    low, high = 1, n
    while low < high:
        k = (low + high) // 2
        now, more = theory.k_bsp_seconds(delay, n, [k, k + 1])
        low, high = (k + 1, high) if (k + 1) * now > k * more else (low, k)
    return low


def predict(
    delay: Any, workers: Sequence[int], shares: Sequence[float], *, persistent: bool
) -> xr.Dataset:
    """Return what theory says of a law, NaN where it is silent.

    Args:
        delay: the law.
        workers: i[W].
        shares: f[S], of the workers that k-policies wait for.
        persistent: whether times depend on earlier ones: what is cancelled then changes how long a
            slow phase lasts.
    """
    n = np.array(workers)
    k = np.ceil(n[:, None] * np.array(shares) - 1e-9).astype(int).clip(1)
    best = np.array([1 if persistent else best_k(delay, int(m)) for m in n])
    found = {
        "k": k,
        "best_k": best.astype(float),
        "bsp_theory": theory.bsp_seconds(delay, n),
        "bsp_median_theory": np.asarray(delay.isf(-np.expm1(np.log(0.5) / n))),
        "asp_theory": theory.asp_seconds(delay, n),
        "asp_gradient_speedup": theory.asp_over_bsp_gradient_speedup(delay, n),
        "asp_update_speedup": theory.asp_over_bsp_update_speedup(delay, n),
        "best_theory": theory.k_bsp_seconds(delay, n, best),
        "k_bsp_theory": theory.k_bsp_seconds(delay, n[:, None], k),
        "k_asp_theory": theory.exponential_k_asp_seconds(n[:, None], k),
        "k_batch_bsp_theory": theory.exponential_k_batch_bsp_seconds(n[:, None], k),
    }
    memoryless = isinstance(delay, type(delays.exponential(1.0))) and not np.any(delay.shift)
    silent = () if memoryless else ("k_asp_theory", "k_batch_bsp_theory")
    silent += ("best_k", "best_theory", "k_bsp_theory") if persistent else ()
    found |= {one: np.full(np.shape(found[one]), np.nan) for one in silent}
    dims = {"workers": n, "share": list(shares)}
    return xr.Dataset({one: ([*dims][: np.ndim(x)], x) for one, x in found.items()}, dims)


def measure(
    study: Any, delay: Any, whole: xr.Dataset, progress: Progress, *, persistent: bool
) -> xr.Dataset:
    """Add what simulation says: a mean a run, NaN where nothing was simulated."""
    root = jax.random.key(study.seed)  # the same runs for all policies
    keys, pilot = (jax.random.split(jax.random.fold_in(root, i), study.runs) for i in (0, 1))
    few = max(n for n in study.simulated if n <= study.most)
    many = few if persistent else max(study.simulated)
    for one in SIMULATED:
        like = whole.k if one.startswith("k_") else whole.best_k
        whole[one] = like.expand_dims(run=range(study.runs), axis=-1) * np.nan
    found: Any = {one: value.values for one, value in whole.items()}

    def play(n: int, policy: Any, updates: int, room: int, keys: Any = keys) -> tuple[Any, Any]:
        # Absent workers, spare rows and spare width: one compile for all n and k.
        cluster = dtjax.Cluster(n=room, delay=delay, present=np.arange(room) < n)
        size: Any = {"updates": updates, "rows": max(study.updates, 64 * few), "width": room}
        run = dtjax.simulate_runs(keys, cluster, policy, **size, collect="seconds").check()
        return np.asarray(run.dt, np.float64)[:, :updates], run.accounts.utilisation

    def k_bsp(n: int, k: float, keys: Any = keys) -> tuple[Any, Any]:  # k = n is BSP
        return play(n, dtjax.policies.k_bsp(int(k)), study.updates, many, keys)

    def later(n: int, k: int, updates: int) -> Any:  # k-ASP without its start; k = 1 is ASP
        return play(n, dtjax.policies.k_asp(k), updates, few)[0][:, updates // 2 :].mean(-1)

    for place, n in enumerate(study.simulated):
        progress.note(f"{n} workers")
        at = whole.workers.values.tolist().index(n)
        if n <= many:
            dt, found["bsp_utilisation"][at] = k_bsp(n, n)
            found["bsp"][at], found["bsp_median"][at] = dt.mean(-1), np.median(dt, -1)
            if persistent:  # choose by other runs than those that are reported
                tried = sorted({1, *(-(-n * i // 12) for i in range(1, 13))})
                rates = [k / k_bsp(n, k, pilot)[0].mean() for k in tried]
                found["best_k"][at] = tried[int(np.argmax(rates))]
            found["best"][at] = k_bsp(n, found["best_k"][at])[0].mean(-1)
        if n <= few:
            found["asp"][at] = later(n, 1, max(study.updates, 64 * n))
            for i, k in enumerate(int(k) for k in found["k"][at]):
                found["k_asp"][at, i] = later(n, k, study.updates)
                batches = play(n, dtjax.policies.k_batch_bsp(k), study.updates, few)
                found["k_batch_bsp"][at, i] = batches[0].mean(-1)
                if persistent:
                    found["k_bsp"][at, i] = k_bsp(n, k)[0].mean(-1)
        progress.share((place + 1) / len(study.simulated))
    for one in whole:
        if not str(one).endswith(("k", "speedup")) and "utilisation" not in str(one):
            whole[one].attrs["units"] = "s"
    return whole.assign(finite_variance=bool(np.isfinite(delay.variance())))
