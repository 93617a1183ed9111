"""Harmonic numbers and order statistics: exact fractions, closed forms, quadrature.

The few Monte Carlo checks have fixed seeds and accept 5 standard errors: another seed makes a
correct program fail one with probability 6e-7.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from dtjax import theory
from theory_laws import Exponential, Pareto, Uniform, Weibull, discrete

EULER = 0.57721566490153286061


def discrete_moments(law, n, k):
    """Mean and variance of X_(k:n) of a discrete law from the Beta law's distribution function."""
    weight = -np.diff(special.betainc(n - k + 1, k, np.append(1.0, law.beyond)))
    mean = weight @ law.values
    return mean, weight @ (law.values - mean) ** 2


# Harmonic numbers


def exact(first, last, power=1):
    return float(sum(Fraction(1, i**power) for i in range(first, last + 1)))


def test_harmonic_numbers_are_exact_to_rounding():
    m = np.arange(0, 301)
    expected = [exact(1, int(i)) for i in m]
    np.testing.assert_allclose(theory.harmonic(m), expected, rtol=5e-16, atol=0)
    assert theory.harmonic(64) == pytest.approx(4.744, abs=5e-4)
    assert theory.harmonic(0) == 0.0


@pytest.mark.parametrize("m", [10**9, 10**15, 2**70, 1e300])
def test_harmonic_numbers_of_huge_arguments(m):
    expected = math.log(m) + EULER + 1 / (2 * m)
    assert theory.harmonic(m) == pytest.approx(expected, rel=4e-16)


@pytest.mark.parametrize("n", [1, 2, 19, 20, 21, 40, 41, 300])
def test_harmonic_difference_is_exact_to_rounding(n):
    k = np.arange(0, n + 1)
    expected = [exact(n - i + 1, n) for i in map(int, k)]
    np.testing.assert_allclose(theory.harmonic_difference(n, k), expected, rtol=1e-15, atol=0)


def test_harmonic_difference_does_not_cancel():
    for n in (10**6, 10**12, 10**15):
        expected = float(Fraction(1, n) + Fraction(1, n - 1) + Fraction(1, n - 2))
        assert theory.harmonic_difference(n, 3) == pytest.approx(expected, rel=1e-15)
    assert theory.harmonic_difference(10**9, 10**9) == pytest.approx(theory.harmonic(10**9))


