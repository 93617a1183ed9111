"""How fast the mean square grows along schedules of the clock: what studies/stability.py measures.

Without noise every version is a linear function of the first, and near the edge E w^2 is the
average of rare runs: most runs shrink where it grows. An average of w^2 over runs misses them. So
runs are cloned (the particle method of large deviations): some epochs long, those that have grown
are copied and the others dropped, in proportion to their squares, and the product over epochs of
the mean growth of an epoch is an unbiased estimate of the growth of the expectation, without the
rare runs having to be met by chance. Copies go on with keys of their own.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from scipy import stats

import dtjax
from dtjax import delays, policies, task, theory
from dtjax.clock import engine, inputs
from dtjax.montecarlo.sharding import in_waves, spread
from dtjax.training.replay import advance, begin
from dtjax.training.update import rows_of

if TYPE_CHECKING:
    from dtjax.experiment import Progress

EPOCH = 8
"""Gradients between two looks at who has grown."""
MOST_EPOCHS = 4096


def numbers(study: Any, policy: str, n: int) -> dict[str, Any]:
    """Return the numbers that a policy takes; k-bsp and k-asp wait for all the workers at most."""
    if policy == "ssp":
        return {"bound": study.bound}
    if not policy.startswith("k-"):
        return {}
    return {"k": study.k if "batch" in policy else min(study.k, n)}


def epochs(study: Any, policy: str, n: int) -> tuple[int, int]:
    """Return how many epochs a run has, and how many of them the start takes to be forgotten."""
    if policy.endswith("bsp"):
        return 8, 1  # nothing is stale, so nothing is random: nothing to forget or to average
    count = max(24, -(-study.length * n // EPOCH))
    return count, max(4, count // 6)


def width(study: Any, policy: str) -> int:
    """Return the most gradients of an update."""
    if policy == "bsp":
        return max(study.workers)
    return study.k if policy.startswith("k-") else 1


@lru_cache(maxsize=8)
def _program(most: int, particles: int, width: int) -> Any:
    """Compile one population of runs, for all policies with updates of one width.

    Its result is the log of the growth of each epoch: of the mean over the runs that are cloned in
    between, or the mean of the logs of runs that are left alone.
    """
    problem, rows = task.quadratic([1.0]), max(1, EPOCH // width)

    def population(rule: Any, present: Any, count: Any, key: Any, rate: Any, cloned: Any) -> Any:
        cluster = dtjax.Cluster(n=most, delay=delays.exponential(1.0), present=present)
        optimizer = optax.sgd(rate)
        policy = inputs.canonical("stability", cluster, rule)

        def begun(key: Any) -> Any:
            clock = engine.start(key, cluster, policy, width)
            return clock, begin(key, problem, optimizer, most, most)

        def epoch(clock: Any, state: Any, key: Any) -> Any:
            clock = clock._replace(key=jax.random.key_data(key))  # of a copy, other than its twin's
            run = dtjax.resume(clock, cluster, rule, updates=rows)
            state, (losses, _) = advance(key, state, rows_of(run.trace), problem, optimizer)
            return run.clock, state, losses.mean()  # half the mean square of the versions read

        def log_of_mean(square: Any) -> Any:  # without its bias, to first order
            mean = square.mean()
            return jnp.log(mean) + 0.5 * jnp.mean((square / mean - 1) ** 2) / particles

        def turn(place: Any, carried: Any) -> Any:
            clock, state, logs = carried
            own = jax.random.fold_in(key, place)
            clock, state, square = jax.vmap(epoch)(clock, state, jax.random.split(own, particles))
            mean = jnp.where(cloned, log_of_mean(square), jnp.log(square).mean())
            shrink = jax.lax.rsqrt(square)  # all squares to 1: the epoch's growth is in the logs
            state = state._replace(
                params=state.params * shrink[:, None],
                models=state.models * shrink[:, None, None],
            )
            even = (jnp.arange(particles) + jax.random.uniform(own)) / particles
            drawn = jnp.searchsorted(jnp.cumsum(square) / square.sum(), even)
            drawn = jnp.where(cloned, jnp.minimum(drawn, particles - 1), jnp.arange(particles))
            clock, state = jax.tree.map(lambda leaf: leaf[drawn], (clock, state))
            return clock, state, logs.at[place].set(mean)

        first = jax.vmap(begun)(jax.random.split(jax.random.fold_in(key, MOST_EPOCHS), particles))
        none = jnp.zeros(MOST_EPOCHS)
        _, state, logs = jax.lax.fori_loop(0, count, turn, (*first, none))
        return {"log": logs, "diverged": (state.diverged >= 0).any()}

    return spread(population, shared=3), rows


def growth(
    study: Any, policy: str, n: int, rates: np.ndarray, islands: int, plain: int
) -> dict[str, np.ndarray]:
    """Measure the growth of the mean square at each rate, in populations with keys of their own.

    Args:
        study: its settings.
        policy: name of the policy.
        n: workers.
        rates: f[S].
        islands: populations of cloned runs.
        plain: populations of runs that are left alone.

    Returns:
        Log growth an update, NaN where a run left the numbers: `growth` f[S, islands] of the mean
        square, `typical` f[S, plain] of a run's own square.
    """
    stacked = policies.stack([policies.FACTORIES[policy](**numbers(study, policy, n))])
    rule = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], stacked)  # of one type for all
    most = max(study.workers)
    program, rows = _program(most, study.particles, width(study, policy))
    count, burn = epochs(study, policy, n)
    lanes = islands + plain
    cloned = np.tile(np.arange(lanes) < islands, len(rates))
    root = jax.random.fold_in(jax.random.key(study.seed), n)
    shared = (rule, jnp.arange(most) < n, jnp.int32(count))
    own = (jax.random.split(root, len(cloned)), np.repeat(rates, lanes), cloned)
    block = -(-len(cloned) // len(jax.local_devices()))
    found = in_waves(program, shared, own, len(cloned), block, None, None)
    each = found["log"][:, burn:count].mean(axis=1) / rows
    each = np.where(found["diverged"] | ~np.isfinite(each), np.nan, each)
    each = each.reshape(len(rates), lanes)
    return {"growth": each[:, :islands], "typical": each[:, islands:]}


def edge(
    rates: np.ndarray, growth: np.ndarray, seed: int, resamples: int = 1000
) -> tuple[float, float, float]:
    """Estimate the rate from which the growth f[S, populations] is positive, on a log scale.

    Returns:
        Estimate and 95 % interval, Student's t with the bootstrap's error over populations: NaN
        where the growth does not change sign between the rates, 0 and inf where an end of the
        interval is beyond them.
    """

    def zero(mean: np.ndarray) -> float:
        if not mean[0] < 0:
            return 0.0
        above = np.flatnonzero(~(mean < 0))  # what left the numbers has grown
        if not above.size:
            return math.inf
        right = int(above[0])
        low, high = mean[right - 1], np.nan_to_num(mean[right], nan=math.inf, posinf=1e300)
        share = -low / (high - low)
        return float(rates[right - 1] ** (1 - share) * rates[right] ** share)

    rng = np.random.default_rng(seed)
    picks = rng.integers(0, growth.shape[1], (resamples, *growth.shape))
    means = np.take_along_axis(growth[None], picks, axis=2).mean(axis=2)
    middle, found = zero(growth.mean(axis=1)), np.array([zero(mean) for mean in means])
    if not 0 < middle < math.inf:
        return math.nan, 0.0, math.inf
    below, above = (float(np.mean(found == end)) > 0.025 for end in (0.0, math.inf))
    logs = np.log(found[(found > 0) & (found < math.inf)])
    size = growth.shape[1]
    reach = stats.t.isf(0.025, size - 1) * float(logs.std()) * math.sqrt(size / (size - 1))
    low, high = middle * math.exp(-reach), middle * math.exp(reach)
    return middle, 0.0 if below else low, math.inf if above else high


def edges(study: Any, policy: str, workers: np.ndarray) -> np.ndarray:
    """Compute the exact edges of a policy, f[W]; NaN for ssp."""
    if policy == "ssp":
        return np.full(len(workers), np.nan)
    ks = [numbers(study, policy, int(n)).get("k", 1) for n in workers]
    return theory.stability_map([policy], workers.tolist(), k=ks)[0]


def exact_growth(study: Any, policy: str, n: int, rates: np.ndarray) -> np.ndarray:
    """Compute the growth of the mean square an update, f[S]; NaN for ssp, which has no theory."""
    if policy == "ssp":
        return np.full(len(rates), np.nan)
    k = numbers(study, policy, n).get("k", 1)
    last = 8 if policy.endswith("bsp") else 30 * max(2, -(-n // k))
    walk: Any = {
        "asp": lambda: theory.exponential_asp_second_moments(rates, n, 2 * last),
        "k-asp": lambda: theory.exponential_k_asp_second_moments(rates, n, k, 2 * last),
        "k-batch-asp": lambda: theory.exponential_k_batch_asp_second_moments(rates, n, k, 2 * last),
    }.get(policy, lambda: theory.synchronous_second_moments(rates, k, 2 * last))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        square = walk()
        return (np.log(square[2 * last]) - np.log(square[last])) / last


def constant_delay_edges(study: Any, policy: str, workers: np.ndarray) -> np.ndarray:
    """Compute the edge at a constant staleness of the policy's mean, f[W]; NaN for ssp.

    Means between two integers lie between their edges, evenly on log scales.
    """
    if policy == "ssp":
        return np.full(len(workers), np.nan)
    ks = [numbers(study, policy, int(n)).get("k", 1) for n in workers]
    mean: Any = {
        "asp": lambda: theory.asp_mean_staleness(workers),
        "k-asp": lambda: theory.k_asp_mean_staleness(workers, ks),
        "k-batch-asp": lambda: theory.k_batch_asp_mean_staleness(workers, ks),
    }.get(policy, lambda: np.zeros(len(workers)))
    late = np.asarray(mean())
    whole = np.floor(late + 1e-9).astype(int)
    ends = [np.log(theory.constant_delay_stability_edge(whole + one)) for one in (0, 1)]
    share = np.log1p(np.maximum(late - whole, 0) / (whole + 0.5)) / np.log1p(1 / (whole + 0.5))
    return np.exp(ends[0] + share * (ends[1] - ends[0]))


def measured(study: Any, policy: str, progress: Progress) -> xr.Dataset:
    """Compute theory and trainer of one policy with each number of workers.

    Returns:
        Raw growth of each population with dimensions workers, factor, island and plain, and the
        lines of theory with dimension n.
    """
    found = []
    for place, n in enumerate(study.workers):
        progress.note(f"{n} workers")
        line = edges(study, policy, np.array([n]))[0]
        if math.isnan(line):  # ssp: look between the edges of constant delays and of asp
            ends = [f(study, "asp", np.array([n]))[0] for f in (constant_delay_edges, edges)]
            tries = np.geomspace(ends[0] / 2, 2 * ends[1], 8)
            rough = growth(study, policy, n, tries, 2, 0)["growth"]
            middle = edge(tries, rough, study.seed, resamples=1)[0]
            line = ends[1] if math.isnan(middle) else middle
        rates = line * np.array(study.factors)
        of = growth(study, policy, n, rates, study.islands, study.plain)
        exact = exact_growth(study, policy, n, rates)
        found.append((of["growth"], of["typical"], exact, rates))
        progress.share((place + 1) / len(study.workers))
    seen, typical, exact, rates = map(np.stack, zip(*found, strict=True))
    dims, n = ("workers", "factor"), np.arange(min(study.workers), max(study.workers) + 1)
    log = {"units": "1", "long_name": "log growth of a square an update"}
    return xr.Dataset(
        {
            "growth": ((*dims, "island"), seen, log),
            "typical": ((*dims, "plain"), typical, log),
            "theory_growth": (dims, exact, log),
            "rate": (dims, rates, {"units": "1 / eigenvalue"}),
            "theory_edge": ("n", edges(study, policy, n)),
            "constant_delay_edge": ("n", constant_delay_edges(study, policy, n)),
        },
        {
            "workers": list(study.workers),
            "factor": list(study.factors),
            "island": range(study.islands),
            "plain": range(study.plain),
            "n": n,
        },
    )
