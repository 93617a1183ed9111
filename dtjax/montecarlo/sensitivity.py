"""Gradients of the expected time to J updates in the numbers of the delay law.

Two estimators. *Pathwise*: the derivative of each run's time with its draws and its order of events
held fixed, by forward-mode differentiation through the clock. It is unbiased where a run's time is
a continuous function of the numbers, or where its jumps average out. *Differences*: central ones
under common random numbers, unbiased up to the square of the step, and noisy where runs jump.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.clock import inputs
from dtjax.clock.simulate import simulate
from dtjax.clock.status import DONE, STATUS
from dtjax.core import checks, random
from dtjax.montecarlo.continuity import DIFFERENCES, FIXED, PATHWISE, continuous, floating, kinds_of

BLOCK = 256
"""Runs side by side."""

METHODS = ("auto", "pathwise", "differences")


@dataclass(frozen=True)
class Sensitivity:
    """See `sensitivity`. `mean`, `error` and `method` have the structure of the delay law."""

    mean: Any  # leaves f[...]: d E[seconds of update J] / d (each number); NaN where fixed
    error: Any  # leaves f[...]: its standard error
    method: Any  # leaves "pathwise", "differences" or "fixed"
    seconds: float  # the mean time of update J
    seconds_error: float  # its standard error


def sensitivity(
    key: jax.Array,
    cluster: Any,
    policy: Any,
    *,
    updates: int,
    runs: int | None = None,
    method: str = "auto",
    relative_step: float = 0.02,
    width: int | None = None,
) -> Sensitivity:
    """Estimate the gradient of the expected time to J updates in the numbers of the delay law.

    d E[T_J] / d theta for every floating number theta of `cluster.delay`, T_J the second of update
    J. With "auto" each leaf is estimated pathwise where that is unbiased, else by differences:

    * BSP, k-BSP, ASP, k-batch-ASP, SSP: T_J is continuous in the draws; pathwise.
    * k-batch-BSP and k-ASP (1 < k): where two arrivals swap, other draws are used. The jumps
      average out where times are independent and never tie, under k-ASP only if in addition all
      workers have one law; then pathwise.
    * a cut-off on staleness, laws that look at the clock, laws and policies of others: differences.
    * probabilities of `bimodal`, `hyper_exponential`, `regimes`: their draws jump; differences.

    Where times tie with positive probability (constants, a whole `factor` of `bimodal`) E[T_J] has
    kinks, and the derivative found is that of one side. Each number takes a pass over all runs, a
    difference two.

    Args:
        key: one JAX random key, or keys [R], one a run.
        cluster: as in `dtjax.simulate`; one cluster, concrete.
        policy: as in `dtjax.simulate`; one policy, concrete.
        updates: J, at least 1.
        runs: R, at least 2; 256 if neither this nor several keys are given.
        method: "auto", or "pathwise" (biased where "auto" would not take it) or "differences" for
            all.
        relative_step: of a difference: half of its width, relative to the number (absolute where
            that is 0, where differences are one-sided); above 0 and below 1.
        width: as in `dtjax.simulate`; one for several policies spares compilations.

    Returns:
        The gradient, its standard error and how it was estimated. Numbers that cannot be changed
        (groups, the shape of `gamma`, whose table is made with the law) are NaN and "fixed"; so are
        entries that are not finite.

    Raises:
        ValueError: if an argument is out of range.
        RuntimeError: if a run stops before update J.

    Example:
        >>> from dtjax import Cluster, delays, policies
        >>> cluster = Cluster(n=4, delay=delays.exponential(2.0, shift=1.0))
        >>> found = sensitivity(jax.random.key(0), cluster, policies.bsp(), updates=10, runs=64)
        >>> round(float(found.mean.shift), 3)  # every update takes a second more
        10.0
        >>> exact = 10 * (1 + 1 / 2 + 1 / 3 + 1 / 4)  # the largest of four exponential times
        >>> bool(abs(found.mean.scale - exact) < 4 * found.error.scale)
        True

    Reference:
        Glasserman, "Gradient Estimation via Perturbation Analysis", 1991.
    """
    name = "sensitivity"
    checks.choice(name, "method", method, METHODS)
    policy = inputs.canonical(name, cluster, policy)
    if not checks.is_concrete((cluster, policy)):
        raise checks.fail(name, "cluster", "and policy must be concrete", "a tracer")
    J = checks.integer(name, "updates", updates, low=1)
    between = ("must be above 0 and below 1", lambda x: (x > 0) & (x < 1))
    relative = float(checks.real(name, "relative_step", relative_step, between, ndim=0))
    K = inputs.width(name, cluster, policy, width)
    drawn = _keys(name, key, runs)

    tree = jax.tree.structure(cluster.delay)
    kinds = _kinds(cluster, policy, method)
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(cluster.delay)]
    still = [jnp.zeros_like(leaf) for leaf in leaves]
    # One program a call: where it differentiates, differences are taken with it too.
    kernel = _slopes if PATHWISE in kinds else _seconds

    def look(own: list[jax.Array], tangents: list[jax.Array]) -> tuple[np.ndarray, np.ndarray]:
        return _blocks(
            lambda part: kernel(part, cluster, policy, own, tangents, updates=J, width=K), drawn, J
        )

    times, _ = look(leaves, still)

    mean, error = [], []
    for place, kind in enumerate(kinds):
        slopes = np.full((len(times), leaves[place].size), np.nan)
        entries = np.flatnonzero(np.isfinite(np.asarray(leaves[place], float)))
        if kind == PATHWISE:
            for entry in entries:
                unit = _unit(leaves[place], entry)
                _, slopes[:, entry] = look(leaves, [*still[:place], unit, *still[place + 1 :]])
        elif kind == DIFFERENCES:
            for entry in entries:
                ends, apart = _ends(leaves, place, entry, relative)
                (high, _), (low, _) = (look(own, still) for own in ends)
                slopes[:, entry] = (high - low) / apart
        shape = leaves[place].shape
        mean.append(slopes.mean(axis=0).reshape(shape)[()])
        error.append(_error(slopes).reshape(shape)[()])
    return Sensitivity(
        *(jax.tree.unflatten(tree, part) for part in (mean, error, kinds)),
        seconds=float(times.mean()),
        seconds_error=float(_error(times)),
    )


def _kinds(cluster: Any, policy: Any, method: str) -> list[str]:
    """Return how the derivative to each leaf of the law is estimated."""
    kinds = jax.tree.leaves(kinds_of(cluster.delay))
    if method == "auto" and not continuous(cluster, policy):
        return [DIFFERENCES if kind == PATHWISE else kind for kind in kinds]
    if method != "auto":
        return [kind if kind == FIXED else method for kind in kinds]
    return kinds


def _keys(name: str, key: Any, runs: int | None) -> jax.Array:
    """Return the keys of the runs."""
    if random.is_key(key):
        count = checks.integer(name, "runs", 256 if runs is None else runs, low=2)
        return jax.random.split(key, count)
    if getattr(key, "ndim", 0) and random.is_key(key[0]) and len(key) > 1:
        if runs is not None and runs != len(key):
            raise checks.fail(name, "runs", f"must be the number of keys, {len(key)}", runs)
        return key
    raise checks.fail(name, "key", "must be one JAX random key, or several in a row", key)


def _ends(
    leaves: list[jax.Array], place: int, entry: int, relative: float
) -> tuple[Iterator[list[jax.Array]], float]:
    """Return the leaves at both ends of a difference, and their distance as it is stored."""
    flat = np.asarray(leaves[place]).reshape(-1)
    value = flat[entry]
    step = relative * abs(value) if value else relative
    high, low = (flat.copy() for _ in range(2))
    high[entry], low[entry] = value + step, value - step if value else value
    ends = (
        [*leaves[:place], jnp.asarray(flat.reshape(leaves[place].shape)), *leaves[place + 1 :]]
        for flat in (high, low)
    )
    return ends, float(high[entry]) - float(low[entry])


def _unit(leaf: jax.Array, entry: int) -> jax.Array:
    return jnp.zeros(leaf.size, leaf.dtype).at[entry].set(1.0).reshape(leaf.shape)


def _total(
    key: jax.Array, cluster: Any, policy: Any, leaves: list[jax.Array], updates: int, width: int
) -> tuple[jax.Array, jax.Array]:
    """Return (second of the last update, why the run stopped: -1 if it made all) of one run."""
    law = jax.tree.unflatten(jax.tree.structure(cluster.delay), leaves)
    own = replace(cluster, delay=law)
    run = simulate(key, own, policy, updates=updates, width=width)
    made = jnp.where(run.status == DONE, -1, run.status)
    trace: Any = run.trace
    return jnp.sum(trace.dt), made


@partial(jax.jit, static_argnames=("updates", "width"))
def _seconds(
    drawn: jax.Array,
    cluster: Any,
    policy: Any,
    leaves: list[jax.Array],
    tangents: list[jax.Array],
    *,
    updates: int,
    width: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return (second of the last update, why it stopped, 0) of each run, [R] each."""
    del tangents

    def one(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        time, stopped = _total(key, cluster, policy, leaves, updates, width)
        return time, stopped, jnp.zeros_like(time)

    return jax.vmap(one)(drawn)


@partial(jax.jit, static_argnames=("updates", "width"))
def _slopes(
    drawn: jax.Array,
    cluster: Any,
    policy: Any,
    leaves: list[jax.Array],
    tangents: list[jax.Array],
    *,
    updates: int,
    width: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the same as `_seconds`, and the derivative in one direction instead of the 0."""
    moved = [i for i, leaf in enumerate(leaves) if floating(leaf)]

    def one(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        def time(some: list[jax.Array]) -> tuple[jax.Array, jax.Array]:
            own = list(leaves)
            for i, leaf in zip(moved, some, strict=True):
                own[i] = leaf
            return _total(key, cluster, policy, own, updates, width)

        ahead = [tangents[i] for i in moved]
        seconds, slope, stopped = jax.jvp(time, ([leaves[i] for i in moved],), (ahead,), True)
        return seconds, stopped, slope

    return jax.vmap(one)(drawn)


def _blocks(kernel: Any, drawn: jax.Array, updates: int) -> tuple[np.ndarray, np.ndarray]:
    """Apply a kernel to blocks of runs; return the seconds and the derivatives f[R] in binary64."""
    runs = len(drawn)
    block = min(runs, BLOCK)
    parts = []
    for first in range(0, runs, block):
        index = np.minimum(np.arange(first, first + block), runs - 1)  # the last block is padded
        parts.append(kernel(drawn[index]))
    times, stopped, slopes = (np.concatenate(part)[:runs] for part in zip(*parts, strict=True))
    check(stopped, updates)
    return times.astype(np.float64), slopes.astype(np.float64)


def check(stopped: np.ndarray, updates: int) -> None:
    """Raise if a run stopped before the last update: `stopped` i[R] says why, -1 if it did not."""
    bad = np.flatnonzero(stopped >= 0)
    if bad.size:
        reason = STATUS[int(stopped[bad[0]])]
        raise RuntimeError(f"run {bad[0]} stopped before update {updates}: {reason}")


def _error(samples: np.ndarray) -> np.ndarray:
    """Return the standard error of the mean over the first axis."""
    return samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
