"""Which synchronisation policy reaches a target accuracy soonest?

Eight workers, seven policies, two worlds: independent shifted-exponential compute times, and
workers that fall into slow phases. Every policy trains the same network on the same data for the
same simulated seconds, with the learning rate that is best for it on validation data and other
seeds. Prints a table, writes one netCDF file and draws it.

    python studies/tradeoff.py --help
"""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

POLICIES = ("bsp", "k-bsp", "k-batch-bsp", "k-asp", "k-batch-asp", "ssp", "asp")
WORLDS = ("exponential", "persistent")


@dataclass(frozen=True)
class Config:
    """Compare synchronisation policies by the seconds they take to a target accuracy."""

    out: Path = Path("results/tradeoff")
    """Folder of the results; a run that was interrupted goes on from what is there."""
    policies: Annotated[tuple[str, ...], tyro.conf.arg(metavar=f"{{{','.join(POLICIES)}}} ...")] = (
        POLICIES
    )
    """Which policies to compare."""
    worlds: Annotated[tuple[str, ...], tyro.conf.arg(metavar=f"{{{','.join(WORLDS)}}} ...")] = (
        WORLDS
    )
    """Which worlds to compare them in."""
    workers: int = 8
    """Number of workers."""
    k: int | None = None
    """Gradients an update for the four k-policies; half of the workers if not given."""
    bound: int = 3
    """How far ahead of the slowest a worker may run under ssp."""
    mean: float = 0.5
    """Mean of the random part of a compute time, seconds."""
    shift: float = 0.5
    """Constant part of a compute time, seconds."""
    slow_factor: float = 5.0
    """How many times longer a computation takes in a slow phase (persistent world)."""
    slow_enter: float = 0.02
    """Probability that a slow phase begins after a fast computation (persistent world)."""
    slow_leave: float = 0.08
    """Probability that it ends after a slow computation (persistent world)."""
    bandwidth: float | None = None
    """Of the server's ingress, bits a second; bytes cost nothing if not given."""
    payload: float | None = None
    """Bits of a gradient as it is sent; 32 a parameter if not given."""
    pull: bool = False
    """Whether workers pull the model, 32 bits a parameter, before they compute."""
    horizon: float = 300.0
    """Simulated seconds that every policy gets."""
    target: float = 0.95
    """Accuracy to reach."""
    window: int = 100
    """Gradients over which the accuracy is smoothed, and for which it must stay at the target."""
    evaluate_every: int = 100
    """Gradients between two evaluations."""
    dataset: Literal["digits", "mnist-subset"] = "digits"
    """What to learn."""
    data: Literal["shared", "sharded", "skewed"] = "shared"
    """How workers see the data: all of it, a shard each, or a mixture of classes each."""
    alpha: float = 0.3
    """How even the mixtures of classes are (skewed data): small is uneven."""
    hidden: tuple[int, ...] = (32,)
    """Widths of the network's hidden layers."""
    batch: int = 16
    """Examples in a mini-batch."""
    runs: int = 16
    """Runs to report, each with seeds of its own."""
    tuning_runs: int = 5
    """Runs to choose a learning rate by, with other seeds."""
    rates: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
    """Learning rates to try; widened by factors of two while the best is at an edge."""
    widenings: int = 3
    """How often to widen at most."""
    seed: int = 0
    """Of everything."""
    block: int = 8
    """Runs side by side on a device: part of what the bits of a run depend on."""
    figure: bool = True
    """Draw the figure, too."""
    smoke: bool = False
    """A size that only shows that everything works, in seconds."""


