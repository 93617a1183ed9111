"""What studies/frontier.py computes of one policy: steps, theory, runs of the trainer."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

    from studies.frontier import Config

PLANS = ("same", "deadline", "target", "switch")


class Plan(NamedTuple):
    """The steps of a policy, and what theory expects of them; NaN where it has no formula."""

    before: float  # step of the first updates
    after: float  # step of the others
    switch: int  # how many updates are made with `before`
    updates: int  # after which theory and trainer are compared
    update_loss: float  # expected then
    update_seconds: float  # expected then
    floor: float  # expected loss in the long run
    planned: float  # seconds: expected time of the first update whose expected loss is at target


def numbers(config: Config, policy: str) -> dict[str, Any]:
    """Return the numbers that a policy takes."""
    if policy == "ssp":
        return {"bound": config.bound}
    return {"k": config.k or 1} if policy.startswith("k-") else {}


def setting(config: Config, policy: str) -> tuple[Any, ...]:
    """Return the leading arguments of the functions of theory; ssp, without any, has asp's."""
    from scipy import stats

    policy = "asp" if policy == "ssp" else policy
    k = numbers(config, policy).get("k")
    return policy, stats.expon(scale=config.mean), config.workers, k


def quadratic(config: Config) -> dict[str, Any]:
    """Return the quadratic as the functions of theory take it."""
    return {"eigenvalues": config.eigenvalues, "noise": config.noise, "start": config.start}


def seconds_per_update(config: Config, policy: str) -> float:
    """Return the mean seconds of an update; for ssp, the least that they can be."""
    from dtjax import theory

    curve = theory.frontier(*setting(config, policy), rate=1.0, updates=0, **quadratic(config))
    return curve.seconds_per_update


def plans(config: Config, policy: str) -> list[Plan]:
    """Return the steps of a policy that has a theory, one plan of `PLANS` each."""
    import numpy as np

    from dtjax import theory

    given, problem = setting(config, policy), quadratic(config)
    each = seconds_per_update(config, policy)
    reach = {"target": config.target, "deadline": config.horizon}

    def fixed(step: float, updates: int) -> Plan:
        last = int(config.horizon / each * (1 + 1e-12))
        curve = theory.frontier(*given, rate=step, updates=last, **problem)
        below = np.flatnonzero(curve.loss <= config.target)
        planned = float(curve.seconds[below[0]]) if below.size else math.inf
        loss, seconds = float(curve.loss[updates]), float(curve.seconds[updates])
        return Plan(step, step, 0, updates, loss, seconds, curve.floor, planned)

    by = int(config.deadline / each)
    best = theory.best_rate(*given, deadline=config.deadline, **problem)
    soonest = theory.best_rate(*given, **reach, **problem)
    two = theory.best_switch(*given, **reach, **problem)
    floor = theory.frontier(*given, rate=two.after, updates=0, **problem).floor
    last = (two.updates, two.loss, two.updates * each, floor, two.seconds)
    return [
        fixed(config.step, by),
        fixed(best.rate, by),
        fixed(soonest.rate, soonest.updates),
        Plan(two.before, two.after, two.switch_updates, *last),
    ]


