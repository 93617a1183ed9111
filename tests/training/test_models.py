"""Models are pure functions; users' Flax modules, Linen and NNX, go in as they are."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import dtjax
from dtjax import data, models
from dtjax.training.task import classification

X = np.random.default_rng(0).normal(size=(5, 64)).astype(np.float32)


def some(model: models.Model, x: np.ndarray = X) -> Any:
    """Make parameters of the model's shapes, without compiling its own."""
    shapes = jax.eval_shape(model.init, jax.random.key(0), x[:1])
    rng = np.random.default_rng(3)
    return jax.tree.map(lambda s: rng.normal(size=s.shape).astype(s.dtype) / 4, shapes)


@pytest.mark.parametrize("hidden", [(), (7,), (7, 5), (7, 5, 3)])
def test_mlp_is_dense_layers_with_relu_between(hidden: tuple[int, ...]) -> None:
    model = models.mlp(hidden, 4)
    params = some(model)
    sizes = [64, *hidden, 4]
    layers = [params[f"Dense_{i}"] for i in range(len(sizes) - 1)]
    assert [layer["kernel"].shape for layer in layers] == list(
        zip(sizes[:-1], sizes[1:], strict=True)
    )
    y = X.astype(np.float64)
    for i, layer in enumerate(layers):
        y = y @ np.asarray(layer["kernel"], np.float64) + np.asarray(layer["bias"])
        y = np.maximum(y, 0) if i < len(hidden) else y
    np.testing.assert_allclose(model.apply(params, jnp.asarray(X)), y, atol=1e-5)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == sum(
        (a + 1) * b for a, b in zip(sizes[:-1], sizes[1:], strict=True)
    )


def test_softmax_regression_is_the_mlp_without_layers() -> None:
    assert some(models.softmax_regression(3))["Dense_0"]["kernel"].shape == (64, 3)


@pytest.mark.parametrize(("image", "channels"), [((5, 7), 3)])
def test_cnn_is_the_library_convolution(image: tuple[int, int], channels: int) -> None:
    x = np.random.default_rng(1).normal(size=(3, math.prod(image) * channels)).astype(np.float32)
    model = models.cnn(image, [6, 4], 10)
    params = some(model, x)
    y: Any = jnp.asarray(x).reshape(3, *image, channels)
    for i, features in enumerate((6, 4)):
        dense = params[f"_Convolution_{i}"]["Dense_0"]
        kernel = dense["kernel"].reshape(3, 3, -1, features)
        y = jax.lax.conv_general_dilated(
            y, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        y = nn.avg_pool(nn.relu(y + dense["bias"][None, None, None]), (2, 2), strides=(2, 2))
    last = params["Dense_0"]
    expected = y.reshape(3, -1) @ last["kernel"] + last["bias"][None]
    np.testing.assert_allclose(jax.jit(model.apply)(params, x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: models.mlp([0], 3), r"mlp: hidden must be an integer 1 or more, got 0"),
        (lambda: models.mlp([3], 0), r"mlp: classes must be an integer 1 or more, got 0"),
        (
            lambda: models.mlp(cast(Any, [2.5]), 3),
            r"mlp: hidden must be an integer 1 or more, got 2\.5",
        ),
        (lambda: models.cnn((8, 8), [0], 3), r"cnn: features must be an integer 1 or more, got 0"),
        (lambda: models.cnn((8, 0), [1], 3), r"cnn: image must be an integer 1 or more, got 0"),
        (lambda: models.cnn((8, 3), [4, 4], 3), r"cnn: image must have sides of 4 or more"),
    ],
)
def test_bad_sizes(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


class Linen(nn.Module):
    """A module as a user writes it."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(3)(jnp.tanh(nn.Dense(6)(x)))


class Positional(nnx.Module):
    """An NNX module whose `rngs` may be given by place."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(64, 6, rngs=rngs)
        self.last = nnx.Linear(6, 3, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.last(jnp.tanh(self.first(x)))


class Keyword(Positional):
    """An NNX module as Flax's own documents write it."""

    def __init__(self, *, rngs: nnx.Rngs) -> None:
        super().__init__(rngs)


class Sized(nnx.Module):
    """An NNX module with an argument of its own."""

    def __init__(self, hidden: int, *, rngs: nnx.Rngs) -> None:
        self.inner = Positional(rngs)
        self.hidden = hidden

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.inner(x)


def test_all_the_ways_to_make_an_nnx_module() -> None:
    ways: list[Any] = [Positional, Keyword, partial(Sized, 6), partial(Sized, hidden=6)]
    ways += [lambda rngs: Positional(rngs), lambda stream: Sized(6, rngs=stream)]
    key, found = jax.random.key(4), []
    for make in ways:
        model = models.from_flax(make)
        params = model.init(key, jnp.asarray(X))
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 65 * 6 + 7 * 3
        found.append(np.asarray(model.apply(params, jnp.asarray(X))))
    assert all((y == found[0]).all() for y in found)


@pytest.mark.parametrize("module", [Linen(), Keyword], ids=["Linen", "NNX"])
def test_a_users_module_trains_as_it_is(module: Any) -> None:
    model = models.from_flax(module)
    rng = np.random.default_rng(2)
    y = np.arange(90) % 3
    x = (rng.normal(size=(90, 64)) + np.eye(3, 64)[y] * 4).astype(np.float32)
    task = classification(model, data.from_arrays(x, y), batch=8)
    t = np.arange(120)[:, None]
    trace = dtjax.make_trace(
        dt=np.ones(120), worker=t % 3, version=np.maximum(t - 2, 0), examples=8.0
    )
    result = jax.jit(lambda key: dtjax.replay(key, trace, task, optax.sgd(0.1), evaluate_every=60))(
        jax.random.key(3)
    )
    assert float(result.measures["test_loss"][-1]) < 0.5 * float(result.measures["test_loss"][0])


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (3, r"must be a Linen module, an NNX module or a function from nnx\.Rngs to one, got 3"),
        (lambda rngs: 3, r"must make an NNX module, got 3"),
        (
            Linen,
            r"must be a Linen module, an NNX module or a function .* to one, got .*Linen",
        ),
    ],
)
def test_what_is_no_module_is_refused(module: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"from_flax: module {message}"):
        models.from_flax(module)