def settle(config: Config) -> Config:
    """Check a configuration and fill in what depends on other fields.

    Raises:
        ValueError: naming the field, the rule and the value.
    """
    from dtjax.core import checks

    for name, allowed in (("policies", POLICIES), ("worlds", WORLDS)):
        for value in getattr(config, name):
            checks.choice("tradeoff", name, value, allowed)
        config = dataclasses.replace(config, **{name: tuple(dict.fromkeys(getattr(config, name)))})
    for name, low in (("workers", 1), ("runs", 1), ("tuning_runs", 1), ("batch", 1), ("block", 1)):
        checks.integer("tradeoff", name, getattr(config, name), low=low)
    checks.integer("tradeoff", "seed", config.seed, low=0, high=2**31 - 1)
    for name in ("evaluate_every", "window", "widenings"):
        checks.integer("tradeoff", name, getattr(config, name), low=int(name == "evaluate_every"))
    for name, values in (("rates", config.rates), ("horizon", (config.horizon,))):
        for value in values:
            if not (math.isfinite(value) and value > 0):
                raise checks.fail("tradeoff", name, "must be positive and finite", value)
    for name in ("rates", "policies", "worlds"):
        if not getattr(config, name):
            raise checks.fail("tradeoff", name, "must not be empty", getattr(config, name))
    if not 0 < config.target <= 1:
        raise checks.fail("tradeoff", "target", "must be above 0 and at most 1", config.target)
    if config.smoke:
        config = dataclasses.replace(
            config,
            horizon=min(config.horizon, 25.0),
            runs=min(config.runs, 4),
            tuning_runs=min(config.tuning_runs, 2),
            rates=config.rates[1:4],
            widenings=0,
            target=min(config.target, 0.5),
            window=min(config.window, 20),
            evaluate_every=min(config.evaluate_every, 20),
            block=4,
        )
    k = max(1, config.workers // 2) if config.k is None else config.k
    checks.integer("tradeoff", "k", k, low=1, high=config.workers, high_name="workers=")
    config = dataclasses.replace(config, k=k, rates=tuple(sorted(set(config.rates))))
    for world in config.worlds:
        law(config, world)
    for policy in config.policies:
        rule(config, policy)
    links(config, parameters=1)
    return config


def law(config: Config, world: str) -> Any:
    """Return the compute-time law of a world."""
    from dtjax import delays

    base = delays.exponential(config.mean, shift=config.shift)
    if world == "exponential":
        return base
    return delays.regimes(
        base, factor=config.slow_factor, enter=config.slow_enter, leave=config.slow_leave
    )


def rule(config: Config, policy: str) -> Any:
    """Return a policy with the numbers of the configuration."""
    from dtjax.cli.main import policy_of

    return policy_of(
        policy,
        k=config.k if policy.startswith("k-") else None,
        bound=config.bound if policy == "ssp" else None,
    )


def links(config: Config, *, parameters: int) -> Any:
    """Return the network for a model of so many parameters; None if bytes cost nothing."""
    from dtjax import network
    from dtjax.core import checks

    if config.bandwidth is None:
        for name, nothing in (("payload", None), ("pull", False)):
            if getattr(config, name) != nothing:
                rule = "must not be given without bandwidth"
                raise checks.fail("tradeoff", name, rule, getattr(config, name))
        return None
    model = 32.0 * parameters
    return network.star(
        payload=model if config.payload is None else config.payload,
        bandwidth=config.bandwidth,
        pull=model if config.pull else None,
    )


def schedules(config: Config, world: str, keys: Any, network: Any = None) -> Any:
    """Simulate all policies under common random numbers: leaves [policy, run, ...]."""
    import jax
    import numpy as np

    import dtjax
    from dtjax import policies
    from dtjax.clock.status import DONE
    from dtjax.montecarlo.sharding import map_runs

    cluster = dtjax.Cluster(
        n=config.workers, delay=law(config, world), examples=config.batch, network=network
    )
    stacked = policies.stack([rule(config, policy) for policy in config.policies])
    count, lanes = len(config.policies), len(config.policies) * len(keys)
    rules = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf), len(keys), axis=0), stacked)
    rows = 64 + int(1.2 * config.horizon * config.workers / (config.mean + config.shift))
    while True:  # a trace has a fixed number of rows: take more until they are enough
        run = map_runs(
            lambda rule, key, rows=rows: dtjax.simulate(
                key, cluster, rule, updates=rows, until=config.horizon, width=config.workers
            ),
            rules,
            keys[np.tile(np.arange(len(keys)), count)],
            block=-(-lanes // len(jax.local_devices())),
        )
        run.check()
        if not (run.status == DONE).any():
            break
        rows *= 2
    return jax.tree.map(lambda leaf: leaf.reshape(count, len(keys), *leaf.shape[1:]), run)


def compare(
    config: Config, world: str, policy: str, run: Any, fleet: Any, bar: Any, network: Any = None
) -> Any:
    """Tune and report one policy in one world.

    Args:
        config: of the study.
        world: name of the world.
        policy: name of the policy.
        run: its schedules, first those to tune on.
        fleet: trains.
        bar: progress.
        network: of the cluster.

    Returns:
        One dataset of raw arrays.
    """
    import jax
    import numpy as np

    from dtjax.analysis.dataset import label
    from dtjax.analysis.time_to_target import time_to_target
    from dtjax.training.many_runs import seconds_at, trim
    from dtjax.training.rate_search import choose_rate

    tuning, reported = np.arange(config.tuning_runs), config.tuning_runs + np.arange(config.runs)
    keys = run_keys(config, "training")

    def train(index: np.ndarray, rates: np.ndarray) -> tuple[Any, np.ndarray]:
        traces = trim(jax.tree.map(lambda leaf: leaf[index], run.trace))
        bar.set_postfix_str(f"{world}, {policy}, {len(index)} runs")
        result = fleet.train(keys[index], traces, rates, progress=bar.update)
        return result, seconds_at(traces, result.updates)

    def target(result: Any, seconds: np.ndarray, measure: str) -> np.ndarray:
        return time_to_target(
            seconds,
            result.gradients,
            np.nan_to_num(result.measures[measure], nan=0.0),
            config.target,
            window=config.window,
        )

    def try_rates(rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shape = (len(rates), len(tuning))
        result, seconds = train(np.tile(tuning, len(rates)), np.repeat(rates, len(tuning)))
        accuracy = np.nan_to_num(result.measures["validation_accuracy"][:, -1], nan=0.0)
        times = target(result, seconds, "validation_accuracy")
        return times.reshape(shape), accuracy.reshape(shape)

    choice = choose_rate(config.rates, try_rates, widenings=config.widenings)
    result, seconds = train(reported, np.full(len(reported), choice.rate))
    mine = jax.tree.map(lambda leaf: leaf[reported], run)
    reached = target(result, seconds, "test_accuracy")
    return label(mine, result, seconds, network=network).assign(
        target_seconds=("run", reached, {"units": "s", "note": "infinite: not reached"}),
        rate=choice.rate,
        rate_warning=choice.warning,
        tried=("candidate", choice.tried),
        tuning_seconds=(("candidate", "tuning_run"), choice.seconds),
    )


def run_keys(config: Config, use: Literal["schedule", "training"]) -> Any:
    """Return one key a run: the same for every policy, so that differences are the policies'."""
    import jax

    root = jax.random.fold_in(jax.random.key(config.seed), ["schedule", "training"].index(use))
    return jax.random.split(root, config.tuning_runs + config.runs)


def learning_task(config: Config) -> Any:
    """Return the task: a network of dense layers on the chosen data."""
    from dtjax import data, models
    from dtjax.training.task import classification

    sets = data.LOADERS[config.dataset]()
    partition = {
        "shared": lambda: data.shared(sets.y_train),
        "sharded": lambda: data.sharded(sets.y_train, config.workers, seed=config.seed),
        "skewed": lambda: data.skewed(
            sets.y_train, config.workers, alpha=config.alpha, seed=config.seed
        ),
    }[config.data]()
    model = models.mlp(config.hidden, sets.classes)
    return classification(model, sets, batch=config.batch, partition=partition)


def study(config: Config) -> xr.Dataset:
    """Run the whole study; parts that an earlier run finished are read.

    Args:
        config: settled.

    Returns:
        Raw arrays with dimensions world, policy, run, evaluation, worker, class, candidate.
    """
    import jax
    import optax
    from tqdm import tqdm

    from dtjax.analysis.dataset import join
    from dtjax.experiment import study as studies
    from dtjax.training.many_runs import Fleet

    parts = studies.output_folder(config.out / "parts")
    task = learning_task(config)
    fleet = Fleet(task, optax.sgd, evaluate_every=config.evaluate_every, block=config.block)
    params = jax.eval_shape(task.init, task.data, jax.random.key(0))
    network = links(config, parameters=sum(leaf.size for leaf in jax.tree.leaves(params)))
    lanes = config.tuning_runs * len(config.rates) + config.runs
    keys = run_keys(config, "schedule")
    kept = dataclasses.replace(config, out=Path(), figure=True, policies=(), worlds=())
    rows: list[list[Any]] = []
    with tqdm(unit="gradient", unit_scale=True, dynamic_ncols=True, total=0) as bar:
        for world in config.worlds:
            bar.set_postfix_str(f"{world}: schedules")
            runs: Any = None

            def compute(place: int, policy: str, world: str = world) -> xr.Dataset:
                nonlocal runs
                if runs is None:  # all the policies at once: one compile
                    runs = schedules(config, world, keys, network)
                    used = runs.accounts.useful_count.sum(-1).mean(-1)
                    bar.total += int(used[place:].sum() * lanes)
                run = jax.tree.map(lambda leaf: leaf[place], runs)
                return compare(config, world, policy, run, fleet, bar, network)

            rows.append(
                [
                    studies.part(
                        parts,
                        [kept, world, policy],
                        lambda place=place, policy=policy: compute(place, policy),
                    )
                    for place, policy in enumerate(config.policies)
                ]
            )
    whole = join(rows, "world", "policy")
    whole = whole.assign_coords(
        world=list(config.worlds), policy=list(config.policies), run=range(config.runs)
    )
    return whole.assign_attrs(studies.provenance(config) | {"study": "tradeoff"})


def main(config: Config) -> None:
    """Run the study, print its tables, write its file and draw its figure."""
    from dtjax.analysis.outcomes import outcomes
    from dtjax.experiment import study as studies

    studies.prepare()
    config = settle(config)
    out = studies.output_folder(config.out)
    whole = study(config)
    studies.write(whole, out / "tradeoff.nc")
    for world in config.worlds:
        print(f"\nworld: {world} ({config.runs} runs; medians, 95 % bootstrap intervals)")
        print(outcomes(whole.sel(world=world), target=config.target))
    print(f"\nwrote {out / 'tradeoff.nc'}")
    if config.figure:
        script = Path(__file__).parents[1] / "figures" / "tradeoff.py"
        studies.draw(script, str(out / "tradeoff.nc"), "--out", str(out / "tradeoff.png"))
        print(f"wrote {out / 'tradeoff.png'}")


if __name__ == "__main__":
    try:
        main(tyro.cli(Config, description=__doc__))
    except (ValueError, RuntimeError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: what is done is kept, the same command goes on from there")
