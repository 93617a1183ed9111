"""Delay laws: tails to the last bit and goodness of fit.

Keys are fixed. Means are compared to 5 standard errors and distributions at a level of 1e-6.
"""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from dtjax import delays
from dtjax.core import random
from law_samples import BITS, LEVEL, exact, example, sample, survivals

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


@pytest.mark.parametrize("name", MEMORYLESS)
def test_a_draw_is_isf_of_its_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    law = MEMORYLESS[name]
    worker = jax.tree.map(lambda leaf: leaf[0], random.workers(jax.random.key(0), 1))
    for bits in BITS:
        monkeypatch.setattr(random, "words", lambda *_, b=bits: jnp.array(b, jnp.uint32))
        _, seconds = law.draw((), worker, jnp.int32(0), jnp.float32(0))
        assert seconds == law.isf(random.survival(jnp.array(bits, jnp.uint32)))
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


@pytest.mark.slow
def test_the_largest_of_many_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2e8, log 2e8 + a Gumbel number; from 23-bit uniforms it would be 15.94."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    tail = importlib.import_module("benchmarks.tail")
    found = tail.main(tail.Options())
    low, high = (math.log(2e8) + tail.gumbel(level) for level in (LEVEL / 2, 1 - LEVEL / 2))
    assert 15.94 < low < found < high


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
    worker = jax.tree.map(lambda leaf: leaf[0], random.workers(jax.random.key(0), 1))
    for chosen, mean in (((0, 0), 0.5), ((2**31, 0), 0.5), ((2**32 - 1, 2**32 - 1), 5.0)):
        for bits in BITS[:5]:

            def words(key: Any, counter: Any, salt: int = 0, b: Any = bits, c: Any = chosen) -> Any:
                return jnp.array(c if salt else b, jnp.uint32)

            monkeypatch.setattr(random, "words", words)
            _, seconds = law.draw((), worker, jnp.int32(0), jnp.float32(0))
            assert float(seconds) == pytest.approx(-mean * math.log(exact(bits)), rel=1e-6)


def test_autoregressive_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Step 0 is drawn through the normal law and back, and loses few digits of the tail."""
    law = delays.autoregressive(delays.exponential(1.0), 0.7)
    worker = jax.tree.map(lambda leaf: leaf[0], random.workers(jax.random.key(0), 1))
    for bits in BITS[:5]:
        monkeypatch.setattr(random, "words", lambda *_, b=bits: jnp.array(b, jnp.uint32))
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
    """Binary32 rounds log X, which is large where X is tiny; in binary64 cubics are the limit."""

    def exactly(q: np.ndarray) -> np.ndarray:
        low = special.gammaincinv(shape, 1 - q)
        return np.where(q < 0.5, special.gammainccinv(shape, q), low)

    q = np.concatenate([np.geomspace(2.0**-65, 0.5, 2000), 1 - np.geomspace(2.0**-24, 0.5, 2000)])
    narrow = q.astype(np.float32)
    found = np.asarray(delays.gamma(shape, 1.0).isf(jnp.asarray(narrow)), float)
    error = np.abs(found / exactly(narrow.astype(float)) - 1)
    assert error.max() < (1e-6 if shape >= 1 else 1e-5)
    assert error[narrow < 0.5].max() < 1e-6
    with jax.enable_x64(True):
        wide = np.asarray(delays.gamma(shape, 1.0).isf(jnp.asarray(q)))
    assert np.abs(wide / exactly(q) - 1).max() < 5e-9
