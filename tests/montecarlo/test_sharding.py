"""Blocks of runs: the bits of a run depend neither on how many there are nor on the devices."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dtjax
from dtjax import data, models
from dtjax.clock.trace import trim
from dtjax.montecarlo.sharding import map_runs
from dtjax.training.many_runs import train_runs
from dtjax.training.task import Task, classification

RUNS, BLOCK, EVERY = 6, 4, 24


TRACED: list[str] = []
"""One entry whenever the loss is traced, which is when something compiles."""


@cache
def task() -> Task:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 12)).astype(np.float32), np.arange(80) % 4
    plain = classification(models.mlp([9], 4), data.from_arrays(x, y), batch=8)

    def loss(params: Any, batch: Any) -> Any:
        TRACED.append("loss")
        return plain.loss(params, batch)

    return replace(plain, loss=loss)


def schedules(keys: Any) -> Any:
    """Simulate k-ASP: runs of unequal lengths, as they end at a second."""
    cluster = dtjax.Cluster(n=4, delay=dtjax.delays.exponential(1.0), examples=8)
    return map_runs(
        lambda key: dtjax.simulate(key, cluster, dtjax.policies.k_asp(2), updates=64, until=30.0),
        keys,
        block=BLOCK,
    )


def train(keys: Any, traces: Any, rates: Any, **rest: Any) -> Any:
    sizes: dict[str, Any] = {"evaluate_every": EVERY, "block": BLOCK} | rest
    return train_runs(keys, traces, task(), optax.sgd, rates, **sizes)


@cache
def inputs() -> tuple[Any, Any, np.ndarray]:
    keys = jax.random.split(jax.random.key(1), RUNS)
    return keys, schedules(keys), np.linspace(0.1, 0.6, RUNS)


@cache
def trained() -> tuple[Any, Any]:
    keys, run, rates = inputs()
    return run, train(keys, run.trace, rates)


def same(a: Any, b: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


def write(path: str) -> None:
    """Train everything and save the bits: what `test_the_number_of_devices` runs elsewhere."""
    run, result = trained()
    leaves = jax.tree.leaves((run.trace, run.accounts, result))
    np.savez(path, *(np.asarray(leaf) for leaf in leaves))


@pytest.mark.bits
def test_the_number_of_devices_changes_no_bit(tmp_path: Path) -> None:
    path, devices = tmp_path / "bits.npz", 1 + len(jax.local_devices())
    program = f"""
