"""Comparisons of arms: known answers, common random numbers, equal gradients, bad input."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import jax
import numpy as np
import optax
import pytest
import xarray as xr

import dtjax
from dtjax import compressors, delays, network, policies
from dtjax.experiment.arms import Arm
from dtjax.experiment.compare import compare

LINEAR: dict[str, Any] = {
    "optimizer": optax.sgd,
    "target": 0.01,
    "until": 40.5,
    "runs": 2,
    "tuning_runs": 1,
    "window": 0,
    "evaluate_every": 2,
    "block": 2,
}


def first_below(rate: float, stale: bool, target: float = 0.01) -> float:
    """Play two workers of one second each on the loss w^2/2 from w = 1: seconds to the target.

    Without staleness an update at each second. With it two at each second, the second of them by a
    gradient of the version before.
    """
    w = [1.0]
    for second in range(1, 41):
        if stale:
            for _ in range(2):
                w.append(w[-1] - rate * w[max(0, len(w) - 2)])
        else:
            w.append(w[-1] * (1 - rate))
        if 0.5 * w[-1] ** 2 <= target:
            return float(second)
    return math.inf


@cache
def linear() -> xr.Dataset:
    cluster = dtjax.Cluster(n=2, delay=delays.deterministic(1.0))
    arms = {"bsp": policies.bsp(), "asp": policies.asp()}
    worlds = {"one": cluster, "twice": dtjax.Cluster(n=2, delay=delays.deterministic(2.0))}
    rates = [0.05, 0.1, 0.2, 0.3]
    return compare(arms, worlds, dtjax.task.quadratic([1.0]), rates=rates, widenings=0, **LINEAR)


def test_times_rates_and_warnings_are_those_of_theory() -> None:
    found = linear()
    assert found.attrs["measure"] == "loss" and not found.attrs["rising"]
    for arm, stale in (("bsp", False), ("asp", True)):
        times = {rate: first_below(rate, stale) for rate in (0.05, 0.1, 0.2, 0.3)}
        best = min(times, key=lambda rate: times[rate])
        one = found.sel(world="one", arm=arm)
        assert float(one.rate) == best
        assert one.target_seconds.values.tolist() == [times[best]] * 2
        expected = [[times[rate]] for rate in (0.05, 0.1, 0.2, 0.3)]
        assert one.tuning_seconds.values.tolist() == expected
        assert bool(str(one.rate_warning.values)) == (best in (0.05, 0.3))
        slow = found.sel(world="twice", arm=arm)
        assert (slow.target_seconds == 2 * one.target_seconds).all()


def test_the_grid_is_widened_until_the_best_rate_is_inside() -> None:
    """On w^2/2 rate 1 is there after one update; 1/8 is the only rate to begin with."""
    cluster = dtjax.Cluster(n=2, delay=delays.deterministic(1.0))
    task = dtjax.task.quadratic([1.0])
    found = compare({"bsp": policies.bsp()}, cluster, task, rates=[0.125], **LINEAR)
    assert found.rate.item() == 1.0 and found.target_seconds.values.ravel().tolist() == [1.0, 1.0]
    assert str(found.rate_warning.item()) == ""


@cache
def noisy() -> xr.Dataset:
    delay = delays.exponential(1.0)
    worlds = {"a": dtjax.Cluster(n=4, delay=delay), "b": dtjax.Cluster(n=3, delay=delay)}
    arms = {"bsp": policies.bsp(), "k": policies.k_batch_asp(3), "asp": policies.asp()}
    task = dtjax.task.quadratic([1.0, 0.5], noise=0.5)
    return compare(
        arms,
        worlds,
        task,
        optimizer=optax.sgd,
        rates=[0.05, 0.1],
        target=0.05,
        until=30.0,
        runs=3,
        tuning_runs=2,
        window=12,
        evaluate_every=12,
        widenings=0,
        block=2,
    )


def test_every_arm_is_evaluated_at_the_same_gradients() -> None:
    found = noisy()
    for _, cell in found.stack(cell=("world", "arm", "run")).groupby("cell"):
        counts = cell.gradients.values.ravel()
        counts = counts[np.isfinite(counts)]
        last = counts.max()
        due = 12 * np.arange(len(counts))
        inside = due <= last
        # The first update by which they are used: 3 and 1 divide 12, and so does 4.
        assert (counts[inside] == due[inside]).all()
        assert (counts[~inside] == last).all()


def test_all_arms_and_worlds_share_their_random_numbers() -> None:
    """The first computation of a run's first workers takes the same time everywhere."""
    found = noisy()
    start = found.isel(evaluation=0)
    assert (start.loss == start.loss.isel(world=0, arm=0)).all()
    keys = jax.random.split(jax.random.fold_in(jax.random.key(0), 0), 5)
    law = delays.exponential(1.0)
    cluster = dtjax.Cluster(n=4, delay=law)
    for run in range(3):
        alone = dtjax.simulate(keys[2 + run], cluster, policies.asp(), updates=200, until=30.0)
        asp = found.sel(world="a", arm="asp").isel(run=run)
        np.testing.assert_array_equal(asp.useful_count, alone.accounts.useful_count)
        np.testing.assert_array_equal(asp.useful, alone.accounts.useful)
    # A worker's work under BSP is a part of what it does under ASP, computation by computation.
    for world in ("a", "b"):
        bsp, asp = (found.sel(world=world, arm=arm) for arm in ("bsp", "asp"))
        assert (bsp.started <= asp.started + 1).where(bsp.started.notnull(), True).all()


