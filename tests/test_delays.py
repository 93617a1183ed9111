"""Delay laws: tails to the last bit, goodness of fit, memory, what workers share.

Keys are fixed. Means are compared to 5 standard errors and distributions at a level of 1e-6.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import dtjax
from dtjax import delays, keys, policies
from dtjax.delays.law import BEFORE
from dtjax.theory import order_statistic_mean, order_statistic_variance
from theory_laws import within

LEVEL = 1e-6
BITS = [(0, 0), (0, 1), (0, 2**32 - 1), (1, 0), (2**31, 0), (2**32 - 1, 0), (2**32 - 1, 2**32 - 1)]
MEMORYLESS = {
    "bimodal": delays.bimodal(1.0, 0.1, 5.0),
    "deterministic": delays.deterministic(1.5),
    "exponential": delays.exponential(1.0, shift=0.5),
    "gamma": delays.gamma(2.0, 0.5, shift=0.25),
    "log_normal": delays.log_normal(1.0, 0.5),
    "pareto": delays.pareto(1.1, 1.0),
    "uniform": delays.uniform(1.0, 3.0),
    "weibull": delays.weibull(0.8, 1.0),
}


def example(name: str) -> Any:
    return importlib.import_module(f"dtjax.delays.{name}").EXAMPLE()


def exact(bits: tuple[int, int]) -> float:
    """Return the uniform number that two words stand for, in binary64."""
    return (bits[0] * 2**32 + bits[1] + 0.5) / 2**64


def survivals(bits: Any) -> np.ndarray:
    return np.asarray(jax.vmap(keys.survival)(jnp.asarray(bits, jnp.uint32)))


def sample(law: Any, count: int, n: int = 1, key: int = 0, now: float = 0.0) -> np.ndarray:
    """Draw the steps 0, 1, ... of n workers, f[n, count]."""

    def one(worker: keys.Worker) -> jax.Array:
        def turn(state: Any, step: jax.Array) -> Any:
            return law.draw(state, worker, step, jnp.asarray(now))

        steps = jnp.arange(count, dtype=jnp.int32)
        first = law.init(worker)
        if jax.tree.leaves(first):
            return jax.lax.scan(turn, first, steps)[1]
        return jax.vmap(lambda step: turn(first, step)[1])(steps)

    return np.asarray(jax.jit(jax.vmap(one))(keys.workers(jax.random.key(key), n)))


# Random bits.


def test_survival_keeps_its_digits_near_zero_and_stays_below_one() -> None:
    found = survivals(BITS)
    assert found[:5] == pytest.approx([exact(bits) for bits in BITS[:5]], rel=2**-23)
    assert found[0] == 2.0**-65
    assert (found[5:] == 1 - 2.0**-24).all()
    random = np.random.default_rng(0).integers(0, 2**32, (10_000, 2), dtype=np.uint64)
    random[:, 0] >>= random[:, 1] % 32  # of all magnitudes
    numbers = (random[:, 0] * 2.0**32 + random[:, 1] + 0.5) / 2.0**64
    assert survivals(random) == pytest.approx(numbers, rel=2**-23)


@pytest.mark.parametrize("seed", [0, 7, 2**31])
def test_words_are_those_of_fold_in(seed: int) -> None:
    key = jax.random.key(seed)
    for counter in (0, 1, 12345, BEFORE):
        folded = jax.random.fold_in(key, counter)
        words = keys.words(key, jnp.uint32(counter))
        assert (words == jax.random.key_data(folded)).all()
        salted = keys.words(key, jnp.uint32(counter), 3)
        assert (salted == jax.random.key_data(jax.random.fold_in(folded, 3))).all()
        assert (jax.random.key_data(keys.fold(key, counter, 3)) == salted).all()


def test_keys_of_other_generators() -> None:
    key = jax.random.key(0, impl="rbg")
    first, again = (keys.words(key, jnp.uint32(i)) for i in (5, 5))
    other = keys.words(key, jnp.uint32(6))
    assert (first == again).all() and (first != other).any()
    assert (keys.words(key, jnp.uint32(5), 1) != first).any()
    plain = keys.plain(key)
    assert jax.random.key_impl(plain) == jax.random.key_impl(jax.random.key(0))
    many = jax.random.split(key, 3)
    alone = [jax.random.key_data(keys.plain(key)) for key in many]
    assert (jax.random.key_data(jax.vmap(keys.plain)(many)) == jnp.stack(alone)).all()
    data = jax.random.key_data(jax.random.key(4))
    assert (jax.random.key_data(keys.plain(data)) == data).all()


# Tails.


@pytest.mark.parametrize("name", MEMORYLESS)
def test_a_draw_is_isf_of_its_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    law = MEMORYLESS[name]
    worker = jax.tree.map(lambda leaf: leaf[0], keys.workers(jax.random.key(0), 1))
    for bits in BITS:
        monkeypatch.setattr(keys, "words", lambda *_, b=bits: jnp.array(b, jnp.uint32))
        _, seconds = law.draw((), worker, jnp.int32(0), jnp.float32(0))
        assert seconds == law.isf(keys.survival(jnp.array(bits, jnp.uint32)))
        assert 0 < seconds < jnp.inf


EXTREME = [exact(bits) for bits in BITS[:5]]
TAILS = {
    "exponential": lambda q: 0.5 - np.log(q),
    "gamma": lambda q: 0.25 + 0.5 * special.gammainccinv(2.0, q),
    "log_normal": lambda q: np.exp(-0.5 * special.ndtri(q)),
    "pareto": lambda q: q ** (-1 / 1.1),
    "uniform": lambda q: 3.0 - 2.0 * q,
    "weibull": lambda q: (-np.log(q)) ** (1 / 0.8),
}


@pytest.mark.parametrize("name", TAILS)
def test_tails_are_exact(name: str) -> None:
    q = np.array([*EXTREME, 1e-12, 1e-9, 1e-6, 1e-3, 0.1, 0.5, 0.9])
    found = np.asarray(MEMORYLESS[name].isf(jnp.asarray(q, jnp.float32)))
    expected = TAILS[name](q.astype(np.float32).astype(float))
    assert found == pytest.approx(expected, rel=1e-5 if name == "pareto" else 3e-6)


def test_the_exponential_tail_reaches_45_means() -> None:
    law = delays.exponential(1.0)
    assert float(law.isf(survivals([(0, 0)])[0])) == pytest.approx(65 * math.log(2), rel=1e-6)
    assert float(law.isf(jnp.float32(2.0**-32))) == pytest.approx(32 * math.log(2), rel=1e-6)
    # 23-bit uniforms end at 15.94; here is a draw beyond 22.2 = -log 2^-32, where 32 bits end.
    assert float(law.isf(survivals([(0, 2**30)])[0])) == pytest.approx(34 * math.log(2), rel=1e-6)


def test_a_quarter_of_the_pareto_mean_is_not_lost() -> None:
    """For alpha = 1.1 the draws above the time of q = 2^-24 hold a fifth of the mean."""
    law = delays.pareto(1.1, 1.0)
    assert float(law.isf(1e-9)) == pytest.approx(1e-9 ** (-1 / 1.1), rel=1e-5)
    beyond = 2.0 ** (-24 * (1 - 1 / 1.1))
    assert beyond == pytest.approx(0.22, abs=0.01)
    largest = float(law.isf(survivals([(0, 0)])[0]))
    assert largest ** (1 - 1.1) < 0.02  # the share of the mean that is out of reach


def test_hyper_exponential_branches_have_exact_tails(monkeypatch: pytest.MonkeyPatch) -> None:
    law = delays.hyper_exponential([0.9, 0.1], [0.5, 5.0])
    worker = jax.tree.map(lambda leaf: leaf[0], keys.workers(jax.random.key(0), 1))
    for chosen, mean in (((0, 0), 0.5), ((2**31, 0), 0.5), ((2**32 - 1, 2**32 - 1), 5.0)):
        for bits in BITS[:5]:

            def words(key: Any, counter: Any, salt: int = 0, b: Any = bits, c: Any = chosen) -> Any:
                return jnp.array(c if salt else b, jnp.uint32)

            monkeypatch.setattr(keys, "words", words)
            _, seconds = law.draw((), worker, jnp.int32(0), jnp.float32(0))
            assert float(seconds) == pytest.approx(-mean * math.log(exact(bits)), rel=1e-6)


def test_autoregressive_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Step 0 is drawn through the normal law and back, and loses few digits of the tail."""
    law = delays.autoregressive(delays.exponential(1.0), 0.7)
    worker = jax.tree.map(lambda leaf: leaf[0], keys.workers(jax.random.key(0), 1))
    for bits in BITS[:5]:
        monkeypatch.setattr(keys, "words", lambda *_, b=bits: jnp.array(b, jnp.uint32))
        _, seconds = law.draw(law.init(worker), worker, jnp.int32(0), jnp.float32(0))
        assert float(seconds) == pytest.approx(-math.log(exact(bits)), rel=1e-5)


