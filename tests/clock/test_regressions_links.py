"""What a review of links found, and the compiler: each was wrong once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dtjax
from dtjax import delays, network, policies
from dtjax.clock.status import DONE, EXHAUSTED

KEY = jax.random.key(0)


@pytest.mark.parametrize("collect", ["trace", pytest.param("statistics", marks=pytest.mark.slow)])
def test_many_lanes_notice_a_missing_time(collect: Any) -> None:
    """Compiled for hundreds of lanes on CPU, a minimum may drop NaN."""
    n, lanes = 5, 400
    tables = np.random.default_rng(0).integers(1, 48, (lanes, n, 40)) / 16
    tables[::7, 0, 9:] = np.nan
    nets = [network.fixed(latency=np.arange(n) / 8), None]
    assert nets[0] is not None and not nets[0].ordered
    for net in nets if collect == "trace" else nets[1:]:

        def one(table: jax.Array, net: Any = net) -> Any:
            cluster = dtjax.Cluster(n, delays.recorded(table), network=net)
            run = dtjax.simulate(KEY, cluster, policies.asp(), updates=60, collect=collect)
            return run.status, run.accounts.updates

        many = jax.jit(jax.vmap(one))(jnp.asarray(tables, jnp.float32))
        few = jax.jit(jax.vmap(one))(jnp.asarray(tables[:8], jnp.float32))
        for a, b in zip(many, few, strict=True):
            assert np.array_equal(a[:8], b)
        assert (np.asarray(many[0]) == np.where(np.arange(lanes) % 7 == 0, EXHAUSTED, DONE)).all()


def test_unequal_shards_need_no_second_event() -> None:
    """Each ingress keeps the order, so the last shards do, however long they are."""
    push = np.random.default_rng(1).uniform(0.01, 0.4, (6, 3))
    one = network.fixed(push=push, latency=0.1, fold=0.02)
    assert one.ordered and not network.fixed(push=push * (push > 0.1)).ordered
    times = []
    for net in (one, replace(one, ordered=False)):
        cluster = dtjax.Cluster(6, delays.exponential(1.0), network=net)
        run = dtjax.simulate(KEY, cluster, policies.k_asp(2), updates=60)
        times.append((np.asarray(run.trace.worker), dtjax.seconds(run.trace)))
    assert np.array_equal(times[0][0], times[1][0])
    np.testing.assert_allclose(times[0][1], times[1][1], rtol=1e-5)


def test_a_step_without_payload_ties_by_worker() -> None:
    net = network.star(payload=[1.0, 0.0], bandwidth=1.0)
    assert not net.ordered
    table = np.array([[1.0, 1.5, 9.0], [3.0, 9.0, 9.0]], np.float32)
    cluster = dtjax.Cluster(2, delays.recorded(table), network=net)
    run = dtjax.simulate(KEY, cluster, policies.asp(), updates=3)
    assert run.trace.worker[:, 0].tolist() == [0, 0, 1]


@pytest.mark.parametrize("change", [0.0, 64.0])
def test_the_first_pull_is_the_whole_model(change: float) -> None:
    net = network.star(payload=0.0, bandwidth=1e9, pull=3.2e9, pull_change=change)
    cluster = dtjax.Cluster(2, delays.deterministic(1.0), network=net)
    run = dtjax.simulate(KEY, cluster, policies.bsp(), updates=3)
    np.testing.assert_allclose(run.trace.dt, [4.2, 1 + change / 1e9, 1 + change / 1e9], rtol=1e-6)


def test_a_pull_has_the_latency_of_its_worker() -> None:
    net = network.star(payload=0.0, bandwidth=1.0, latency=[0.0, 0.0, 9.0], pull=0.0)
    present = [True, True, False]
    cluster = dtjax.Cluster(3, delays.deterministic(1.0), network=net, present=present)
    run = dtjax.simulate(KEY, cluster, policies.bsp(), updates=2)
    assert run.trace.dt.tolist() == [1.0, 1.0]


def test_nobody_waits_a_negative_time_for_an_all_reduce() -> None:
    cluster = dtjax.Cluster(3, delays.deterministic(0.7), network=network.all_reduce(0.3))
    for policy in (policies.bsp(), policies.k_asp(3)):
        accounts = dtjax.simulate(KEY, cluster, policy, updates=500).accounts
        assert (np.asarray(accounts.waiting) >= 0).all()
        np.testing.assert_allclose(accounts.communicating, 150.0, rtol=1e-4)
