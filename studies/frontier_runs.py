"""What studies/frontier.py computes of one policy: rates, theory, runs of the trainer."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from scipy import stats

import dtjax
from dtjax import delays, policies, task, theory
from dtjax.montecarlo.sharding import in_waves, spread

if TYPE_CHECKING:
    from dtjax.experiment import Progress

PLANS = ("same", "deadline", "target", "switch")
SECONDS = {"units": "s"}


class Plan(NamedTuple):
    """The learning rates of a policy, and what theory expects; NaN where it has no formula."""

    before: float  # rate of the first updates
    after: float  # rate of the others
    switch: int  # how many updates are made with `before`
    updates: int  # after which theory and trainer are compared
    update_loss: float = math.nan  # expected then
    update_seconds: float = math.nan  # expected then
    floor: float = math.nan  # expected loss in the long run
    planned: float = math.nan  # seconds: expected time of the first update expected at the target


def numbers(study: Any, policy: str) -> dict[str, Any]:
    """Return the numbers that a policy takes."""
    if policy == "ssp":
        return {"bound": study.bound}
    return {"k": study.k} if policy.startswith("k-") else {}


def setting(study: Any, policy: str) -> tuple[Any, ...]:
    """Return the leading arguments of the functions of theory; ssp, without any, has asp's."""
    k = numbers(study, policy).get("k")
    return "asp" if policy == "ssp" else policy, stats.expon(scale=study.mean), study.workers, k


def quadratic(study: Any) -> dict[str, Any]:
    """Return the quadratic as the functions of theory and the trainer's task take it."""
    return {"eigenvalues": study.eigenvalues, "noise": study.noise, "start": study.start}


def seconds_per_update(study: Any, policy: str) -> float:
    """Return the mean seconds of an update; for ssp, the least that they can be."""
    curve = theory.frontier(*setting(study, policy), rate=1.0, updates=0, **quadratic(study))
    return curve.seconds_per_update


def plans(study: Any, policy: str) -> list[Plan]:
    """Return the rates of a policy that has a theory, one plan of `PLANS` each."""
    given, problem = setting(study, policy), quadratic(study)
    each = seconds_per_update(study, policy)
    reach = {"target": study.target, "deadline": study.horizon}

    def fixed(rate: float, updates: int) -> Plan:
        last = int(study.horizon / each * (1 + 1e-12))
        curve = theory.frontier(*given, rate=rate, updates=last, **problem)
        below = np.flatnonzero(curve.loss <= study.target)
        planned = float(curve.seconds[below[0]]) if below.size else math.inf
        loss, seconds = float(curve.loss[updates]), float(curve.seconds[updates])
        return Plan(rate, rate, 0, updates, loss, seconds, curve.floor, planned)

    by = int(study.deadline / each)
    best = theory.best_rate(*given, deadline=study.deadline, **problem)
    soonest = theory.best_rate(*given, **reach, **problem)
    two = theory.best_switch(*given, **reach, **problem)
    floor = theory.frontier(*given, rate=two.after, updates=0, **problem).floor
    last = (two.updates, two.loss, two.updates * each, floor, two.seconds)
    return [
        fixed(study.rate, by),
        fixed(best.rate, by),
        fixed(soonest.rate, soonest.updates),
        Plan(two.before, two.after, two.switch_updates, *last),
    ]


def trained(study: Any, policy: str, use: str, rates: np.ndarray, at: np.ndarray) -> Any:
    """Train many runs along their own schedules, a plan a lane.

    Args:
        study: its settings.
        policy: name of the policy.
        use: which seeds: `tune` or `report`.
        rates: f[P, 3]: rate before, rate after, and after how many updates.
        at: i[P], an update to look at.

    Returns:
        `loss` f[R, P, points + 1] at the seconds of the study, `update_loss` f[R, P] and
        `update_seconds` f[R, P] at the given update.
    """
    rule = policies.FACTORIES[policy](**numbers(study, policy))
    root = jax.random.fold_in(jax.random.key(study.seed), ["tune", "report"].index(use))
    keys = jax.random.split(root, study.tuning_runs if use == "tune" else study.runs)
    width = rule.width(study.workers)
    program, rows = _program(
        study.workers, study.mean, study.horizon, tuple(quadratic(study).items()), width, study.x64
    )
    one = jax.tree.map(lambda leaf: leaf[0], policies.stack([rule]))  # of one type for all
    shared = jax.tree.map(jnp.asarray, (one, seconds(study), rates, at))
    found = in_waves(program, shared, (keys,), len(keys), study.block, None, None)
    if (early := float(np.min(found.pop("end")))) < study.horizon:
        message = f"a run of {policy} made its {rows} updates by {early:.3g} s, before the horizon"
        raise RuntimeError(f"trained: {message} of {study.horizon:g} s")
    return found


