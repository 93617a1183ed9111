"""Delay laws that remember, that workers share, that replay a log, and wrappers.

Keys are fixed. Means are compared to 5 standard errors and distributions at a level of 1e-6.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import dtjax
from dtjax import delays, policies
from dtjax.core import random
from dtjax.theory import order_statistic_mean, order_statistic_variance
from law_samples import LEVEL, example, sample
from theory_laws import within


def test_autoregressive_memory() -> None:
    law = delays.autoregressive(delays.log_normal(2.0, 0.5), 0.7)
    logs = np.log(sample(law, 64, n=1000) / 2.0) / 0.5
    for lag in (0, 1, 2, 5):
        products = (logs[:, : 64 - lag] * logs[:, lag:]).mean(1)
        assert within(products, 0.7**lag)
    for step in (0, 63):
        assert stats.kstest(logs[:, step], "norm").pvalue > LEVEL


def test_regimes_share_and_length() -> None:
    law = delays.regimes(delays.deterministic(1.0), factor=5.0, enter=0.05, leave=0.2)
    slow = sample(law, 200, n=1000) == 5.0
    for step in (0, 1, 199):  # stationary from the first step on
        assert stats.binomtest(int(slow[:, step].sum()), 1000, 0.2).pvalue > LEVEL
    ends = (slow[:, :-1] & ~slow[:, 1:]).sum()
    assert stats.binomtest(int(ends), int(slow[:, :-1].sum()), 0.2).pvalue > LEVEL
    begins = (~slow[:, :-1] & slow[:, 1:]).sum()
    assert stats.binomtest(int(begins), int((~slow[:, :-1]).sum()), 0.05).pvalue > LEVEL


def test_slowdowns_are_shared_by_group_and_by_second() -> None:
    base = delays.deterministic(1.0)
    law = delays.slowdowns(base, [0, 0, 1], period=10.0, probability=0.3, factor=4.0)
    world = random.workers(jax.random.key(3), 3).world[0]
    seconds = jnp.arange(0.0, 4000.0, 10.0) + 5.0
    slow = np.asarray(
        jax.vmap(lambda now: jax.vmap(lambda g: law.slow(world, g, now))(jnp.arange(2)))(seconds)
    )
    assert stats.binomtest(int(slow.sum()), slow.size, 0.3).pvalue > LEVEL
    both = (slow[:, 0] & slow[:, 1]).sum()
    assert stats.binomtest(int(both), len(slow), 0.09).pvalue > LEVEL
    cluster = dtjax.Cluster(3, law)
    for policy in (policies.asp(), policies.k_asp(3)):  # one structure, one compile
        run = dtjax.simulate(jax.random.key(3), cluster, policy, updates=120, width=3)
        trace = jax.tree.map(np.asarray, run.trace)
        begun = dtjax.seconds(trace)[:, None] - trace.arrival - trace.compute
        for t, j in np.argwhere(trace.valid):
            group = (0, 0, 1)[trace.worker[t, j]]
            period = int(np.floor(begun[t, j] / 10 + 1e-6))
            assert trace.compute[t, j] == (4.0 if slow[period, group] else 1.0)


# Tables and wrappers.


def test_recorded_replays_its_table_and_ends_with_nan() -> None:
    table = [[2.0, 4.0, math.nan], [5.0, 1.0, 3.0]]
    found = sample(delays.recorded(table), 5, n=2)
    expected = np.full((2, 5), np.nan)
    expected[:, :3] = table
    assert np.array_equal(found, expected, equal_nan=True)
    law = delays.recorded(table)
    assert float(law.mean()) == 3.0
    assert float(law.variance()) == 2.0


def test_means_and_variances_of_wrappers() -> None:
    base = delays.exponential(1.0, shift=0.5)
    scaled = delays.scaled(base, [1.0, 4.0])
    assert scaled.mean().tolist() == [1.5, 6.0]
    assert scaled.variance().tolist() == [1.0, 16.0]
    several = delays.per_worker([base, delays.deterministic(3.0)])
    assert several.mean().tolist() == [1.5, 3.0]
    assert several.variance().tolist() == [1.0, 0.0]
    cost = delays.batch_cost(base, [10, 20], fixed=1.0, per_example=0.5)
    assert cost.mean().tolist() == [9.0, 16.5]
    for law in (
        delays.regimes(base, factor=5.0, enter=0.05, leave=0.2),
        delays.slowdowns(base, [0], period=1.0, probability=0.2, factor=5.0),
    ):
        assert float(law.mean()) == pytest.approx(1.5 * 1.8)
        second = (1.0 + 1.5**2) * (0.8 + 0.2 * 25)
        assert float(law.variance()) == pytest.approx(second - 2.7**2)


@pytest.mark.parametrize("name", ["regimes", "slowdowns", "autoregressive", "scaled", "per_worker"])
def test_first_draws_have_the_mean_and_variance_of_the_law(name: str) -> None:
    """Over runs, where steps of one run depend on each other."""
    law = example(name)
    n = law.workers or 1

    def first(key: jax.Array) -> jax.Array:
        workers = random.workers(key, n)
        return jax.vmap(lambda w: law.draw(law.init(w), w, jnp.int32(0), jnp.zeros(()))[1])(workers)

    found = np.asarray(jax.jit(jax.vmap(first))(jax.random.split(jax.random.key(5), 20_000)), float)
    mean, variance = np.asarray(law.mean(), float), np.asarray(law.variance(), float)
    assert within(found, mean)
    assert within((found - mean) ** 2, variance)


def test_marginals_of_mixtures() -> None:
    law = delays.regimes(delays.exponential(1.0), factor=5.0, enter=0.05, leave=0.2)
    assert float(order_statistic_mean(law, 1, 1)) == pytest.approx(1.8, rel=1e-6)
    assert float(order_statistic_variance(law, 1, 1)) == pytest.approx(float(law.variance()), 1e-5)