def trained(config: Config, policy: str, use: str, steps: np.ndarray, at: np.ndarray) -> Any:
    """Train many runs along their own schedules, a plan a lane.

    Args:
        config: of the study.
        policy: name of the policy.
        use: which seeds: `tune` or `report`.
        steps: f[P, 3]: step before, step after, and after how many updates.
        at: i[P], an update to look at.

    Returns:
        `loss` f[R, P, points + 1] at the seconds of the study, `update_loss` f[R, P] and
        `update_seconds` f[R, P] at the given update.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    from dtjax import policies
    from dtjax.cli.main import policy_of
    from dtjax.montecarlo.sharding import in_waves

    rule = policy_of(policy, **numbers(config, policy))
    root = jax.random.fold_in(jax.random.key(config.seed), ["tune", "report"].index(use))
    keys = jax.random.split(root, config.tuning_runs if use == "tune" else config.runs)
    program, rows = _program(config, rule.width(config.workers))
    one = jax.tree.map(lambda leaf: leaf[0], policies.stack([rule]))  # of one type for all
    shared = jax.tree.map(jnp.asarray, (one, seconds(config), steps, at))
    found = in_waves(program, shared, (keys,), len(keys), config.block, None, None)
    if (early := float(np.min(found.pop("end")))) < config.horizon:
        message = f"a run of {policy} made its {rows} updates by {early:.3g} s, before the horizon"
        raise RuntimeError(f"trained: {message} of {config.horizon:g} s")
    return found


@lru_cache(maxsize=8)
def _program(config: Config, width: int) -> tuple[Any, int]:
    """Compile the runs of all policies with updates of one width; return them and their rows."""
    import jax
    import jax.numpy as jnp
    import optax

    import dtjax
    from dtjax import delays, task
    from dtjax.montecarlo.sharding import spread

    cluster = dtjax.Cluster(n=config.workers, delay=delays.exponential(config.mean))
    problem = task.quadratic(config.eigenvalues, noise=config.noise, start=config.start)
    middle = config.horizon * config.workers / config.mean / width  # the most that are expected
    rows = int(middle + 6 * math.sqrt(middle) + 20)

    def one(rule: Any, time: Any, steps: Any, at: Any, key: Any) -> dict[str, Any]:
        schedule, training = jax.random.split(key)
        run = dtjax.simulate(schedule, cluster, rule, updates=rows, width=width)

        def follow(own: Any) -> Any:
            optimizer = optax.sgd(lambda count: jnp.where(count < own[2], own[0], own[1]))
            found = dtjax.replay(training, run.trace, problem, optimizer, evaluate_every=width)
            return found.measures["loss"]

        loss, now = jax.vmap(follow)(steps), jnp.pad(jnp.cumsum(run.trace.dt), (1, 0))
        return {
            "loss": loss[:, jnp.searchsorted(now, time, side="right") - 1],
            "update_loss": jnp.take_along_axis(loss, at[:, None], 1)[:, 0],
            "update_seconds": now[at],
            "end": now[-1],
        }

    return spread(one, shared=4), rows


def tuned(config: Config) -> list[Plan]:
    """Return the plans of ssp, its steps chosen by the trainer with other seeds."""
    import numpy as np

    edge = 2 / max(config.eigenvalues)
    tries = np.geomspace(edge / 200, edge / 2, config.tuning_steps)
    steps = np.stack([tries, tries, np.zeros_like(tries)], axis=1)
    groups = [trained(config, "ssp", "tune", s, np.zeros(4, int)) for s in steps.reshape(-1, 4, 3)]
    mean = np.concatenate([group["loss"].mean(axis=0) for group in groups])  # f[tries, time]
    mean = np.where(np.isfinite(mean), mean, np.inf)
    time = seconds(config)
    when = np.array([crossing(time, one, config.target) for one in mean])
    end = np.searchsorted(time, config.deadline * (1 + 1e-9)) - 1
    best = [config.step, tries[mean[:, end].argmin()], tries[np.lexsort((mean[:, -1], when))[0]]]
    none = (math.nan,) * 4
    updates = int(config.deadline * config.workers / config.mean)
    ways = [Plan(float(step), float(step), 0, updates, *none) for step in best]
    return [*ways, Plan(math.nan, math.nan, 0, 0, *none)]


def seconds(config: Config) -> np.ndarray:
    """Return the seconds at which the loss is looked at: 0, a log scale, and the deadline."""
    import numpy as np

    scale = np.geomspace(config.horizon / 300, config.horizon, config.points)
    return np.unique(np.r_[0.0, scale, config.deadline])


def crossing(time: np.ndarray, loss: np.ndarray, target: float) -> float:
    """Return when a curve first falls to the target, between its points on log scales."""
    import numpy as np

    place = int(np.argmax(loss <= target))
    if not loss[place] <= target:
        return math.inf
    if place < 2 or not loss[place] > 0:
        return float(time[place])
    high, low = np.log(loss[place - 1 : place + 1] / target)
    share = high / (high - low)
    return float(time[place - 1] ** (1 - share) * time[place] ** share)


def compared(config: Config, policy: str) -> xr.Dataset:
    """Compute theory and trainer of one policy under each plan: raw arrays and what they say.

    `z` is (mean over the runs - theory) / standard error: of the loss at each second from the mean
    seconds of an update on (before, too few runs have moved for a standard error), and of loss and
    seconds after `updates` updates. Where the expected loss grows without bound (`unstable`),
    samples do not show it, and there is no z.
    """
    import numpy as np
    import xarray as xr

    from dtjax import theory

    ways = tuned(config) if policy == "ssp" else plans(config, policy)
    steps = np.array([(way.before, way.after, way.switch) for way in ways])
    absent = np.isnan(steps[:, 0])
    at = np.array([way.updates for way in ways])
    found = trained(config, policy, "report", np.nan_to_num(steps), at)
    time = seconds(config)
    loss = np.where(absent[:, None], np.nan, found["loss"])
    exact = np.full((len(ways), len(time)), np.nan)
    for place, way in enumerate(ways):
        if policy != "ssp" and way.before == way.after > 0:
            own = {"rate": way.after, "seconds": time, **quadratic(config)}
            exact[place] = theory.loss_at_seconds(*setting(config, policy), **own)
    floor = np.array([way.floor for way in ways])
    usable = np.isfinite(floor)
    late = time >= seconds_per_update(config, policy)
    updated = {
        name: np.where(absent, np.nan, found[name]) for name in ("update_loss", "update_seconds")
    }
    theories = {name: np.array([getattr(way, name) for way in ways]) for name in updated}
    reached = [_soonest(config, time, loss[:, place]) for place in range(len(ways))]
    second = {"units": "s"}
    infinite = second | {"note": "infinite: not reached by the horizon"}
    return xr.Dataset(
        {
            "loss": (("run", "plan", "time"), loss.astype(np.float32)),
            **{name: (("run", "plan"), value) for name, value in updated.items()},
            "theory_loss": (("plan", "time"), exact),
            **{f"theory_{name}": ("plan", value) for name, value in theories.items()},
            "theory_floor": ("plan", floor, {"note": "infinite: the step is not stable"}),
            "theory_planned": ("plan", np.array([way.planned for way in ways]), infinite),
            "theory_reached": ("plan", [crossing(time, x, config.target) for x in exact], infinite),
            "reached": (("plan", "bound"), reached, infinite),
            "step_before": ("plan", steps[:, 0]),
            "step_after": ("plan", steps[:, 1]),
            "switch_updates": ("plan", steps[:, 2].astype(int)),
            "updates": ("plan", at),
            "unstable": ("plan", np.isinf(floor)),
            "diverged": ("plan", (~np.isfinite(found["loss"][..., -1])).sum(axis=0)),
            "z": (("plan", "time"), _scores(loss, exact, usable[:, None] & late)),
            **{
                f"z_{name}": ("plan", _scores(updated[name], theories[name], usable))
                for name in updated
            },
        },
        {"time": ("time", time, second), "plan": list(PLANS), "bound": ["mean", "low", "high"]},
    )


def _scores(samples: np.ndarray, expected: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """Return by how many standard errors means over the first axis are off; NaN: not compared."""
    import numpy as np

    error = samples.std(axis=0, ddof=1) / math.sqrt(len(samples))
    off = samples.mean(axis=0) - np.where(np.isfinite(expected), expected, np.nan)
    tiny = 1e-6 * np.abs(expected)  # where nothing is random
    return np.where(usable, off / np.maximum(error, tiny + 1e-300), np.nan)


def _soonest(
    config: Config, time: np.ndarray, loss: np.ndarray, resamples: int = 1000
) -> list[float]:
    """Return when the mean over the runs f[R, T] falls to the target, and its 95 % interval.

    The interval is the bootstrap's, over runs; it ends at infinity where the mean of more than one
    resample in forty does not get there.
    """
    import numpy as np

    rng = np.random.default_rng(config.seed)
    share = rng.multinomial(len(loss), np.full(len(loss), 1 / len(loss)), resamples) / len(loss)
    clean = np.where(np.isfinite(loss), loss, 1e300)
    times = [crossing(time, mean, config.target) for mean in share @ clean]
    low, high = np.quantile(times, [0.025, 0.975], method="higher")
    return [crossing(time, clean.mean(axis=0), config.target), float(low), float(high)]