@lru_cache(maxsize=8)
def _program(
    workers: int, mean: float, horizon: float, problem: tuple[Any, ...], width: int, x64: bool
) -> tuple[Any, int]:
    """Compile the runs of all policies with updates of one width; return them and their rows."""
    del x64  # part of the cache's key
    cluster = dtjax.Cluster(n=workers, delay=delays.exponential(mean))
    loss_of = task.quadratic(**dict(problem))
    middle = horizon * workers / mean / width  # the most that are expected
    rows = int(middle + 6 * math.sqrt(middle) + 20)

    def one(rule: Any, time: Any, rates: Any, at: Any, key: Any) -> dict[str, Any]:
        schedule, training = jax.random.split(key)
        run = dtjax.simulate(schedule, cluster, rule, updates=rows, width=width)

        def follow(own: Any) -> Any:
            optimizer = optax.sgd(lambda count: jnp.where(count < own[2], own[0], own[1]))
            found = dtjax.replay(training, run.trace, loss_of, optimizer, evaluate_every=width)
            return found.measures["loss"]

        loss, now = jax.vmap(follow)(rates), jnp.pad(jnp.cumsum(run.trace.dt), (1, 0))
        return {
            "loss": loss[:, jnp.searchsorted(now, time, side="right") - 1],
            "update_loss": jnp.take_along_axis(loss, at[:, None], 1)[:, 0],
            "update_seconds": now[at],
            "end": now[-1],
        }

    return spread(one, shared=4), rows


def tuned(study: Any, progress: Progress) -> list[Plan]:
    """Return the plans of ssp, its rates chosen by the trainer with other seeds."""
    edge = 2 / max(study.eigenvalues)
    tries = np.geomspace(edge / 200, edge / 2, study.tuning_rates)
    groups = np.stack([tries, tries, np.zeros_like(tries)], axis=1).reshape(-1, len(PLANS), 3)
    losses = []
    for place, rates in enumerate(groups):
        progress.note(f"rates {rates[0, 0]:.2g} to {rates[-1, 0]:.2g}")
        found = trained(study, "ssp", "tune", rates, np.zeros(len(PLANS), int))
        losses.append(found["loss"].mean(axis=0))
        progress.share((place + 1) / (len(groups) + 2))
    mean = np.concatenate(losses)  # f[tries, time]
    mean = np.where(np.isfinite(mean), mean, np.inf)
    time = seconds(study)
    when = np.array([crossing(time, one, study.target) for one in mean])
    end = np.searchsorted(time, study.deadline * (1 + 1e-9)) - 1
    best = [study.rate, tries[mean[:, end].argmin()], tries[np.lexsort((mean[:, -1], when))[0]]]
    updates = int(study.deadline * study.workers / study.mean)
    ways = [Plan(float(rate), float(rate), 0, updates) for rate in best]
    return [*ways, Plan(math.nan, math.nan, 0, 0)]


def seconds(study: Any) -> np.ndarray:
    """Return the seconds at which the loss is looked at: 0, a log scale, and the deadline."""
    scale = np.geomspace(study.horizon / 300, study.horizon, study.points)
    return np.unique(np.r_[0.0, scale, study.deadline])


def crossing(time: np.ndarray, loss: np.ndarray, target: float) -> float:
    """Return when a curve first falls to the target, between its points on log scales."""
    place = int(np.argmax(loss <= target))
    if not loss[place] <= target:
        return math.inf
    if place < 2 or not loss[place] > 0:
        return float(time[place])
    high, low = np.log(loss[place - 1 : place + 1] / target)
    share = high / (high - low)
    return float(time[place - 1] ** (1 - share) * time[place] ** share)


