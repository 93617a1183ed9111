"""Second moments of SGD on quadratics under each policy: exact sums, brute force, limits.

The trainer is held against them in `test_theory_frontier.py`.

Samples are compared by intervals of `Z` standard errors with fixed seeds: of about 300 comparisons
one would fail by chance with probability 2e-4 (P(|z| > 5) = 6e-7).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from dtjax import theory

Z = 5.0


def assert_mean(samples: np.ndarray, expected: Any) -> None:
    """Hold the mean over the first axis against its expectation."""
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    off = np.abs(samples.mean(axis=0) - expected)
    assert (off <= Z * error + 1e-12).all(), (off / (error + 1e-300)).max()


# Random staleness: every sequence of deliveries, weighted; the noises are separate coordinates.

Coefficients = np.ndarray  # f[1 + gradients]: of the start, and of each noise


def square(w: Coefficients, v: float) -> float:
    return float(w[0] ** 2 + v * np.sum(w[1:] ** 2))


def exact_k_asp(a: float, v: float, n: int, k: int, updates: int) -> float:
    """Average E w^2 over all sequences of sets of k workers."""
    sets = list(itertools.combinations(range(n), k))
    total, size = 0.0, 1 + updates * k
    for sequence in itertools.product(sets, repeat=updates):
        w = np.eye(1, size)[0]
        read, noise = [w] * n, 0
        for chosen in sequence:
            change = np.zeros(size)
            for worker in chosen:
                noise += 1
                change += a * read[worker] + np.eye(1, size, noise)[0]
            w = w - change / k
            for worker in chosen:
                read[worker] = w
        total += square(w, v)
    return total / len(sets) ** updates


def exact_k_batch_asp(a: float, v: float, n: int, k: int, updates: int) -> float:
    """Average E w^2 over all sequences of arrivals."""
    total, size = 0.0, 1 + updates * k
    for sequence in itertools.product(range(n), repeat=updates * k):
        w = np.eye(1, size)[0]
        read, buffer = [w] * n, np.zeros(size)
        for place, worker in enumerate(sequence, 1):
            buffer = buffer + a * read[worker] + np.eye(1, size, place)[0]
            if place % k == 0:
                w, buffer = w - buffer / k, np.zeros(size)
            read[worker] = w
        total += square(w, v)
    return total / n ** (updates * k)


@pytest.mark.parametrize(("n", "k", "updates"), [(1, 1, 3), (2, 1, 5), (3, 2, 4), (4, 3, 3)])
@pytest.mark.parametrize("a", [0.3, 0.9])
def test_k_asp_against_every_sequence(n: int, k: int, updates: int, a: float) -> None:
    found = theory.exponential_k_asp_second_moments(a, n, k, updates, noise=0.7)
    expected = exact_k_asp(a, (0.7 * a) ** 2, n, k, updates)
    assert found[-1] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("n", "k", "updates"), [(1, 3, 2), (2, 1, 5), (2, 2, 3), (3, 2, 3), (2, 5, 2), (4, 3, 2)]
)
@pytest.mark.parametrize("a", [0.3, 0.9])
def test_k_batch_asp_against_every_sequence(n: int, k: int, updates: int, a: float) -> None:
    found = theory.exponential_k_batch_asp_second_moments(a, n, k, updates, noise=0.7)
    expected = exact_k_batch_asp(a, (0.7 * a) ** 2, n, k, updates)
    assert found[-1] == pytest.approx(expected, rel=1e-12)


RUNS, UPDATES = 20_000, 30


def brute_k_asp(a: float, spread: float, n: int, k: int, seed: int) -> np.ndarray:
    """Draw sets of k workers: w f[RUNS, UPDATES + 1]."""
    rng = np.random.default_rng(seed)
    read = np.ones((RUNS, n))
    found = [np.ones(RUNS)]
    for _ in range(UPDATES):
        chosen = np.argsort(rng.random((RUNS, n)), axis=1)[:, :k]
        gradients = np.take_along_axis(read, chosen, axis=1)
        gradients = gradients + spread * rng.standard_normal(gradients.shape)
        found.append(found[-1] - a * gradients.mean(axis=1))
        np.put_along_axis(read, chosen, found[-1][:, None], axis=1)
    return np.stack(found, axis=1)


def brute_k_batch_asp(a: float, spread: float, n: int, k: int, seed: int) -> np.ndarray:
    """Draw a worker an arrival: w f[RUNS, UPDATES + 1]."""
    rng = np.random.default_rng(seed)
    rows, read, buffer = np.arange(RUNS), np.ones((RUNS, n)), np.zeros(RUNS)
    found = [np.ones(RUNS)]
    for place in range(1, UPDATES * k + 1):
        worker = rng.integers(n, size=RUNS)
        buffer = buffer + read[rows, worker] + spread * rng.standard_normal(RUNS)
        if place % k == 0:
            found.append(found[-1] - a / k * buffer)
            buffer = np.zeros(RUNS)
        read[rows, worker] = found[-1]
    return np.stack(found, axis=1)


@pytest.mark.parametrize(
    ("brute", "moments", "n", "k"),
    [
        (brute_k_asp, theory.exponential_k_asp_second_moments, 8, 3),
        (brute_k_asp, theory.exponential_k_asp_second_moments, 5, 4),
        (brute_k_asp, theory.exponential_k_asp_second_moments, 6, 1),
        (brute_k_batch_asp, theory.exponential_k_batch_asp_second_moments, 8, 3),
        (brute_k_batch_asp, theory.exponential_k_batch_asp_second_moments, 3, 5),
    ],
)
def test_moments_against_brute_force(brute: Any, moments: Any, n: int, k: int) -> None:
    for a in (0.2, 0.4):
        found = moments(a, n, k, UPDATES, noise=0.5)
        assert_mean(brute(a, 0.5, n, k, seed=n) ** 2, found)


# Limits.

STEPS = np.array([0.05, 0.3, 0.9, 1.7])


def test_policies_that_are_the_same() -> None:
    same = partial(np.testing.assert_allclose, rtol=1e-12)
    plain = theory.synchronous_second_moments(STEPS, 1, 20, noise=0.5)
    bsp = theory.synchronous_second_moments(STEPS, 6, 20, noise=0.5)
    asp = theory.exponential_asp_second_moments(STEPS, 6, 20, noise=0.5)
    same(theory.exponential_asp_second_moments(STEPS, 1, 20, noise=0.5), plain)
    same(theory.exponential_k_batch_asp_second_moments(STEPS, 1, 1, 20, noise=0.5), plain)
    same(theory.exponential_k_asp_second_moments(STEPS, 6, 6, 20, noise=0.5), bsp)
    same(theory.exponential_k_asp_second_moments(STEPS, 6, 1, 20, noise=0.5), asp)
    same(theory.exponential_k_batch_asp_second_moments(STEPS, 6, 1, 20, noise=0.5), asp)
    same(theory.constant_delay_second_moments(STEPS, 0, 20, noise=0.5), plain)


def test_the_mean_of_many_batches_is_that_of_no_staleness() -> None:
    # Of k arrivals, almost all were read at the version that they change.
    many = theory.exponential_k_batch_asp_second_moments(0.3, 3, 10_000, 10, noise=0.0)
    np.testing.assert_allclose(many, 0.7 ** (2 * np.arange(11)), rtol=3e-3)


def test_eigenvalues_and_starts_scale() -> None:
    curve, start = np.array([0.5, 2.0, 0.0]), np.array([3.0, -1.0, 2.0])
    found = theory.exponential_k_asp_second_moments(
        0.4, 5, 2, 12, eigenvalue=curve, noise=0.3, start=start
    )
    assert found.shape == (13, 3)
    for i in range(2):  # w eigenvalue / noise is without unit
        one = theory.exponential_k_asp_second_moments(
            0.4 * curve[i], 5, 2, 12, noise=0.3 / curve[i], start=start[i]
        )
        np.testing.assert_allclose(found[:, i], one, rtol=1e-12)
    np.testing.assert_allclose(found[:, 2], 4 + 0.16 * 0.09 / 2 * np.arange(13), rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.constant_delay_stability_edge(-1), "staleness must .* got -1"),
        (lambda: theory.constant_delay_fastest_rate(1, eigenvalue=0), "eigenvalue must .* got 0"),
        (lambda: theory.constant_delay_response(0.0, 1, 3), "rate must be positive .* got 0.0"),
        (lambda: theory.constant_delay_second_moments(0.1, 1, -2), "updates must .* got -2"),
        (lambda: theory.constant_delay_stationary_variance(0.1, 1, noise=-1), "noise must .* -1"),
        (lambda: theory.synchronous_second_moments(0.1, 0, 2), "k must .* at least 1, got 0"),
        (lambda: theory.exponential_asp_second_moments(0.1, 0, 2), "n must .* got 0"),
        (lambda: theory.exponential_k_asp_second_moments(0.1, 3, 4, 2), "1 and n=3, got 4"),
        (
            lambda: theory.exponential_k_batch_asp_second_moments(0.1, 3, 4, 2, start=math.inf),
            "start must be finite, got inf",
        ),
        (lambda: theory.exponential_k_asp_stability_edge(3, [1, 4]), "1 and n=3, got 4"),
        (lambda: theory.exponential_k_batch_asp_stability_edge(3, 0), "k must .* got 0"),
        (lambda: theory.exponential_asp_stationary_variance(-0.1, 3), "rate must .* got -0.1"),
    ],
)
def test_bad_input(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
