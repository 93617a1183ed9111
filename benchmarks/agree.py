"""Who is timed must give the same: dtjax and the peers on recorded times, accelerators and CPUs."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import dtjax
from benchmarks import peers, timing
from benchmarks.ours import Work, numbers, rule
from dtjax.policies import FACTORIES, stack

SCALES = {True: 64, False: 2**16}
"""Whether recorded times tie: they are multiples of 1 / this, so that all sums are exact."""
RELATIVE, RUNS_WITHIN = 1e-4, 0.99
"""On an accelerator the mean seconds of an update may differ from the CPU's by this much, in this
share of the runs: logarithms differ in the last bit, and arrivals that almost tie change places."""
DEVIATIONS = 6
"""By how many standard errors the seconds of updates may differ from their expectation."""


def recorded(n: int, columns: int, scale: int) -> np.ndarray:
    """Make recorded times f[n, J]: a third of the workers is twice, a third three times as slow."""
    generator = np.random.default_rng(0)
    speed = 1 + np.arange(n)[:, None] % 3
    return speed * generator.integers(1, scale // 2 + 1, (n, columns)) / scale


def check_peers(n: int = 12, updates: int = 24, columns: int = 192) -> list[tuple[str, str]]:
    """Hold dtjax and the peers to one schedule for each policy, on recorded tables.

    Returns:
        The peers and policies that were compared.

    Raises:
        RuntimeError: naming the first peer and policy that differ from dtjax.
    """
    rules = {name: rule(name, n) for name in FACTORIES}
    compared = []
    for ties, scale in SCALES.items():
        table = recorded(n, columns, scale)
        cluster = dtjax.Cluster(n=n, delay=dtjax.delays.recorded(table))

        def one(policy: Any, cluster: Any = cluster) -> dtjax.Run:
            return dtjax.simulate(jax.random.key(0), cluster, policy, updates=updates, width=n)

        run = jax.vmap(one)(stack(list(rules.values()))).check(complete=True)
        times, worker = dtjax.seconds(run.trace), np.asarray(run.trace.worker)
        stale, valid = np.asarray(dtjax.staleness(run.trace)), np.asarray(run.trace.valid)
        for lane, (name, policy) in enumerate(rules.items()):
            used = valid[lane]
            expected = peers.Schedule(times[lane], worker[lane][used], stale[lane][used])
            _check_statistics(name, n, updates, cluster, expected)
            for peer in peers.MODULES:
                found, own = peers.load(peer), numbers(policy, n)
                if found is None or not found.plays(n, own) or (ties and not found.ties):
                    continue
                same = map(np.array_equal, found.play(n, own, updates, table=table), expected)
                if not all(same):
                    raise RuntimeError(f"check_peers: {peer} and dtjax differ under {name}")
                compared.append((peer, name))
    return compared


def _check_statistics(
    name: str, n: int, updates: int, cluster: Any, expected: peers.Schedule
) -> None:
    """Hold the statistics of a run to those of its schedule."""
    options: dict[str, Any] = {"collect": "statistics"}
    key = jax.random.key(0)
    run: Any = dtjax.simulate(key, cluster, rule(name, n), updates=updates, **options)
    found = run.statistics
    dt = np.diff(expected.time, prepend=0.0)
    bins = np.asarray(found.staleness)
    stale = np.bincount(np.minimum(expected.staleness, len(bins) - 1), minlength=len(bins))
    same = {
        "dt_mean": np.isclose(found.dt_mean, dt.mean(), rtol=1e-5),
        "dt_variance": np.isclose(found.dt_variance, dt.var(), rtol=1e-4),
        "staleness": np.array_equal(bins, stale),
        "updates": int(found.updates) == updates,
        "gradients": int(found.gradients) == len(expected.worker),
        "accounts": np.array_equal(
            run.accounts.useful_count, np.bincount(expected.worker, minlength=n)
        ),
    }
    for field, equal in same.items():
        if not equal:
            raise RuntimeError(f"check_peers: statistics differ from the trace, {name}: {field}")


def check_device(work: Work, found: Any) -> None:
    """Hold what an accelerator found to the CPU: the mean seconds of an update of each run.

    Args:
        work: the runs.
        found: their result on the accelerator.

    Raises:
        RuntimeError: if the share of the runs within the tolerance is too small.
    """
    call, _ = timing.compiled(work, jax.devices("cpu")[:1], work.keys(), work.cluster())
    within = float(np.mean(np.isclose(work.mean(found), work.mean(call()), rtol=RELATIVE)))
    if within < RUNS_WITHIN:
        kind = jax.devices()[0].device_kind
        raise RuntimeError(
            f"check_device: {kind} and CPU differ under {work.policy}, n = {work.n}: "
            f"only {within:.1%} of the runs are within {RELATIVE} of one another"
        )


def check_seconds(work: Work, found: Any) -> None:
    """Hold the seconds of updates of (k-)BSP to the expected k-th least of n exponential times.

    Args:
        work: the runs.
        found: f[R, T].

    Raises:
        RuntimeError: if their mean is too far from it.
    """
    k, n = work.rule.width(work.n), work.n
    rates = np.arange(n, n - k, -1, dtype=float)  # of the next arrival among those still to come
    mean, error = np.sum(1 / rates), np.sqrt(np.sum(1 / rates**2) / np.size(found))
    off = (np.mean(np.asarray(found, float)) - mean) / error
    if not abs(off) < DEVIATIONS:
        raise RuntimeError(f"check_seconds: {work.policy} is {off:.1f} standard errors off")
