"""Many trainings: the bits of the vmapped replay, evaluations at equal gradients, no work twice."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np
import optax
import pytest

import dtjax
from dtjax import compressors, delays, policies
from dtjax.training.many_runs import distinct, train_runs

RUNS = 4
KEYS = jax.random.split(jax.random.key(3), RUNS)
RATES = np.linspace(0.05, 0.2, RUNS)
TASK = dtjax.task.quadratic([1.0, 0.3, 0.1], noise=0.3)


@cache
def traces(k: int) -> Any:
    cluster = dtjax.Cluster(n=4, delay=delays.exponential(1.0))

    def clock(key: Any) -> Any:
        policy = policies.k_batch_asp(k)
        return dtjax.simulate(key, cluster, policy, updates=40, until=9.0).trace

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(clock))(KEYS))


def one_device() -> Any:
    axis = jax.sharding.AxisType.Auto
    return jax.make_mesh((1,), ("runs",), axis_types=(axis,), devices=jax.local_devices()[:1])


@pytest.mark.bits
@pytest.mark.parametrize("encoder", [None, compressors.error_feedback(compressors.top_k(0.4))])
def test_the_bits_are_those_of_the_vmapped_replay(encoder: Any) -> None:
    def one(key: Any, trace: Any, rate: Any) -> Any:
        optimizer = optax.sgd(rate)
        return dtjax.replay(key, trace, TASK, optimizer, evaluate_every=8, encoder=encoder)

    expected = jax.jit(jax.vmap(one))(KEYS, traces(2), RATES)
    found = train_runs(
        KEYS,
        traces(2),
        TASK,
        optax.sgd,
        RATES,
        evaluate_every=8,
        encoder=encoder,
        block=RUNS,
        mesh=one_device(),
    )
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


SLOW = [pytest.param(*case, marks=pytest.mark.slow) for case in ((3, 2), (1, 7), (4, 100))]


@pytest.mark.parametrize(("k", "every"), [(3, 7), *SLOW])
def test_evaluations_are_at_the_first_update_with_so_many_gradients(k: int, every: int) -> None:
    """Beside an evaluation at every update, from which those that are due are picked."""

    def train(every: int) -> Any:
        return train_runs(KEYS, traces(k), TASK, optax.sgd, RATES, evaluate_every=every, block=2)

    found, whole = train(every), train(k)
    for run in range(RUNS):
        used, last = whole.gradients[run], whole.gradients[run].max()
        for m, count in enumerate(found.gradients[run]):
            due = m * every
            place = int(np.argmax(used >= min(due, last)))
            assert count == used[place]
            assert found.updates[run, m] == whole.updates[run, place]
            assert found.seconds[run, m] == whole.seconds[run, place]
            for name in ("loss", "square"):
                mine, theirs = found.measures[name][run, m], whole.measures[name][run, place]
                np.testing.assert_allclose(mine, theirs, rtol=1e-5)
        assert found.gradients[run].max() == last
    np.testing.assert_allclose(found.loss, whole.loss, rtol=1e-5)


def test_equal_trainings_are_done_once_with_their_own_seconds() -> None:
    index = np.array([0, 1, 0, 0, 1])
    many = jax.tree.map(lambda leaf: leaf[index], traces(2))
    many = dtjax.Trace(**{**vars(many), "dt": many.dt * np.arange(1.0, 6.0)[:, None]})
    rates = np.array([0.1, 0.1, 0.1, 0.2, 0.1])
    first, kind = distinct(KEYS[index], many.worker, rates)
    assert first.tolist() == [0, 1, 3] and kind.tolist() == [0, 1, 0, 2, 1]
    seen: list[int] = []
    found = train_runs(
        KEYS[index], many, TASK, optax.sgd, rates, evaluate_every=8, block=8, progress=seen.append
    )
    assert sum(seen) == (many.examples > 0).sum()
    np.testing.assert_array_equal(found.loss[0], found.loss[2])
    np.testing.assert_array_equal(found.loss[1], found.loss[4])
    assert (found.measures["loss"][0] != found.measures["loss"][3]).any()
    np.testing.assert_allclose(found.seconds[2], 3 * found.seconds[0], rtol=1e-6)


def test_numbers_of_encoders_are_lanes() -> None:
    ratios = np.array([0.34, 0.67, 1.0, 1.0], np.float32)
    lanes = compressors.top_k(0.5).replace(ratio=ratios)
    trace = traces(2)

    def train(**coder: Any) -> Any:
        return train_runs(KEYS, trace, TASK, optax.sgd, RATES, evaluate_every=8, **coder)

    together = train(encoders=lanes)
    for run, ratio in enumerate(ratios):
        alone = train(encoder=compressors.top_k(float(ratio)))
        np.testing.assert_array_equal(together.params[run], alone.params[run])


def test_a_training_as_a_dataset() -> None:
    result = train_runs(KEYS, traces(2), TASK, optax.sgd, RATES, evaluate_every=8)
    found = result.to_xarray()
    assert found.loss.dims == found.seconds.dims == ("run", "evaluation")
    assert found.square.dims == ("run", "evaluation", "square_entry")
    assert found.batch_loss.dims == ("run", "update") and found.diverged.dims == ("run",)
    np.testing.assert_array_equal(found.seconds, result.seconds)
    times = dtjax.seconds(traces(2))
    for run in range(RUNS):
        for e, updates in enumerate(result.updates[run]):
            assert result.seconds[run, e] == (times[run, updates - 1] if updates else 0.0)
    one = jax.tree.map(lambda leaf: leaf[1], result).to_xarray()
    assert one.loss.dims == ("evaluation",)
    np.testing.assert_array_equal(one.seconds, found.seconds.isel(run=1))
    nested = jax.tree.map(lambda leaf: np.asarray(leaf)[None], result)
    with pytest.raises(ValueError, match="to_xarray: training must have at most one leading axis"):
        nested.to_xarray()


def test_bad_trainings() -> None:
    coder = compressors.top_k(0.5)
    rest: dict[str, Any] = {"evaluate_every": 8}
    with pytest.raises(ValueError, match="train_runs: encoders must not be given beside encoder"):
        train_runs(KEYS, traces(2), TASK, optax.sgd, RATES, encoder=coder, encoders=coder, **rest)
    wrong: Any = optax.sgd(0.1)
    with pytest.raises(ValueError, match="train_runs: optimizer must be a function from a learn"):
        train_runs(KEYS, traces(2), TASK, wrong, RATES, **rest)