def test_an_arm_alone_has_the_bits_that_it_has_beside_others() -> None:
    cluster = dtjax.Cluster(n=4, delay=delays.exponential(1.0))
    alone = compare(
        {"k": policies.k_batch_asp(3)},
        {"a": cluster},
        dtjax.task.quadratic([1.0, 0.5], noise=0.5),
        optimizer=optax.sgd,
        rates=[0.05, 0.1],
        target=0.05,
        until=30.0,
        runs=3,
        tuning_runs=2,
        window=12,
        evaluate_every=12,
        widenings=0,
        block=2,
    )
    beside = noisy().sel(world=["a"], arm=["k"]).dropna("evaluation", subset=["seconds"])
    for name in ("loss", "seconds", "gradients", "target_seconds", "rate", "useful"):
        np.testing.assert_array_equal(alone[name], beside[name])


def test_networks_are_made_from_the_bits_of_a_message() -> None:
    """One worker computes for a second and then sends its message, alone on the link."""
    cluster = dtjax.Cluster(n=1, delay=delays.deterministic(1.0))
    sign = compressors.scaled_sign()

    def links(bits: float) -> Any:
        return network.star(payload=bits, bandwidth=64.0)

    arms = {
        "dense": Arm(policies.asp(), network=links),
        "sign": Arm(policies.asp(), sign, links),
        "free": policies.asp(),
    }
    task = dtjax.task.quadratic(np.ones(8))
    bits = {"dense": 256.0, "sign": float(sign.bits(np.zeros(8, np.float32)))}
    settings: dict[str, Any] = LINEAR | {"widenings": 0, "target": 1.0}
    found = compare(arms, cluster, task, rates=[0.1], **settings)
    for arm, size in bits.items():
        one = found.sel(world="cluster", arm=arm)
        made = int(one.update_count[0])
        assert made == math.floor(40.5 / (1.0 + size / 64.0))
        assert float(one.bits_sent[0]) == made * size
    assert int(found.sel(arm="free").update_count[0, 0]) == 40


def test_equal_schedules_with_several_payloads_train_once() -> None:
    """Under BSP a link changes the seconds and not the rows: the curves are the same."""
    cluster = dtjax.Cluster(n=2, delay=delays.exponential(1.0))

    def arm(bandwidth: float) -> Arm:
        return Arm(
            policies.bsp(), network=lambda bits: network.star(payload=bits, bandwidth=bandwidth)
        )

    seen: list[tuple[int, int]] = []
    settings: dict[str, Any] = LINEAR | {"until": None, "gradients": 40, "widenings": 0}
    task = dtjax.task.quadratic([1.0, 0.5], noise=0.1)
    found = compare(
        {"fast": arm(1e6), "slow": arm(1e1)},
        cluster,
        task,
        rates=[0.1],
        progress=lambda done, planned: seen.append((done, planned)),
        **settings,
    )
    fast, slow = found.sel(arm="fast"), found.sel(arm="slow")
    np.testing.assert_array_equal(fast.loss, slow.loss)
    assert (fast.seconds <= slow.seconds).all() and float(slow.seconds.max()) > 100
    assert int(found.gradients.max()) == 40
    assert seen[-1] == (2 * 3 * 40, 2 * 3 * 40)


def test_runs_that_never_reach_the_target_are_censored() -> None:
    cluster = dtjax.Cluster(n=2, delay=delays.deterministic(1.0))
    task = dtjax.task.quadratic([1.0])
    arms = {"bsp": policies.bsp(), "asp": policies.asp()}
    settings: dict[str, Any] = LINEAR | {"until": 3.0, "widenings": 0}
    found = compare(arms, cluster, task, rates=[0.01], **settings)
    assert np.isinf(found.target_seconds).all()
    text = dtjax.report(found)
    assert text.count("not reached (0 of 2 runs)") == 2
    assert "no arm reaches loss 0.01 in half of its runs" in text


BAD = [
    ({"arms": {}}, "arms must be a mapping of names to arms, not empty"),
    ({"arms": [policies.bsp()]}, "arms must be a mapping"),
    ({"arms": {"x": 3}}, "policy must be a policy"),
    ({"cluster": {}}, "cluster must not be empty"),
    ({"cluster": 3}, "cluster must be a dtjax.Cluster"),
    ({"rates": [0.1, -1.0]}, r"rates must be positive and finite, got -1\.0"),
    ({"rates": []}, "rates must not be empty"),
    ({"measure": "los"}, "measure must be one of loss .did you mean 'loss'.*'los'"),
    ({"tuning_measure": "x"}, "tuning_measure must be one of loss"),
    ({"until": None}, "until or gradients must be given"),
    ({"until": 0.0}, r"until must be positive and finite, got 0\.0"),
    ({"until": 0.5}, "until must be long enough for an update of 'bsp'"),
    ({"until": None, "gradients": 1}, "gradients must be at least the 2 of an update of 'bsp'"),
    ({"runs": 0}, "runs must be an integer 1 or more"),
    ({"window": -1}, "window must be an integer 0 or more"),
    ({"optimizer": 0.1}, "optimizer of 'bsp' must be a function from a learning rate"),
    ({"target": math.nan}, "target must be finite"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD, ids=[str(list(w)) for w, _ in BAD])
def test_bad_comparisons(wrong: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "arms": {"bsp": policies.bsp()},
        "cluster": dtjax.Cluster(n=2, delay=delays.deterministic(1.0)),
        "task": dtjax.task.quadratic([1.0]),
        "rates": [0.1],
    }
    with pytest.raises(ValueError, match=message):
        compare(**good | LINEAR | wrong)
