"""Staleness: laws, means, conserved sums and the SSP bound against an event loop.

Monte Carlo checks have fixed seeds and accept 5 standard errors of independent samples: another
seed makes a correct program fail one number with probability 6e-7.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtjax import theory
from theory_laws import exponential, simulate, within


def frequencies(size, runs, **policy):
    """Frequency of each staleness below `size` and the mean, one row a run, after warm-up."""
    rows = []
    for seed in range(runs):
        run = simulate(exponential(seed), updates=260, **policy)
        stale = np.array([s for row in run.used[60:] for _, s in row])
        rows.append([*(np.mean(stale == j) for j in range(size)), stale.mean()])
    return rows


def test_asp_staleness_law():
    rows = frequencies(8, 80, n=4, k=1)
    law = theory.exponential_asp_staleness_pmf(np.arange(8), 4)
    assert within(rows, [*law, theory.asp_mean_staleness(4)])


@pytest.mark.parametrize(("n", "k"), [(6, 2), (5, 4), (3, 3)])
def test_k_asp_staleness_law(n, k):
    rows = frequencies(4, 80, n=n, k=k, distinct=True)
    law = theory.exponential_k_asp_staleness_pmf(np.arange(4), n, k)
    assert within(rows, [*law, theory.k_asp_mean_staleness(n, k)])


@pytest.mark.parametrize(("n", "k"), [(4, 3), (6, 2), (2, 5)])
def test_k_batch_asp_staleness_law(n, k):
    rows = frequencies(4, 80, n=n, k=k)
    law = theory.exponential_k_batch_asp_staleness_pmf(np.arange(4), n, k)
    assert within(rows, [*law, theory.k_batch_asp_mean_staleness(n, k)])


@settings(max_examples=50, deadline=None, derandomize=True)
@given(n=st.integers(1, 40), k=st.integers(1, 40))
def test_staleness_laws_add_up(n, k):
    j = np.arange(4000)
    laws = [
        (theory.exponential_asp_staleness_pmf(j, n), theory.asp_mean_staleness(n)),
        (theory.exponential_k_batch_asp_staleness_pmf(j, n, k), (n - 1) / k),
    ]
    if k <= n:
        laws.append((theory.exponential_k_asp_staleness_pmf(j, n, k), (n - k) / k))
    for law, mean in laws:
        assert np.all(law >= 0)
        assert law.sum() == pytest.approx(1.0, rel=1e-12)
        assert law @ j == pytest.approx(mean, rel=1e-10, abs=1e-12)
    by_definition = np.zeros(50)  # floor((phi + A) / k), A geometric
    others = theory.exponential_asp_staleness_pmf(np.arange(50 * k + k), n)
    for phi in range(k):
        at = (phi + np.arange(len(others))) // k
        by_definition += np.bincount(at, others, minlength=50)[:50] / k
    np.testing.assert_allclose(laws[1][0][:49], by_definition[:49], rtol=1e-10, atol=1e-15)


def test_k_batch_asp_law_of_one_gradient_is_asps():
    j = np.arange(30)
    np.testing.assert_allclose(
        theory.exponential_k_batch_asp_staleness_pmf(j, 7, 1),
        theory.exponential_asp_staleness_pmf(j, 7),
        rtol=1e-13,
    )


def test_unequal_workers_under_asp():
    rates = np.array([1.0, 2.0, 5.0])
    expected = theory.unequal_asp_mean_staleness(rates)
    assert expected == pytest.approx(rates.sum() / rates - 1)
    assert rates / rates.sum() @ expected == pytest.approx(theory.asp_mean_staleness(3))
    rng = np.random.default_rng(5)
    for draw in (exponential(6, rates), lambda p: rng.gamma(4.0) / (4.0 * rates[p])):
        rows = []
        for _ in range(40):
            used = [row[0] for row in simulate(draw, 3, 1, updates=1000).used[200:]]
            rows.append([np.mean([s for p, s in used if p == q]) for q in range(3)])
        assert within(rows, expected)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 7), k=st.integers(1, 9), updates=st.integers(0, 30), seed=st.integers(0, 999)
)
def test_staleness_is_conserved_in_every_run(n, k, updates, seed):
    rng = np.random.default_rng(seed)
    tied = lambda p: float(rng.integers(1, 5))  # noqa: E731
    heavy = lambda p: rng.pareto(0.8)  # noqa: E731
    for draw in (tied, heavy):
        run = simulate(draw, n, k, updates)
        total = sum(s for row in run.used for _, s in row) + run.lags
        assert total == theory.asp_staleness_sum(n, updates)
        run = simulate(draw, n, min(k, n), updates, distinct=True)
        total = sum(s for row in run.used for _, s in row) + run.lags
        assert total == theory.k_asp_staleness_sum(n, min(k, n), updates)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(n=st.integers(1, 6), bound=st.integers(0, 3), seed=st.integers(0, 2**32 - 1))
def test_ssp_staleness_stays_within_its_bound(n, bound, seed):
    rng = np.random.default_rng(seed)
    run = simulate(lambda p: rng.pareto(1.1) + 0.01, n, 1, updates=60, bound=bound)
    assert max(s for row in run.used for _, s in row) <= theory.ssp_staleness_bound(n, bound)


@pytest.mark.parametrize("bound", [0, 1, 2, 5])
def test_ssp_staleness_bound_is_reached(bound):
    # Worker 1 gets as far ahead as it may and starts a long computation; worker 0 passes it.
    seconds = {0: [1.0] * 99, 1: [0.01] * bound + [100.0] * 99}
    run = simulate(lambda p: seconds[p].pop(0), 2, 1, updates=5 * bound + 9, bound=bound)
    assert max(s for row in run.used for _, s in row) == theory.ssp_staleness_bound(2, bound)