# Goodness of fit.


@pytest.mark.parametrize("name", [*MEMORYLESS, "hyper_exponential"])
def test_samples_fit_the_law(name: str) -> None:
    law = MEMORYLESS.get(name) or example(name)
    found = sample(law, 20_000)[0].astype(float)
    if name == "deterministic":
        assert (found == 1.5).all()
    elif name == "bimodal":
        slow = (found == 5.0).sum()
        assert slow + (found == 1.0).sum() == len(found)
        assert stats.binomtest(int(slow), len(found), 0.1).pvalue > LEVEL
    else:
        cdf = np.asarray(law.cdf(jnp.asarray(found, jnp.float32)), float)
        assert stats.kstest(cdf, "uniform").pvalue > LEVEL
        # The middle says little about the tail: look at the slowest hundredth alone.
        tail = np.asarray(law.sf(jnp.asarray(found, jnp.float32)), float)
        tail = tail[tail < 0.01] * 100
        assert stats.binomtest(len(tail), len(found), 0.01).pvalue > LEVEL
        assert stats.kstest(tail, "uniform").pvalue > LEVEL


@pytest.mark.parametrize("shape", [0.2, 0.5, 1.0, 2.0, 10.0, 100.0])
def test_gamma_table(shape: float) -> None:
    q = np.concatenate([np.geomspace(2.0**-65, 0.5, 2000), 1 - np.geomspace(2.0**-24, 0.5, 2000)])
    q32 = q.astype(np.float32)
    found = np.asarray(delays.gamma(shape, 1.0).isf(jnp.asarray(q32)), float)
    exactly = special.gammainccinv(shape, q32.astype(float))
    assert np.abs(found / exactly - 1).max() < 2e-6
    with jax.enable_x64(True):
        law = delays.gamma(shape, 1.0)
        wide = np.asarray(law.isf(jnp.asarray(q)))
    assert np.abs(wide / special.gammainccinv(shape, q) - 1).max() < 1e-8


