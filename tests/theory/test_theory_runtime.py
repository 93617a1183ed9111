"""Seconds per update and speed-ups: published numbers, limits, an event loop.

Monte Carlo checks have fixed seeds and accept 5 standard errors of independent samples: another
seed makes a correct program fail one number with probability 6e-7.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dtjax import theory
from theory_laws import Exponential, Moments, Pareto, exponential, simulate, within

# Synchronous policies


def test_bsp_and_k_bsp():
    law = Exponential(1.0)
    assert theory.bsp_seconds(law, [1, 8, 64]) == pytest.approx([1.0, 2.717857, 4.743891], abs=1e-6)
    assert theory.k_bsp_seconds(law, 8, [4, 8]) == pytest.approx([0.6345, 2.7179], abs=5e-5)
    assert theory.k_bsp_seconds(Pareto(2.0), 20, [15, 19]) * 2000 == pytest.approx(
        [3926, 7976], rel=1e-4
    )
    run = simulate(exponential(0), n=6, k=4, updates=4000, distinct=True, cancel=True)
    assert within(np.diff(run.times, prepend=0.0), theory.k_bsp_seconds(law, 6, 4))
    assert all(s == theory.synchronous_mean_staleness(6, 4) for row in run.used for _, s in row)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (4, 1), (4, 3), (3, 7)])
def test_k_batch_bsp_exponential(n, k):
    run = simulate(exponential(1), n, k, updates=3000, cancel=True)
    seconds = np.diff(run.times, prepend=0.0)
    mean = theory.exponential_k_batch_bsp_seconds(n, k)
    assert within(seconds, mean)
    assert within((seconds - mean) ** 2, theory.exponential_k_batch_bsp_variance(n, k))
    test = stats.kstest(seconds, lambda t: theory.exponential_k_batch_bsp_cdf(t, n, k))
    assert test.pvalue > 1e-6
    assert theory.exponential_k_batch_bsp_seconds(n, k, 4.0) == pytest.approx(k / (4 * n))


@pytest.mark.parametrize(("n", "k"), [(1, 1), (4, 1), (4, 4), (4, 6), (3, 7), (5, 2)])
def test_constant_times_exactly(n, k):
    run = simulate(lambda p: 1.5, n, k, updates=7, cancel=True)
    seconds = theory.deterministic_k_batch_bsp_seconds(n, k, 1.5)
    np.testing.assert_array_equal(run.times, seconds * np.arange(1, 8))
    run = simulate(lambda p: 1.5, n, k, updates=20)
    expected = theory.deterministic_k_batch_asp_seconds(n, k, np.arange(1, 21), 1.5)
    np.testing.assert_array_equal(run.times, expected)


# Asynchronous policies


def test_long_run_rates():
    assert theory.asp_seconds(Exponential(2.0), 8) == pytest.approx(1 / 16)
    assert theory.k_batch_asp_seconds(Exponential(2.0), 8, [1, 4]) == pytest.approx([1 / 16, 0.25])
    rate = theory.unequal_asp_updates_per_second
    assert rate([2.0, 5.0, 7.0]) == pytest.approx(1 / 2 + 1 / 5 + 1 / 7, rel=1e-15)
    assert rate(np.full(8, 0.5), k=4) == pytest.approx(4.0)
    run = simulate(lambda p: (2.0, 5.0, 7.0)[p], n=3, k=1, updates=59 * 10)
    assert run.times[-1] == 700.0  # 59 arrivals in each 70 seconds
    runs = [simulate(exponential(s), n=5, k=3, updates=40).times for s in range(300)]
    expected = theory.k_batch_asp_seconds(Exponential(1.0), 5, 3) * np.arange(1, 41)
    assert within(np.array(runs)[:, [0, 9, 39]], expected[[0, 9, 39]])


def superposed(draws, count):
    """Time of arrival `count` of n renewal processes that start together; draws [runs, n, m]."""
    return np.sort(np.cumsum(draws, axis=2).reshape(len(draws), -1), axis=1)[:, count - 1]


@pytest.mark.parametrize("shape", [0.5, 1.0, 4.0])
def test_fresh_start(shape):
    n, k, updates = 5, 3, 20
    draws = np.random.default_rng(2).gamma(shape, size=(8000, n, 60))
    law = Moments(shape, shape)
    expected = theory.fresh_start_k_batch_asp_seconds(law, n, k, updates)
    assert within(superposed(draws, k * updates), expected)
    transient = expected - updates * theory.k_batch_asp_seconds(law, n, k)
    assert np.sign(transient) == np.sign(shape - 1)
    assert theory.fresh_start_k_batch_asp_seconds(law, 1, 1, 9) == pytest.approx(9 * shape)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (6, 1), (6, 4), (6, 6)])
def test_k_asp_exponential(n, k):
    run = simulate(exponential(3), n, k, updates=4000, distinct=True)
    seconds = np.diff(run.times, prepend=0.0)
    expected = theory.exponential_k_asp_seconds(n, k)
    assert within(seconds, expected)
    assert expected == pytest.approx(theory.exponential_order_statistic_mean(n, k))
    assert theory.exponential_k_asp_seconds(n, k, 2.0) == pytest.approx(expected / 2)


# SSP


def test_ssp_in_lock_step():
    assert theory.lockstep_ssp_clock_seconds(Exponential(1.0), 8) == pytest.approx(
        float(theory.harmonic(8)), rel=1e-13
    )
    assert theory.two_worker_ssp_clocks_per_second(0) == pytest.approx(1 / theory.harmonic(2))
    runs = [simulate(exponential(s), 4, 1, updates=400, bound=0).times[-1] for s in range(40)]
    assert within(np.array(runs) / 100, theory.harmonic(4))


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_ssp_with_two_exponential_workers(bound):
    # The stationary law of the difference of completed counts, by a linear solve.
    size = 2 * bound + 3
    jump = np.zeros((size, size))
    for d in range(size):
        up, down = (d < size - 1), (d > 0)
        if up:
            jump[d, d + 1] += 1.0
        if down:
            jump[d, d - 1] += 1.0
        jump[d, d] -= up + down
    system = np.vstack([jump.T, np.ones(size)])
    law = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0]
    idle = (law[0] + law[-1]) / 2
    assert theory.two_worker_ssp_idle_fraction(bound) == pytest.approx(idle, rel=1e-12)
    rate = theory.two_worker_ssp_clocks_per_second(bound, 3.0)
    assert rate == pytest.approx(3 * (1 - idle), rel=1e-12)
    rng = np.random.default_rng(4)
    times = iter(rng.exponential(size=61_000))
    rows, warm = [], 200
    for _ in range(30):
        run = simulate(lambda p: next(times), 2, 1, updates=2000, bound=bound)
        stale = [row[0][1] for row in run.used[warm:]]
        rows.append([np.mean(stale), run.waiting / (2 * run.times[-1])])
    expected = [theory.two_worker_ssp_mean_staleness(bound), idle]
    error = np.abs(np.mean(rows, axis=0) - expected)
    assert np.all(error < 5 * np.std(rows, axis=0) / math.sqrt(30) + 0.002)  # a start's share


def test_ssp_without_a_bound_is_asp():
    assert theory.two_worker_ssp_clocks_per_second(math.inf, 2.0) == 2.0
    assert theory.two_worker_ssp_idle_fraction(math.inf) == 0.0
    assert theory.two_worker_ssp_mean_staleness(math.inf) == theory.asp_mean_staleness(2)
    assert theory.ssp_staleness_bound(2, math.inf) == math.inf
    assert theory.ssp_staleness_bound(1, math.inf) == 0.0


# Speed-ups


@pytest.mark.parametrize(
    ("n", "expected"),
    [(8, (21.74, 14.87, 20.37)), (20, (71.95, 45.98, 79.76)), (40, (171.1, 105.6, 224.9))],
)
def test_published_speedups(n, expected):
    digits = 0.05 if n == 40 else 0.005
    laws = (Exponential(1.0), Exponential(1.0, 1.0), Pareto(2.0))
    for law, number in zip(laws, expected, strict=True):
        updates = theory.asp_over_bsp_update_speedup(law, n)
        assert updates == pytest.approx(number, abs=digits)
        gradients = theory.asp_over_bsp_gradient_speedup(law, n)
        assert gradients == pytest.approx(updates / n, rel=1e-14)
        assert theory.bsp_utilisation(law, n) == pytest.approx(1 / gradients, rel=1e-14)


def test_speedups_over_many_sizes_at_once():
    n = np.array([1, 2, 8])
    assert theory.asp_over_bsp_update_speedup(Exponential(3.0), n) == pytest.approx(
        n * theory.harmonic(n)
    )
    assert theory.bsp_utilisation(Exponential(3.0), 1) == pytest.approx(1.0)