def test_harmonic_limit():
    assert theory.harmonic_limit(0.75) == pytest.approx(math.log(4), rel=1e-15)
    assert theory.harmonic_limit(0.0) == 0.0
    assert theory.harmonic_limit(1.0) == math.inf
    n = 4 * 10**8
    gap = theory.harmonic_limit(0.75) - theory.harmonic_difference(n, 3 * n // 4)
    assert gap == pytest.approx(0.75 / (2 * n * 0.25), rel=1e-4)


# Closed forms


def test_published_numbers():
    mean = theory.exponential_order_statistic_mean
    variance = theory.exponential_order_statistic_variance
    assert mean(8, [4, 8]) == pytest.approx([0.6345, 2.7179], abs=5e-5)
    assert variance(8, [4, 8]) == pytest.approx([0.1038, 1.5274], abs=5e-5)
    assert mean(64, 64) == pytest.approx(4.744, abs=5e-4)
    assert mean(8, 4, per_second=2.0, shift=3.0) == pytest.approx(3 + 0.6345 / 2, abs=5e-5)


CASES = [(1, 1), (2, 1), (8, 4), (8, 8), (64, 1), (64, 40), (64, 64), (10**6, 10**6), (10**6, 10)]
CASES += [(10**6, 5 * 10**5), (10**6, 999_900)]


@pytest.mark.parametrize(("n", "k"), CASES)
def test_quadrature_agrees_with_closed_forms(n, k):
    noise = 1e-13 + 1e-16 * n / k  # levels near 1 are rounded before the law sees them
    pairs = [
        (
            Exponential(2.0, 0.5),
            theory.exponential_order_statistic_mean(n, k, 2.0, 0.5),
            theory.exponential_order_statistic_variance(n, k, 2.0),
        ),
        (
            Uniform(1.0, 3.0),
            theory.uniform_order_statistic_mean(n, k, 1.0, 3.0),
            theory.uniform_order_statistic_variance(n, k, 1.0, 3.0),
        ),
        *(
            (
                Pareto(shape, 2.0),
                theory.pareto_order_statistic_mean(n, k, shape, 2.0),
                theory.pareto_order_statistic_variance(n, k, shape, 2.0),
            )
            for shape in (0.7, 1.01, 1.1, 2.0, 3.0)
        ),
    ]
    for law, mean, variance in pairs:
        assert theory.order_statistic_mean(law, n, k) == pytest.approx(mean, rel=noise)
        # A law far from 0 rounds its times: 1e-16 x mean against the standard deviation.
        rounding = 0.0 if variance == math.inf else 1e-15 * mean / math.sqrt(variance)
        got = theory.order_statistic_variance(law, n, k)
        assert got == pytest.approx(variance, rel=1e-12 + 10 * noise + 10 * rounding)


def test_pareto_moments_are_gamma_ratios_and_finite_only_where_they_exist():
    n, k, shape = 12, 9, 2.5
    for order in (-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 9.9):
        c = order / shape
        logs = special.gammaln([n + 1, n - k + 1 - c, n - k + 1, n + 1 - c])
        expected = 3.0**order * math.exp(logs[0] + logs[1] - logs[2] - logs[3])
        got = theory.pareto_order_statistic_moment(n, k, shape, 3.0, order)
        assert got == pytest.approx(expected, rel=1e-12)
    assert theory.pareto_order_statistic_moment(n, k, shape, 3.0, 10.0) == math.inf
    assert theory.pareto_order_statistic_mean(8, 8, 1.0) == math.inf
    assert theory.pareto_order_statistic_mean(8, 7, 1.0) == pytest.approx(8.0)
    assert theory.pareto_order_statistic_variance(8, 8, 2.0) == math.inf


def test_infinite_moments_are_seen_by_quadrature():
    heavy = Pareto(1.0, 1.0)
    assert theory.order_statistic_mean(heavy, 8, 8) == math.inf
    assert theory.order_statistic_mean(heavy, 8, 7) == pytest.approx(8.0, rel=1e-13)
    assert theory.order_statistic_variance(heavy, 8, 7) == math.inf
    assert theory.order_statistic_variance(heavy, 8, 8) == math.inf
    heavier = Pareto(0.4, 1.0)  # isf leaves the range of binary64 early
    assert theory.order_statistic_mean(heavier, 9, 7) == pytest.approx(
        theory.pareto_order_statistic_mean(9, 7, 0.4), rel=1e-12
    )


def test_one_worker_gives_the_law_itself():
    for law in (stats.gamma(4.0), stats.lognorm(2.0), stats.weibull_min(0.3), stats.lomax(2.5)):
        assert theory.order_statistic_mean(law, 1, 1) == pytest.approx(law.mean(), rel=1e-13)
        assert theory.order_statistic_variance(law, 1, 1) == pytest.approx(law.var(), rel=1e-12)


# Laws with jumps


@pytest.mark.parametrize("n, k", [(1, 1), (8, 4), (64, 64), (1000, 900)])
def test_laws_with_jumps(n, k):
    rng = np.random.default_rng(0)
    laws = [
        discrete([2.0, 5.0, 7.0], [0.3, 0.3, 0.4]),
        discrete([1.0, 1e6], [0.9999, 0.0001]),  # rare and enormous
        discrete(np.sort(rng.exponential(size=100)), np.full(100, 1 / 100)),
    ]
    for law in laws:
        mean, variance = discrete_moments(law, n, k)
        assert theory.order_statistic_mean(law, n, k) == pytest.approx(mean, rel=1e-11)
        if variance > 1e-3 * mean**2:
            got = theory.order_statistic_variance(law, n, k)
            assert got == pytest.approx(variance, rel=1e-10)


def test_constant_times():
    law = discrete([0.1], [1.0])
    assert theory.order_statistic_mean(law, [1, 8, 10**6], [1, 4, 10**6]) == pytest.approx(0.1)
    assert theory.order_statistic_variance(law, 8, 4) < 1e-30


# Any law, no closed form


@pytest.mark.parametrize("n, k", [(5, 3), (40, 20), (64, 64)])
def test_weibull_against_monte_carlo(n, k):
    rng = np.random.default_rng(1)
    draws = np.partition(rng.weibull(0.6, (20_000, n)), k - 1, axis=1)[:, k - 1]
    law = Weibull(0.6)
    mean, variance = (
        theory.order_statistic_mean(law, n, k),
        theory.order_statistic_variance(law, n, k),
    )
    assert abs(draws.mean() - mean) < 5 * math.sqrt(variance / len(draws))
    square = (draws - mean) ** 2
    assert abs(square.mean() - variance) < 5 * square.std() / math.sqrt(len(draws))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(n=st.integers(2, 200), data=st.data(), shape=st.floats(0.4, 5.0))
def test_order_statistics_of_any_law(n, data, shape):
    k = data.draw(st.integers(1, n - 1))
    for law in (Weibull(shape), Pareto(1.0 + shape, 1.0)):
        smaller = theory.order_statistic_mean(law, n - 1, k)
        low, value, above, top = (theory.order_statistic_mean(law, n, j) for j in (1, k, k + 1, n))
        assert low <= value < above <= top
        # Leaving one of n times out at random leaves the k-th smallest of n - 1.
        assert (n - k) * value + k * above == pytest.approx(n * smaller, rel=1e-11)


def test_all_ranks_together_have_the_mean_of_the_law():
    for law in (Weibull(0.5), Exponential(1.0), Pareto(1.5, 1.0)):
        total = np.sum(theory.order_statistic_mean(law, 10, np.arange(1, 11)))
        assert total == pytest.approx(10 * float(law.mean()), rel=1e-6)  # mean in binary32


# Exponential times of unequal rates


def test_unequal_exponential_maximum():
    maximum = theory.unequal_exponential_maximum_mean
    assert maximum([4.0]) == pytest.approx(0.25)
    assert maximum([1.0, 2.0]) == pytest.approx(1 + 1 / 2 - 1 / 3)
    for n in (8, 11, 64, 1000, 10**5):
        assert maximum(np.ones(n)) == pytest.approx(theory.harmonic(n), rel=1e-13)
    rates = np.geomspace(0.01, 100.0, 10)  # subsets; one more, never last, gives the integral
    assert maximum(np.append(rates, 1e12)) == pytest.approx(maximum(rates), rel=1e-12)
    assert maximum(np.append(np.full(500, 1e4), 1e-4)) == pytest.approx(1e4, rel=1e-12)
