"""What studies/tradeoff.py trains: one policy in one world."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import optax

import dtjax
from dtjax import data, delays, models, network, task
from dtjax.cli.main import policy_of
from dtjax.core import checks

if TYPE_CHECKING:
    import xarray as xr

    from dtjax.experiment import Progress

SAME = ("rates", "target", "runs", "tuning_runs", "window", "evaluate_every", "widenings", "seed")
"""Settings that `dtjax.compare` has by the same names."""


def compute(study: Any, policy: str, world: str, progress: Progress) -> xr.Dataset:
    """Tune and train one policy in one world."""
    if study.pull and study.bandwidth is None:
        raise checks.fail("tradeoff", "pull", "must not be given without bandwidth", study.pull)
    links = None if study.bandwidth is None else functools.partial(_links, study)
    found = dtjax.compare(
        {policy: dtjax.Arm(_rule(study, policy), network=links)},
        {world: dtjax.Cluster(n=study.workers, delay=_law(study, world), examples=study.batch)},
        learning_task(
            study.dataset,
            study.data,
            study.hidden,
            study.batch,
            study.workers,
            study.alpha,
            study.seed,
        ),
        optimizer=optax.sgd,
        until=study.horizon,
        progress=lambda done, planned: progress.share(done / planned),
        **{setting: getattr(study, setting) for setting in SAME},
    )
    return found.isel(world=0, arm=0, drop=True)


def _rule(study: Any, policy: str) -> Any:
    """Return a policy with the numbers that it takes."""
    if policy == "ssp":
        return policy_of(policy, bound=study.bound)
    k = study.k or max(1, study.workers // 2)
    return policy_of(policy, k=k) if policy.startswith("k-") else policy_of(policy)


def _law(study: Any, world: str) -> Any:
    base = delays.exponential(study.mean, shift=study.shift)
    if world == "exponential":
        return base
    return delays.regimes(
        base, factor=study.slow_factor, enter=study.slow_enter, leave=study.slow_leave
    )


def _links(study: Any, bits: float) -> Any:
    pull, bandwidth = bits if study.pull else None, study.bandwidth or math.inf
    return network.star(payload=bits, bandwidth=bandwidth, pull=pull)


@functools.cache
def learning_task(
    dataset: str,
    division: str,
    hidden: tuple[int, ...],
    batch: int,
    workers: int,
    alpha: float,
    seed: int,
) -> Any:
    """Return the task: a network of dense layers on the chosen data; one for all cells."""
    sets = data.LOADERS[dataset]()
    partition = {
        "shared": lambda: data.shared(sets.y_train),
        "sharded": lambda: data.sharded(sets.y_train, workers, seed=seed),
        "skewed": lambda: data.skewed(sets.y_train, workers, alpha=alpha, seed=seed),
    }[division]()
    model = models.mlp(hidden, sets.classes)
    return task.classification(model, sets, batch=batch, partition=partition)
