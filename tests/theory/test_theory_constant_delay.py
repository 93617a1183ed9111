"""SGD of constant staleness on quadratics: exact fractions, roots, brute force.

Samples are compared by intervals of 5 standard errors with fixed seeds: of about 130 comparisons
one would fail by chance with probability 1e-4. The trainer: `test_trainer_theory.py`.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dtjax import theory
from test_theory_quadratics import assert_mean

TAUS = (0, 1, 2, 4, 8)


def test_edges_and_fastest_rates_of_constant_staleness() -> None:
    edges = theory.constant_delay_stability_edge(TAUS)
    np.testing.assert_allclose(edges, [2, 1, 0.61803, 0.3473, 0.18454], atol=5e-6)
    for tau in TAUS:
        expected = Fraction(tau**tau, (tau + 1) ** (tau + 1))
        fastest = theory.constant_delay_fastest_rate(tau, eigenvalue=4.0)
        assert fastest == pytest.approx(float(expected) / 4, rel=1e-14)
    assert theory.constant_delay_stability_edge(3, eigenvalue=[1.0, 2.0]).shape == (2,)


def companion_radius(a: float, tau: int) -> float:
    """Return the modulus of the largest root of z^(tau+1) = z^tau - a."""
    polynomial = np.zeros(tau + 2)
    polynomial[0], polynomial[1] = 1.0, -1.0
    polynomial[-1] += a
    return float(np.abs(np.roots(polynomial)).max())


@pytest.mark.parametrize("tau", TAUS)
def test_constant_staleness_against_roots(tau: int) -> None:
    edge = float(theory.constant_delay_stability_edge(tau))
    assert companion_radius(0.999 * edge, tau) < 1 < companion_radius(1.001 * edge, tau)
    fastest = float(theory.constant_delay_fastest_rate(tau))
    best = companion_radius(fastest, tau)
    assert best == pytest.approx(tau / (tau + 1), abs=1e-2)
    for factor in (0.9, 1.1):
        assert companion_radius(factor * fastest, tau) > best


@pytest.mark.parametrize("tau", TAUS)
def test_response_of_constant_staleness(tau: int) -> None:
    a = float(theory.constant_delay_stability_edge(tau)) * 0.8
    found = theory.constant_delay_response([a, 0.5 * a], tau, 60)
    for lane, value in enumerate((a, 0.5 * a)):
        exact = Fraction(value)  # the sum alternates
        for k in (0, 1, tau, tau + 1, 17, 60):
            terms = range(k // (tau + 1) + 1)
            expected = sum((-exact) ** i * math.comb(k - tau * i, i) for i in terms)
            assert found[k, lane] == pytest.approx(float(expected), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("tau", TAUS)
def test_moments_of_constant_staleness(tau: int) -> None:
    a, spread, start = 0.7 * float(theory.constant_delay_stability_edge(tau)), 0.5, 2.0
    found = theory.constant_delay_second_moments(a, tau, 25, noise=spread, start=start)
    rng, runs = np.random.default_rng(tau), 4000
    versions = [np.full(runs, start)]
    for t in range(25):
        pull = versions[max(t - tau, 0)] + spread * rng.standard_normal(runs)
        versions.append(versions[-1] - a * pull)
    assert_mean(np.stack(versions, axis=1) ** 2, found)
    limit = theory.constant_delay_stationary_variance(a, tau, noise=spread)
    late = theory.constant_delay_second_moments(a, tau, 4000, noise=spread)[-1]
    assert late == pytest.approx(float(limit), rel=1e-9)


def test_constant_staleness_at_the_ends() -> None:
    edge = theory.constant_delay_stability_edge(np.array(TAUS))
    assert np.isinf(theory.constant_delay_stationary_variance(edge * 1.0001, TAUS)).all()
    assert (theory.constant_delay_stationary_variance(edge * 0.9999, TAUS) > 100).all()
    wild = theory.constant_delay_second_moments(1e10, 3, 300, noise=[0.0, 1.0], start=1.0)
    assert not np.isnan(wild).any()
    assert np.isinf(wild[-1]).all()
    still = theory.constant_delay_second_moments(0.1, 1, 5, eigenvalue=0.0, noise=2.0, start=3.0)
    np.testing.assert_allclose(still, 9 + 0.04 * np.arange(6), rtol=1e-12)