import jax
jax.config.update("jax_num_cpu_devices", {devices})
import test_sharding
assert len(jax.local_devices()) == {devices}
test_sharding.write({str(path)!r})
"""
    here = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": here},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    run, result = trained()
    here_ = [np.asarray(x) for x in jax.tree.leaves((run.trace, run.accounts, result))]
    with np.load(path) as there:
        assert len(there.files) == len(here_)
        for a, b in zip(here_, there.values(), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("count", [1, 5])
def test_the_number_of_runs_changes_no_bit(count: int) -> None:
    keys, run, rates = inputs()
    few = jax.tree.map(lambda leaf: leaf[:count], run.trace)
    result = train(keys[:count], few, rates[:count])
    same(result, jax.tree.map(lambda leaf: leaf[:count], trained()[1]))


def test_many_trainings_are_the_vmapped_replay() -> None:
    keys, run, rates = inputs()
    result = trained()[1]

    def one(key: Any, trace: Any, rate: Any) -> Any:
        return dtjax.replay(key, trace, task(), optax.sgd(rate), evaluate_every=EVERY)

    expected = jax.jit(jax.vmap(one))(keys, run.trace, rates)
    assert jax.tree.structure(result) == jax.tree.structure(expected)

    def close(a: Any, b: Any) -> None:
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)

    jax.tree.map(close, result, expected)
    made = run.accounts.updates
    assert len(set(made.tolist())) > 1  # runs are of unequal lengths
    assert (result.updates[:, -1] == made).all()
    assert (result.gradients[:, -1] == run.accounts.useful_count.sum(-1)).all()
    assert (np.isnan(result.loss).sum(-1) == 64 - made).all()


def test_lengths_and_numbers_of_runs_compile_nothing_anew() -> None:
    keys, run, rates = inputs()
    trained()
    before = len(TRACED)
    assert before > 0
    train(keys[:2], jax.tree.map(lambda leaf: leaf[:2], run.trace), rates[:2])
    train(keys, trim(run.trace, rows=20), rates + 0.01)
    assert len(TRACED) == before


def test_progress_and_early_ends() -> None:
    keys, run, rates = inputs()
    seen: list[int] = []
    train(keys, run.trace, rates, progress=seen.append)
    assert sum(seen) == run.accounts.useful_count.sum()
    assert all(count > 0 for count in seen)  # no chunk without an update is run
    assert len(seen) > 2
    waves: list[int] = []
    map_runs(lambda x: x + 1, np.arange(10.0), block=BLOCK, progress=waves.append)
    assert sum(waves) == 10
    assert len(waves) == -(-10 // (BLOCK * len(jax.local_devices())))


def test_runs_without_any_update() -> None:
    keys, run, rates = inputs()
    nothing = jax.tree.map(np.zeros_like, run.trace)
    result = train(keys, nothing, rates)
    assert (result.updates == 0).all() and (result.diverged == -1).all()
    assert np.isnan(result.loss).all() and result.loss.shape == (RUNS, 64)
    loss = result.measures["test_loss"]
    assert loss.shape == result.updates.shape and (loss == loss[:, :1]).all()


def test_a_diverged_run_is_reported_and_harms_nobody() -> None:
    keys, run, rates = inputs()
    calm = trained()[1]
    wild_rates = rates.copy()
    wild_rates[2] = 1e30
    wild = train(keys, run.trace, wild_rates)
    assert wild.diverged.tolist()[:2] == [-1, -1] and wild.diverged[2] >= 0
    others = np.array([0, 1, 3, 4, 5])
    same(*(jax.tree.map(lambda leaf: leaf[others], result) for result in (calm, wild)))
    assert np.isnan(wild.measures["test_accuracy"][2, -1])


def test_seconds_of_evaluations_and_trimmed_traces() -> None:
    run, result = trained()
    times = dtjax.seconds(run.trace)
    found = result.seconds
    assert found.dtype == np.float64
    for r in range(RUNS):
        for e, updates in enumerate(result.updates[r]):
            assert found[r, e] == (times[r, updates - 1] if updates else 0.0)
    short = trim(run.trace)
    rows = int(run.accounts.updates.max())
    assert short.worker.shape == (RUNS, rows, 2)
    assert short.dt.shape == (RUNS, rows) and short.start.shape == (RUNS,)
    assert (short.worker == run.trace.worker[:, :rows]).all()
    assert (trim(run.trace, rows=7, width=1).version == run.trace.version[:, :7, :1]).all()
    wide = jax.tree.map(
        lambda leaf: np.pad(leaf, [(0, 0), (0, 0), (0, 3)]) if np.ndim(leaf) == 3 else leaf,
        run.trace,
    )
    same(trim(wide), short)


def test_map_runs_takes_keys_and_trees() -> None:
    keys = jax.random.split(jax.random.key(0), 5)

    def function(key: Any, own: Any) -> Any:
        matrix = jax.random.normal(key, (9, 9))
        return {"product": jnp.tanh(matrix @ matrix), "twice": 2 * own["x"]}

    found = map_runs(function, keys, {"x": np.arange(5.0)}, block=2)
    assert found["twice"].tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert found["product"].shape == (5, 9, 9)
    fewer = map_runs(function, keys[:3], {"x": np.arange(3.0)}, block=2)
    same(fewer, jax.tree.map(lambda leaf: leaf[:3], found))


@pytest.mark.parametrize(
    ("args", "got"),
    [
        ((np.zeros(0),), r"\[\(0,\)\]"),
        ((np.zeros(2), np.zeros(3)), r"\[\(2,\), \(3,\)\]"),
        ((), r"\[\]"),
        ((np.zeros(2), np.float32(1)), r"\[\(\), \(2,\)\]"),
    ],
)
def test_bad_runs(args: Any, got: str) -> None:
    rule = r"map_runs: args must have one leading axis of runs, the same in all, got "
    with pytest.raises(ValueError, match=rule + got):
        map_runs(lambda *xs: xs[0], *args)


def test_bad_trainings() -> None:
    keys, run, rates = inputs()
    for name in ("evaluate_every", "block"):
        with pytest.raises(ValueError, match=f"train_runs: {name} must be .* 1 or more, got 0"):
            train(keys, run.trace, rates, **{name: 0})
    with pytest.raises(ValueError, match=r"train_runs: args must have one leading axis"):
        train(keys, run.trace, rates[:2])