def compared(study: Any, policy: str, progress: Progress) -> xr.Dataset:
    """Compute theory and trainer of one policy under each plan: raw arrays and what they say.

    `z` is (mean over the runs - theory) / standard error: of the loss at each second from the mean
    seconds of an update on (before, too few runs have moved for a standard error), and of loss and
    seconds after `updates` updates. Where the expected loss grows without bound (`unstable`),
    samples do not show it, and there is no z.
    """
    ways = tuned(study, progress) if policy == "ssp" else plans(study, policy)
    progress.note(f"{study.runs} runs")
    columns: Any = map(np.array, zip(*ways, strict=True))
    way: Any = Plan(*columns)  # an array a field
    rates, time = np.stack([way.before, way.after, way.switch], axis=1), seconds(study)
    found = trained(study, policy, "report", np.nan_to_num(rates), way.updates)
    absent, usable = np.isnan(way.before), np.isfinite(way.floor)
    loss = np.where(absent[:, None], np.nan, found["loss"])
    exact = np.full((len(ways), len(time)), np.nan)
    for place, one in enumerate(ways):
        if policy != "ssp" and one.before == one.after > 0:
            own = {"rate": one.after, "seconds": time, **quadratic(study)}
            exact[place] = theory.loss_at_seconds(*setting(study, policy), **own)
    late = time >= seconds_per_update(study, policy)
    reached = [_soonest(study, time, loss[:, place]) for place in range(len(ways))]
    infinite = SECONDS | {"note": "infinite: not reached by the horizon"}
    values: dict[str, Any] = {
        "loss": (("run", "plan", "time"), loss.astype(np.float32)),
        "theory_loss": (("plan", "time"), exact),
        "theory_floor": ("plan", way.floor, {"note": "infinite: the rate is not stable"}),
        "theory_planned": ("plan", way.planned, infinite),
        "theory_reached": ("plan", [crossing(time, x, study.target) for x in exact], infinite),
        "reached": (("plan", "interval"), reached, infinite),
        "rate_before": ("plan", way.before),
        "rate_after": ("plan", way.after),
        "switch_updates": ("plan", way.switch),
        "updates": ("plan", way.updates),
        "unstable": ("plan", np.isinf(way.floor)),
        "diverged": ("plan", (~np.isfinite(found["loss"][..., -1])).sum(axis=0)),
        "z": (("plan", "time"), _scores(loss, exact, usable[:, None] & late)),
    }
    for name in ("update_loss", "update_seconds"):
        expected = getattr(way, name)
        values[name] = (("run", "plan"), np.where(absent, np.nan, found[name]))
        values[f"theory_{name}"] = ("plan", expected)
        values[f"z_{name}"] = ("plan", _scores(values[name][1], expected, usable))
    labels = {"plan": list(PLANS), "interval": ["mean", "low", "high"], "run": range(study.runs)}
    return xr.Dataset(values, {"time": ("time", time, SECONDS), **labels})


def _scores(samples: np.ndarray, expected: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """Return by how many standard errors means over the first axis are off; NaN: not compared."""
    error = samples.std(axis=0, ddof=1) / math.sqrt(len(samples))
    off = samples.mean(axis=0) - np.where(np.isfinite(expected), expected, np.nan)
    tiny = 1e-6 * np.abs(expected)  # where nothing is random
    return np.where(usable, off / np.maximum(error, tiny + 1e-300), np.nan)


def _soonest(study: Any, time: np.ndarray, loss: np.ndarray, resamples: int = 1000) -> list[float]:
    """Return when the mean over the runs f[R, T] falls to the target, and its 95 % interval.

    The interval is the bootstrap's, over runs; it ends at infinity where the mean of more than one
    resample in forty does not get there.
    """
    rng = np.random.default_rng(study.seed)
    share = rng.multinomial(len(loss), np.full(len(loss), 1 / len(loss)), resamples) / len(loss)
    clean = np.where(np.isfinite(loss), loss, 1e300)
    times = [crossing(time, mean, study.target) for mean in share @ clean]
    low, high = np.quantile(times, [0.025, 0.975], method="higher")
    return [crossing(time, clean.mean(axis=0), study.target), float(low), float(high)]
