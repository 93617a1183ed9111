"""Stability edges and stationary variances of SGD on quadratics: spectral radii, long walks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtjax import theory
from dtjax.theory.quadratic import moment_maps


def test_edges_of_random_staleness() -> None:
    edges = theory.exponential_asp_stability_edge([2, 4, 8, 64])
    np.testing.assert_allclose(edges, [1.2808, 0.8431, 0.5664, 0.1848], atol=5e-5)
    assert theory.exponential_asp_stability_edge(1) == 2.0
    np.testing.assert_allclose(theory.exponential_k_asp_stability_edge(8, 1), edges[2], rtol=1e-14)
    batch = theory.exponential_k_batch_asp_stability_edge([1, 2, 8, 64], [3, 1, 1, 1])
    np.testing.assert_allclose(batch, [2, *edges[[0, 2, 3]]], rtol=1e-8)
    assert theory.exponential_k_asp_stability_edge(9, 9, eigenvalue=4.0) == 0.5
    assert theory.synchronous_stability_edge(eigenvalue=4.0) == 0.5


@pytest.mark.parametrize(("n", "k"), [(2, 1), (2, 2), (5, 3), (16, 3), (64, 30), (7, 6)])
def test_edges_are_where_the_radius_is_one(n: int, k: int) -> None:
    for edge, build in (
        (theory.exponential_k_asp_stability_edge(n, k), moment_maps.k_asp),
        (theory.exponential_k_batch_asp_stability_edge(n, k), moment_maps.k_batch_asp),
    ):
        near = edge * np.array([1 - 1e-4, 1.0, 1 + 1e-4])
        radius = moment_maps.radius(build(near, 0.0, n, k))
        assert radius[0] < 1 < radius[2]
        assert radius[1] == pytest.approx(1.0, abs=1e-8)
        # The stable rates are an interval from 0.
        rates = np.linspace(0.002, 3.0, 400) * edge
        stable = moment_maps.radius(build(rates, 0.0, n, k)) < 1
        np.testing.assert_array_equal(stable, rates < edge)


STATIONARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "k-asp": (
        theory.exponential_k_asp_stationary_variance,
        theory.exponential_k_asp_second_moments,
    ),
    "k-batch-asp": (
        theory.exponential_k_batch_asp_stationary_variance,
        theory.exponential_k_batch_asp_second_moments,
    ),
}


@pytest.mark.parametrize(
    ("n", "k"), [(1, 7), (2, 2), (2, 9), (3, 20), (8, 64), (8, 500), (500, 900)]
)
def test_more_batches_than_workers(n: int, k: int) -> None:
    edge = float(theory.exponential_k_batch_asp_stability_edge(n, k))
    rates = np.linspace(0.0051, 4.0, 300) * edge
    matrix = moment_maps.k_batch_asp(rates, rates**2, n, k)
    np.testing.assert_array_equal(moment_maps.radius(matrix) < 1, rates < edge)
    found = theory.exponential_k_batch_asp_stationary_variance(rates, n, k)
    np.testing.assert_allclose(found, moment_maps.fixed_point(matrix), rtol=1e-8)


@pytest.mark.parametrize("policy", STATIONARY)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (5, 3), (8, 8), (6, 2)])
def test_stationary_variance_is_where_moments_go(policy: str, n: int, k: int) -> None:
    variance, moments = STATIONARY[policy]
    a = np.array([0.1, 0.4])
    found = variance(a, n, k, eigenvalue=1.0, noise=0.5)
    late = moments(a, n, k, 1500, noise=0.5, start=3.0)[-1]
    np.testing.assert_allclose(found, late, rtol=1e-9)


def test_stationary_variances_agree_where_policies_do() -> None:
    a = np.array([0.1, 0.35, 0.9])
    asp = theory.exponential_asp_stationary_variance(a, 6, noise=0.5)
    same = partial(np.testing.assert_allclose, rtol=1e-10)
    same(theory.exponential_k_asp_stationary_variance(a, 6, 1, noise=0.5), asp)
    same(theory.exponential_k_batch_asp_stationary_variance(a, 6, 1, noise=0.5), asp)
    bsp = theory.synchronous_stationary_variance(a, 6, noise=0.5)
    same(theory.exponential_k_asp_stationary_variance(a, 6, 6, noise=0.5), bsp)
    assert np.isinf(asp[2])
    assert np.isinf(theory.synchronous_stationary_variance([2.0, 3.0], 6)).all()
    assert theory.exponential_asp_stationary_variance(0.3, 6, noise=0.0) == 0.0


@given(
    n=st.integers(1, 60),
    share=st.floats(0, 1),
    a=st.floats(1e-3, 5.0),
    spread=st.floats(0, 3),
    policy=st.sampled_from(sorted(STATIONARY)),
)
def test_never_negative_and_never_nan(
    n: int, share: float, a: float, spread: float, policy: str
) -> None:
    k = 1 + round(share * (n - 1))
    variance, moments = STATIONARY[policy]
    limit = variance(a, n, k, noise=spread)
    walk = moments(a, n, k, 15, noise=spread)
    assert limit >= 0
    assert (walk >= 0).all()
    edges = {
        "k-asp": theory.exponential_k_asp_stability_edge,
        "k-batch-asp": theory.exponential_k_batch_asp_stability_edge,
    }
    edge = edges[policy](n, k)
    if abs(a / edge - 1) > 1e-6:
        assert np.isfinite(limit) == (a < edge)


@given(n=st.integers(2, 200), a=st.floats(0.01, 1.2))
def test_fewer_gradients_an_update_leave_more_noise(n: int, a: float) -> None:
    # From 1.3 on no longer: an average over versions of different age damps.
    found = theory.exponential_k_asp_stationary_variance(a, n, np.arange(1, n + 1))
    finite = found[np.isfinite(found)]
    assert (np.diff(finite) <= 1e-12 * finite[:-1]).all()
    assert (np.diff(np.isfinite(found).astype(int)) >= 0).all()
