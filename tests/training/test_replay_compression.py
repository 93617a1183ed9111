"""Compressors in the trainer: nothing is lost under any policy, in binary64; downlinks; sweeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dtjax
from dtjax import compressors
from dtjax.compressors import error_feedback
from dtjax.training.many_runs import train_runs
from dtjax.training.replay import advance, begin
from dtjax.training.update import rows_of
from replays import KEY, RULES, N, lane, task, traces


@pytest.fixture(autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


class Recorded(NamedTuple):
    """Any encoder, and the sums of what it got and of what it sent."""

    inner: Any

    def memory(self, params: Any) -> Any:
        nothing = jnp.zeros_like(params)
        return self.inner.memory(params), nothing, nothing, jnp.int32(0)

    def encode(self, memory: Any, gradient: Any, extras: Any) -> Any:
        inner, got, sent, count = memory
        inner, message = self.inner.encode(inner, gradient, extras)
        return (inner, got + gradient, sent + message, count + 1), message


def trained(encoder: Any, downlink: Any = None, rate: float = 0.05) -> Any:
    """Train the lanes of all the policies."""
    problem, optimizer = task(), optax.sgd(rate)

    def one(t: Any) -> Any:
        state = begin(KEY, problem, optimizer, t.workers, t.slots, encoder, downlink)
        return advance(KEY, state, rows_of(t), problem, optimizer, encoder, downlink)[0]

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(traces()))


LOSSY = {
    "top-k": compressors.top_k(0.25),
    "scaled sign": compressors.scaled_sign(),
    "one-bit": compressors.one_bit(),
    "int8": compressors.int8(),
    "top-k, then int8": compressors.compose(compressors.top_k(0.5), compressors.int8()),
}


QUICK = ("top-k", "top-k, then int8")
NAMES = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in LOSSY]


@pytest.mark.parametrize("name", NAMES)
def test_what_was_sent_and_what_is_left_are_the_used_gradients(name: str) -> None:
    """Cancelled, discarded and padded entries are as if they had never been."""
    state = trained(Recorded(error_feedback(LOSSY[name])))
    inner, got, sent, count = state.memory
    residual = np.asarray(jax.tree.leaves(inner)[0])
    assert residual.shape == got.shape
    np.testing.assert_allclose(sent + residual, got, atol=1e-9 if "int8" not in name else 1e-6)
    assert np.abs(residual).max() > 1e-4  # something was lost, and is kept
    for i, rule in enumerate(RULES):
        trace = lane(i)
        used = np.bincount(trace.worker[trace.valid], minlength=N)
        assert count[i].tolist() == used.tolist(), rule


def test_the_server_keeps_what_its_downlink_does_not_send() -> None:
    state = trained(None, Recorded(error_feedback(compressors.top_k(0.25))))
    inner, got, sent, count = state.server
    np.testing.assert_allclose(sent + jax.tree.leaves(inner)[0], got, atol=1e-12)
    assert count.tolist() == traces().made.sum(-1).tolist()
    start = np.asarray(task().init(task().data, KEY))
    np.testing.assert_allclose(state.params, start - 0.05 * sent, atol=1e-12)


def test_a_majority_moves_every_parameter_by_the_rate() -> None:
    state = trained(compressors.majority_sign(), rate=1 / 64)
    steps = (state.params - np.asarray(task().init(task().data, KEY))) * 64
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-9)
    odd = [i for i, name in enumerate(RULES) if name in ("asp", "ssp", "k-batch-asp")]
    made = traces().made.sum(-1)
    assert (np.abs(steps)[odd] <= made[odd, None]).all()


def test_nothing_that_is_not_finite_stays_in_a_memory() -> None:
    state = trained(error_feedback(compressors.top_k(0.25)), rate=1e30)
    assert (state.diverged >= 0).all()
    assert np.isfinite(state.params).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.memory))


def test_a_memory_of_other_shapes_is_refused() -> None:
    coder = error_feedback(compressors.top_k(0.5))
    memory = coder.memory({"w": jnp.zeros(3)})
    with pytest.raises(ValueError, match="memory must be of tensors like the gradient's"):
        coder.encode(memory, {"w": jnp.zeros(4)}, Extra())
    with pytest.raises(ValueError, match="memory must be of tensors like the gradient's"):
        coder.encode(memory, {"v": jnp.zeros(3)}, Extra())


class Extra(NamedTuple):
    key: Any = jax.random.PRNGKey(0)
    shared: Any = jax.random.PRNGKey(1)
    step: Any = 0


@pytest.mark.slow
def test_kept_fractions_sweep_in_one_program() -> None:
    """A run's own numbers give the bits that this encoder gives alone."""
    with jax.enable_x64(False):
        ratios = np.array([0.25, 0.5, 1.0], np.float32)
        cluster = dtjax.Cluster(n=3, delay=dtjax.delays.exponential(1.0))
        keys = jax.random.split(jax.random.key(1), 3)
        run = jax.vmap(lambda k: dtjax.simulate(k, cluster, dtjax.policies.asp(), updates=40))(keys)
        problem = dtjax.task.quadratic([1.0, 0.5, 0.25, 0.125])
        coder = error_feedback(compressors.top_k(0.5))
        swept = coder.replace(compressor=compressors.top_k(0.5).replace(ratio=ratios))
        stacked = replace(swept, decay=np.ones(3, np.float32))
        train = partial(train_runs, task=problem, optimizer=optax.sgd, evaluate_every=10, block=4)
        rates = np.full(3, 0.1)
        together = train(keys, run.trace, rates=rates, encoders=stacked)
        for i, ratio in enumerate(ratios):
            own = error_feedback(compressors.top_k(float(ratio)))
            alone = train(keys, run.trace, rates=rates, encoder=own)
            np.testing.assert_array_equal(together.params[i], alone.params[i])
        plain = train(keys, run.trace, rates=rates)
        np.testing.assert_allclose(together.params[2], plain.params[2], rtol=1e-6)


@pytest.mark.parametrize("wrong", [compressors.top_k, optax.sgd(0.1), Recorded, 3])
def test_what_is_no_encoder_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="begin: encoder must be an encoder"):
        begin(KEY, task(), optax.sgd(0.1), 2, 2, wrong)
    with pytest.raises(ValueError, match="begin: downlink must be an encoder"):
        begin(KEY, task(), optax.sgd(0.1), 2, 2, None, wrong)
