"""Loss against time on quadratics: the trainer and the clock, sums, exhaustive searches.

Samples are compared by intervals of `Z` standard errors with fixed keys: of about 500 comparisons
one would fail by chance with probability 3e-4 (P(|z| > 5) = 6e-7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import dtjax
from dtjax import delays, policies, theory
from dtjax.training.task import quadratic
from test_theory_quadratics import assert_mean
from theory_laws import Exponential, Pareto, Uniform

N, ROWS, RUNS = 4, 16, 512
MEAN, RATE, START, EXAMPLES = 2.0, 0.5, 1.5, 4
CURVES = (0.3, 0.8)
SPREAD = 1.0  # of a gradient of one example
POLICIES = {"bsp": None, "k-bsp": 2, "k-batch-bsp": 3, "asp": None, "k-asp": 2, "k-batch-asp": 3}
RULES = {
    "bsp": policies.bsp(),
    "k-bsp": policies.k_bsp(2),
    "k-batch-bsp": policies.k_batch_bsp(3),
    "asp": policies.asp(),
    "k-asp": policies.k_asp(2),
    "k-batch-asp": policies.k_batch_asp(3),
}
EXPECTED: dict[str, Callable[..., Any]] = {
    "bsp": partial(theory.synchronous_second_moments, k=N),
    "k-bsp": partial(theory.synchronous_second_moments, k=2),
    "k-batch-bsp": partial(theory.synchronous_second_moments, k=3),
    "asp": partial(theory.exponential_asp_second_moments, n=N),
    "k-asp": partial(theory.exponential_k_asp_second_moments, n=N, k=2),
    "k-batch-asp": partial(theory.exponential_k_batch_asp_second_moments, n=N, k=3),
}


class Trained(NamedTuple):
    square: np.ndarray  # f[RUNS, ROWS + 1, d]
    seconds: np.ndarray  # f[RUNS, ROWS + 1]


@cache
def trained() -> dict[str, Trained]:
    """Train many runs under each rule."""
    cluster = dtjax.Cluster(n=N, delay=delays.exponential(MEAN), examples=EXAMPLES)
    problem = quadratic(CURVES, noise=SPREAD, start=START)

    def one(rule: Any, key: jax.Array) -> Any:
        schedule, training = jax.random.split(key)
        run = dtjax.simulate(schedule, cluster, rule, updates=ROWS, width=N)
        result = dtjax.replay(training, run.trace, problem, optax.sgd(RATE), evaluate_every=N)
        return result.measures["square"], run.trace.dt

    keys = jax.random.split(jax.random.key(11), RUNS)
    several = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))
    square, dt = (np.asarray(x) for x in several(policies.stack(list(RULES.values())), keys))
    assert square.dtype == np.float64
    time = np.pad(np.cumsum(dt, axis=-1), ((0, 0), (0, 0), (1, 0)))
    return {name: Trained(square[i], time[i]) for i, name in enumerate(RULES)}


@pytest.fixture
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def settings() -> dict[str, Any]:
    noise = SPREAD / math.sqrt(EXAMPLES)
    return {"rate": RATE, "eigenvalues": CURVES, "noise": noise, "start": START}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_trainer_has_these_moments(policy: str, x64: None) -> None:
    noise = SPREAD / math.sqrt(EXAMPLES)
    expected = EXPECTED[policy](RATE, updates=ROWS, eigenvalue=CURVES, noise=noise, start=START)
    found = trained()[policy].square
    assert found.shape[1:] == expected.shape
    assert_mean(found, expected)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_trainer_and_the_clock_are_on_the_frontier(policy: str, x64: None) -> None:
    law = delays.exponential(MEAN)
    curve = theory.frontier(policy, law, N, POLICIES[policy], updates=ROWS, **settings())
    found = trained()[policy]
    assert curve.updates.tolist() == list(range(ROWS + 1))
    assert_mean(0.5 * found.square @ np.array(CURVES), curve.loss)
    assert_mean(found.seconds, curve.seconds)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_trainer_has_this_loss_at_seconds(policy: str, x64: None) -> None:
    found = trained()[policy]
    each = float(found.seconds[:, -1].mean()) / ROWS
    times = np.array([0.0, 0.3, 1.0, 2.0, 4.0]) * each
    law = delays.exponential(MEAN)
    expected = theory.loss_at_seconds(policy, law, N, POLICIES[policy], seconds=times, **settings())
    made = (found.seconds[:, :, None] <= times).sum(axis=1) - 1  # i[RUNS, times]
    assert made.max() < ROWS
    loss = np.take_along_axis(0.5 * found.square @ np.array(CURVES), made, axis=1)
    assert_mean(loss, expected)


# Against sums and other formulas.

LAW = Exponential(0.5)


def arguments(policy: str) -> tuple[str, Any, int, int | None]:
    return policy, LAW, N, POLICIES[policy]


@pytest.mark.parametrize("policy", ["asp", "k-batch-asp", "k-batch-bsp"])
def test_loss_at_seconds_is_a_poisson_mixture(policy: str) -> None:
    k = POLICIES[policy] or 1
    curve = theory.frontier(*arguments(policy), updates=100, **settings())
    times = np.array([3.0, 0.5, 10.0, 0.5])  # in any order
    arrivals = np.arange(100 * k)
    weights = stats.poisson.pmf(arrivals, times[:, None] * N / MEAN)
    expected = weights @ curve.loss[arrivals // k]
    found = theory.loss_at_seconds(*arguments(policy), seconds=times, **settings())
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("policy", ["bsp", "k-bsp", "k-asp"])
def test_loss_at_seconds_with_one_worker_an_update(policy: str) -> None:
    n, k = (1, None) if policy == "bsp" else (5, 1)
    curve = theory.frontier(policy, LAW, n, k, updates=100, **settings())
    weights = stats.poisson.pmf(np.arange(101), 4.0 * n / MEAN)
    found = theory.loss_at_seconds(policy, LAW, n, k, seconds=4.0, **settings())
    assert found == pytest.approx(float(weights @ curve.loss), rel=1e-10)


def test_seconds_of_other_laws() -> None:
    law = Uniform(1.0, 3.0)
    curve = theory.frontier("bsp", law, 3, updates=2, **settings())
    np.testing.assert_allclose(curve.seconds, [0, 2.5, 5.0], rtol=1e-12)
    curve = theory.frontier("k-bsp", law, 3, 1, updates=2, **settings())
    assert curve.seconds_per_update == pytest.approx(1.5, rel=1e-12)
    with pytest.raises(ValueError, match="law must give updates of finite mean seconds .* inf"):
        theory.frontier("bsp", Pareto(0.9), 3, updates=2, **settings())


@pytest.mark.parametrize("policy", POLICIES)
def test_the_floor_is_where_the_curve_ends(policy: str) -> None:
    curve = theory.frontier(*arguments(policy), updates=400, **settings())
    assert curve.loss[-1] == pytest.approx(curve.floor, rel=1e-9)
    edge = float(theory.stability_map([policy], [N], k=POLICIES[policy], eigenvalue=0.8)[0, 0])
    for factor in (0.99, 1.01):
        own = {**settings(), "rate": factor * edge}
        assert np.isfinite(theory.frontier(*arguments(policy), updates=1, **own).floor) == (
            factor < 1
        )


def test_flat_directions_cost_nothing() -> None:
    own: dict[str, Any] = {**settings(), "eigenvalues": [0.3, 0.0, 0.8]}
    both = [theory.frontier(*arguments("asp"), updates=9, **s) for s in (own, settings())]
    np.testing.assert_allclose(both[0].loss, both[1].loss, rtol=1e-14)
    assert both[0].floor == both[1].floor


@given(
    factor=st.floats(0.01, 100),
    policy=st.sampled_from(sorted(POLICIES)),
    rate=st.floats(0.01, 2.0),
)
def test_time_scales_with_the_law(factor: float, policy: str, rate: float) -> None:
    own = {**settings(), "rate": rate, "updates": 5}
    one = theory.frontier(policy, Exponential(1.0), N, POLICIES[policy], **own)
    other = theory.frontier(policy, Exponential(1 / factor), N, POLICIES[policy], **own)
    np.testing.assert_allclose(other.seconds, factor * one.seconds, rtol=1e-9)
    np.testing.assert_array_equal(other.loss, one.loss)
    assert (one.loss >= 0).all()


def test_staleness_costs_updates_and_saves_seconds() -> None:
    curves = {p: theory.frontier(*arguments(p), updates=12, **settings()) for p in POLICIES}
    assert curves["bsp"].loss[-1] < curves["k-asp"].loss[-1] < curves["asp"].loss[-1]
    seconds = [curves[p].seconds_per_update for p in ("asp", "k-asp", "bsp")]
    assert seconds == sorted(seconds)
    assert curves["k-asp"].seconds_per_update == curves["k-bsp"].seconds_per_update


def test_stability_map() -> None:
    names = list(POLICIES)
    table = theory.stability_map(names, [2, 4, 8, 64], k=2, eigenvalue=0.5)
    assert table.shape == (6, 4)
    np.testing.assert_array_equal(table[:3], 4.0)
    np.testing.assert_allclose(table[3] / 2, [1.2808, 0.8431, 0.5664, 0.1848], atol=5e-5)
    assert table[4, 0] == 4.0  # k = n
    assert (np.diff(table[4:], axis=1) < 0).all()
    assert (table[4:] > table[3]).all()
    rows = theory.stability_map(["k-batch-asp"], [2, 8], k=[1, 4])
    np.testing.assert_allclose(rows, [[1.2808, 1.5785]], atol=5e-5)


def changed(**changes: Any) -> dict[str, Any]:
    return {"rate": 0.1, "eigenvalues": [1.0], "updates": 3, **changes}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: theory.frontier("aps", LAW, 4, **changed()),
            r"frontier: policy must be one of asp, .*did you mean 'asp'\?\), got 'aps'",
        ),
        (lambda: theory.frontier("k-asp", LAW, 4, **changed()), "k must be given .* got None"),
        (lambda: theory.frontier("k-asp", LAW, 4, 5, **changed()), "k must .* 1 and n=4, got 5"),
        (lambda: theory.frontier("bsp", LAW, 4, 3, **changed()), "k must be None or 4 for 'bsp'"),
        (
            lambda: theory.frontier("asp", Uniform(1.0, 2.0), 4, **changed()),
            "law must be exponential without shift and without memory for policy 'asp'",
        ),
        (
            lambda: theory.frontier("k-asp", delays.exponential(1.0, shift=0.5), 4, 2, **changed()),
            "law must be exponential .* 'k-asp', got Exponential",
        ),
        (
            lambda: theory.frontier(
                "asp", delays.autoregressive(delays.exponential(1.0), 0.5), 4, **changed()
            ),
            "law must be exponential .* got Autoregressive",
        ),
        (
            lambda: theory.loss_at_seconds(
                "bsp", Uniform(1.0, 2.0), 4, rate=0.1, eigenvalues=[1.0], seconds=1.0
            ),
            "loss_at_seconds: law must be exponential .* 'bsp'",
        ),
        (
            lambda: theory.frontier("asp", LAW, 4, **changed(eigenvalues=[0.0])),
            r"eigenvalues must be a vector with a positive entry, got \[0.0\]",
        ),
        (
            lambda: theory.frontier("asp", LAW, 4, **changed(noise=[1.0, 2.0])),
            r"noise must have shape \(\) or \(1,\), got shape \(2,\)",
        ),
        (
            lambda: theory.frontier("asp", LAW, 4, **changed(rate=[0.1, 0.2])),
            r"rate must be one number, got shape \(2,\)",
        ),
        (lambda: theory.stability_map(["asp"], [0]), "workers must .* at least 1, got 0"),
        (lambda: theory.stability_map(["k-asp"], [2], k=3), "k must .* 1 and n=2, got 3"),
    ],
)
def test_bad_input(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
