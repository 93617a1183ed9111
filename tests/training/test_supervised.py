"""Tasks of any module, loss and metrics: their measures, their errors, and when two are equal."""

from __future__ import annotations

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import dtjax
from dtjax import data, models
from dtjax.training.task import Version, supervised
from stateful import ROWS, LinenNet, Net, X, Y, keys, problem


def same(make: Any) -> None:
    one, other = make(), make()
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert hash(jax.tree.structure(one)) == hash(jax.tree.structure(other))


def test_tasks_made_alike_are_equal_and_others_are_not() -> None:
    for model in (Net, LinenNet, lambda: models.mlp([4], 1), lambda: Net(rngs=nnx.Rngs(0))):
        same(lambda model=model: problem(model if model is Net else model()))
    same(lambda: problem(partial(Net, 0.5)))
    labels = np.arange(120) % 3
    same(
        lambda: dtjax.task.classification(
            models.cnn((3, 1), [], 3), data.from_arrays(X, labels), batch=4
        )
    )
    structures = [
        jax.tree.structure(problem(model, batch))
        for model, batch in [
            (Net, 16), (Net, 8), (partial(Net, 0.5), 16), (LinenNet(), 16), (LinenNet(0.5), 16),
            (models.mlp([4], 1), 16), (models.mlp([5], 1), 16),
        ]
    ]  # fmt: skip
    assert len(set(structures)) == len(structures)


def test_a_model_without_state_gets_no_key_and_no_version() -> None:
    task = problem(lambda rngs: nnx.Linear(3, 1, rngs=rngs))
    assert task.advance is None
    assert len(jax.eval_shape(task.batch, task.data, keys()[0], 0, 0, 1.0)) == 3
    assert not isinstance(jax.eval_shape(task.init, task.data, keys()[0]), Version)


class Hard(nn.Module):
    """A Linen module that cannot be evaluated."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.BatchNorm(use_running_average=False)(nn.Dense(1)(x))


class Counting(nnx.Module):
    """A module with state that is no float."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.inner = nnx.Linear(3, 1, rngs=rngs)
        self.calls = nnx.Variable(jnp.int32(0))

    def __call__(self, x: jax.Array) -> jax.Array:
        self.calls[...] += 1
        return self.inner(x)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": Hard()}, r"from_flax: module with state must have one of `train`, .*'batch_st"),
        (
            {"model": Counting},
            r"supervised: model must keep state of floats alone, got .*calls.*int",
        ),
        ({"model": 3}, r"from_flax: module must be a Linen module, an NNX module or"),
        ({"metrics": {"loss": optax.l2_loss}}, r"supervised: metrics must not name one 'loss'"),
        (
            {"data": data.from_arrays(X, Y[:, 0])},
            r"loss must give f\[batch\] for outputs of shape \[batch, 1\] and targets of \[batch\]",
        ),
        (
            {"data": data.from_arrays(X, Y[:, 0]), "loss": lambda out, y: (out - y[None]) ** 2},
            r"loss must give f\[batch\] for .*, got '\[batch, \d+\]'",
        ),
        (
            {"metrics": {"wide": lambda out, y: jnp.zeros(3)}},
            r"supervised: metrics\['wide'\] must give f\[batch\]",
        ),
        ({"loss": lambda out, y: jnp.mean(out - y)}, r"supervised: loss must give f\[batch\]"),
        ({"batch": 0}, r"supervised: batch must be an integer 1 or more, got 0"),
    ],
)
def test_bad_input(wrong: dict[str, Any], message: str) -> None:
    good = {"model": Net, "loss": optax.squared_error, "metrics": {}, "batch": 4}
    arguments: Any = {"data": data.from_arrays(X, Y)} | good | wrong
    with pytest.raises(ValueError, match=message):
        supervised(**arguments)


def test_metrics_are_averaged_over_validation_and_test_examples() -> None:
    task = supervised(
        models.softmax_regression(1),
        optax.squared_error,
        {"absolute": lambda out, y: jnp.abs(out - y), "largest": lambda out, y: jnp.max(out - y)},
        data.from_arrays(X, Y),
        batch=4,
    )
    params = jax.jit(task.init)(task.data, jax.random.key(0))
    found = jax.jit(task.evaluate)(task.data, params)
    kernel = np.asarray(params["Dense_0"]["kernel"])
    for part in ("validation", "test"):
        x, y = (getattr(task.data[0], f"{name}_{part}") for name in "xy")
        apart = np.asarray(x) @ kernel - np.asarray(y)
        for name, value in (("loss", apart**2), ("absolute", abs(apart)), ("largest", apart.max())):
            np.testing.assert_allclose(found.pop(f"{part}_{name}"), value.mean(), rtol=1e-5)
    assert not found


def test_a_rate_that_is_given_scales_the_schedule() -> None:
    # The factory form of many runs: the schedule counts updates of the server, not gradients.
    task = problem(models.mlp([8], 1))
    t = np.arange(ROWS)[:, None]
    trace = dtjax.make_trace(
        dt=np.ones(ROWS), worker=[[0, 1]] * ROWS, version=t + np.zeros((1, 2), int), examples=16.0
    )

    def make(rate: Any) -> Any:
        schedule = optax.linear_schedule(rate, 0.0, 4)
        return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))

    run = jax.jit(
        jax.vmap(lambda rate: dtjax.replay(keys()[0], trace, task, make(rate), evaluate_every=2))
    )
    result = run(jnp.array([0.1, 0.01]))
    loss = np.asarray(result.measures["test_loss"])
    assert (loss[:, 4:] == loss[:, 4:5]).all()  # after four updates the rate is 0
    assert (np.diff(loss[:, :5]) != 0).all() and abs(loss[0] - loss[1]).max() > 1e-3