# Memory.


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
    world = keys.workers(jax.random.key(3), 3).world[0]
    seconds = jnp.arange(0.0, 4000.0, 10.0) + 5.0
    slow = np.asarray(
        jax.vmap(lambda now: jax.vmap(lambda g: law.slow(world, g, now))(jnp.arange(2)))(seconds)
    )
    assert stats.binomtest(int(slow.sum()), slow.size, 0.3).pvalue > LEVEL
    both = (slow[:, 0] & slow[:, 1]).sum()
    assert stats.binomtest(int(both), len(slow), 0.09).pvalue > LEVEL
    cluster = dtjax.Cluster(3, law)
    for policy in (policies.asp(), policies.bsp()):
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
        workers = keys.workers(key, n)
        return jax.vmap(lambda w: law.draw(law.init(w), w, jnp.int32(0), jnp.zeros(()))[1])(workers)

    found = np.asarray(jax.jit(jax.vmap(first))(jax.random.split(jax.random.key(5), 20_000)), float)
    mean, variance = np.asarray(law.mean(), float), np.asarray(law.variance(), float)
    assert within(found, mean)
    assert within((found - mean) ** 2, variance)


def test_marginals_of_mixtures() -> None:
    law = delays.regimes(delays.exponential(1.0), factor=5.0, enter=0.05, leave=0.2)
    assert float(order_statistic_mean(law, 1, 1)) == pytest.approx(1.8, rel=1e-6)
    assert float(order_statistic_variance(law, 1, 1)) == pytest.approx(float(law.variance()), 1e-5)
