"""Means and variances on quadratics are those of closed forms, in binary64.

Samples are compared by intervals of `Z` standard errors with fixed keys. There are fewer than 500
comparisons, so that one of them would fail by chance with probability 1e-6 (P(|z| > 6) = 2e-9).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dtjax
from dtjax import policies
from dtjax.training.task import quadratic

Z = 6.0
N, UPDATES, RUNS = 6, 48, 1024
EDGE = (1 + math.sqrt(1 + 8 * N)) / (2 * N)  # of mean-square stability under ASP
# Coordinates: without noise, two of them just inside and outside of the edge; with noise.
QUIET = (0.1, 0.3, 0.6, 0.8 * EDGE, 1.3 * EDGE)
NOISY = (0.2, 0.5)
SPREAD = 0.5
# Later on, without noise, the moments are those of rare runs in which a worker is very late.
EARLY = slice(0, 16)
RULES = {
    "asp": policies.asp(),
    "k-asp 2": policies.k_asp(2),
    "k-asp 4": policies.k_asp(4),
    "k-asp 6": policies.k_asp(N),
    "bsp": policies.bsp(),
    "k-bsp 2": policies.k_bsp(2),
    "k-batch-bsp 3": policies.k_batch_bsp(3),
}


@pytest.fixture(autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def parameters(problem: dtjax.Task) -> dtjax.Task:
    """Measure the parameters themselves."""
    return replace(problem, evaluate=lambda data, w: {"w": w})


@cache
def walks() -> dict[str, np.ndarray]:
    """Train many runs under each rule from w = 1 with rate 1: w after each update, f[R, T + 1, d].

    The rules share the runs' keys; samples are compared with a number, never with one another.
    """
    with jax.enable_x64(True):
        cluster = dtjax.Cluster(n=N, delay=dtjax.delays.exponential(1.0))
        noise = [0.0] * len(QUIET) + [SPREAD] * len(NOISY)
        problem = parameters(quadratic([*QUIET, *NOISY], noise=noise))

        def one(rule: Any, key: jax.Array) -> Any:
            schedule, training = jax.random.split(key)
            run = dtjax.simulate(schedule, cluster, rule, updates=UPDATES, width=N)
            result = dtjax.replay(training, run.trace, problem, optax.sgd(1.0), evaluate_every=N)
            return result.measures["w"]

        keys = jax.random.split(jax.random.key(5), RUNS)
        several = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))
        found = several(policies.stack(list(RULES.values())), keys)
        return dict(zip(RULES, np.asarray(found), strict=True))


def assert_mean(samples: np.ndarray, expected: Any) -> None:
    """Hold the mean over the first axis against its expectation."""
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    off = np.abs(samples.mean(axis=0) - expected)
    assert (off <= Z * error + 1e-12).all(), (off / (error + 1e-300)).max()


def moments(a: float, v: float, updates: int, n: int = N) -> np.ndarray:
    """Iterate the second moments of exponential ASP from w = 1: E w^2, f[updates + 1]."""
    state = np.ones(4)
    matrix, drive = moment_map(a, v, n)
    found = [state[0]]
    for _ in range(updates):
        state = matrix @ state + drive
        found.append(state[0])
    return np.array(found)


def moment_map(a: float, v: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the linear map of (E w^2, E w v_i, E v_i^2, E v_i v_j), v_i worker i's version."""
    square = np.array([1.0, -2 * a, a * a, 0.0])
    mixed = np.array([0.0, 1.0, 0.0, -a])  # E w' v_j of a worker that did not deliver
    matrix = np.stack(
        [
            square,
            square / n + (1 - 1 / n) * mixed,
            square / n + np.array([0.0, 0.0, 1 - 1 / n, 0.0]),
            2 / n * mixed + np.array([0.0, 0.0, 0.0, 1 - 2 / n]),
        ]
    )
    return matrix, v * np.array([1.0, 1 / n, 1 / n, 0.0])


def radius(a: float, n: int) -> float:
    return float(np.abs(np.linalg.eigvals(moment_map(a, 0.0, n)[0])).max())


def test_asp_is_heavy_ball_in_the_mean() -> None:
    w = walks()["asp"]
    for i, a in enumerate(QUIET):
        ball = [1.0, 1.0 - a]  # momentum 1 - 1/n, step a / n
        while len(ball) <= UPDATES:
            ball.append(ball[-1] + (1 - 1 / N) * (ball[-1] - ball[-2]) - a / N * ball[-1])
        assert_mean(w[:, EARLY, i], ball[EARLY])


def test_asp_has_the_second_moments_of_the_closed_system() -> None:
    w = walks()["asp"]
    for i, a in enumerate([*QUIET, *NOISY]):
        noisy = i >= len(QUIET)
        when = slice(None) if noisy else EARLY
        assert_mean(w[:, when, i] ** 2, moments(a, SPREAD**2 * noisy, UPDATES)[when])


def test_asp_is_stable_in_mean_square_up_to_the_edge() -> None:
    for n in (2, 4, 8, 64):
        edge = (1 + math.sqrt(1 + 8 * n)) / (2 * n)
        assert radius(edge, n) == pytest.approx(1.0, abs=1e-9)
        assert radius(0.99 * edge, n) < 1.0 < radius(1.01 * edge, n)
    inside, outside = ((walks()["asp"][:, -1, i] ** 2).mean() for i in (3, 4))
    assert inside < 0.5
    assert outside > 5.0


def stationary(rule: str, a: float) -> float:
    """Return E w^2 in the long run: see each policy's line."""
    name, _, number = rule.partition(" ")
    v, n = SPREAD**2, N
    if name == "asp":
        return v * (1 + n * a) / (a * (2 + a - n * a * a))
    k = int(number or n)
    if name == "k-asp":
        g = a * (n / k) * 2 * (n - k) / (2 * n - k - 1)
        return v * (1 + g) / (a * (2 * k * (1 + g) - a * (2 * n - k + g)))
    return v / (k * a * (2 - a))  # no staleness


@pytest.mark.parametrize("rule", RULES)
def test_stationary_variance(rule: str) -> None:
    # The mean over the last updates of a run is one sample; by then the start has died away.
    for i, a in enumerate(NOISY, len(QUIET)):
        late = (walks()[rule][:, UPDATES // 2 :, i] ** 2).mean(axis=1)
        assert_mean(late, stationary(rule, a))


def test_more_gradients_an_update_take_less_noise() -> None:
    assert stationary("k-asp 6", 0.2) == pytest.approx(stationary("bsp", 0.2), rel=1e-12)
    assert stationary("asp", 0.2) > stationary("k-asp 2", 0.2) > stationary("k-asp 4", 0.2)


TAUS = (0, 1, 2, 4, 8)


def constant(rows: int) -> Any:
    """Stack traces in which every gradient is tau updates old, but for the first, a lane a tau."""
    t = np.arange(rows)[:, None]
    traces = [
        dtjax.make_trace(dt=np.ones(rows), worker=t % (tau + 1), version=np.maximum(t - tau, 0))
        for tau in TAUS
    ]
    assert [trace.slots for trace in traces] == [tau + 1 for tau in TAUS]
    same = [replace(trace, workers=max(TAUS) + 1, slots=max(TAUS) + 1) for trace in traces]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *same)


def emulated(curve: np.ndarray, spread: np.ndarray, rows: int, every: int, runs: int) -> Any:
    """Train along the constant traces with rate 1 from w = 1: w f[tau, runs, E, d].

    `curve` is f[tau, d], `spread` f[d].
    """
    problem = parameters(quadratic(curve[0], noise=spread))

    def one(trace: Any, own: Any, key: Any) -> Any:
        mine = replace(problem, data=(own, *problem.data[1:]))
        result = dtjax.replay(key, trace, mine, optax.sgd(1.0), evaluate_every=every)
        return result.measures["w"]

    keys = jax.random.split(jax.random.key(2), runs)
    several = jax.vmap(jax.vmap(one, (None, None, 0)), (0, 0, None))
    return np.asarray(jax.jit(several)(constant(rows), curve, keys))


def test_constant_staleness() -> None:
    rows, tau = 40, np.array(TAUS)[:, None]
    edge = 2 * np.sin(np.pi / (2 * (2 * tau + 1)))
    fastest = tau**tau / (tau + 1.0) ** (tau + 1)
    rates = np.concatenate([fastest, 0.7 * edge, 0.97 * edge, 1.03 * edge], axis=1)
    noise = np.array([0.0] * 4 + [SPREAD] * 4)
    w = emulated(np.tile(rates, 2), noise, rows, 1, 1024)
    for lane, late in enumerate(TAUS):
        for i, a in enumerate(rates[lane]):
            b = impulse(a, late, rows + late + 1)
            quiet = b[late:]
            np.testing.assert_allclose(w[lane, 0, :, i], quiet, rtol=1e-9, atol=1e-12)
            grown = np.concatenate([[0.0], np.cumsum(b[:rows] ** 2)])
            assert_mean(w[lane, :, :, 4 + i] ** 2, quiet**2 + SPREAD**2 * grown)


def test_constant_staleness_is_stable_up_to_its_edge() -> None:
    edge = 2 * np.sin(np.pi / (2 * (2 * np.array(TAUS) + 1)))
    np.testing.assert_allclose(edge, [2.0, 1.0, 0.61803, 0.3473, 0.18454], atol=1e-5)
    w = emulated(np.stack([0.97 * edge, 1.03 * edge], axis=1), np.zeros(2), 4000, 10**6, 1)
    inside, outside = np.abs(w[:, 0, -1]).T
    assert (inside < 1e-3).all()
    assert (outside > 1e3).all()


def impulse(a: float, tau: int, count: int) -> np.ndarray:
    """Return b_k = sum over i <= k / (tau + 1) of (-a)^i C(k - tau i, i), k < count."""
    exact = Fraction(a)  # the sum alternates
    return np.array(
        [
            float(sum((-exact) ** i * math.comb(k - tau * i, i) for i in range(k // (tau + 1) + 1)))
            for k in range(count)
        ]
    )
