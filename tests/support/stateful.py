"""A module with running statistics and masks, in NNX and Linen, and how tests train it."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import numpy as np
import optax
from flax import nnx

import dtjax
from dtjax import data
from dtjax.training.task import supervised

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3)).astype(np.float32)
Y = (np.tanh(X @ [1.0, -2.0, 0.5])[:, None] + 3).astype(np.float32)
ROWS = 12


class Net(nnx.Module):
    """An NNX module as its documents write it."""

    def __init__(self, rate: float = 0.0, *, rngs: nnx.Rngs) -> None:
        # A bias before the norm has a gradient of rounding alone, which adam would blow up.
        self.first = nnx.Linear(3, 8, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(8, momentum=0.8, rngs=rngs)
        self.drop = nnx.Dropout(rate, rngs=rngs)
        self.last = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))


class LinenNet(nn.Module):
    """The same in Linen."""

    rate: float = 0.0

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        x = nn.Dense(8, use_bias=False)(x)
        x = nn.BatchNorm(use_running_average=not train, momentum=0.8)(x)
        x = nn.Dropout(self.rate, deterministic=not train)(nn.relu(x))
        return nn.Dense(1)(x)


def problem(model: Any, batch: int = 16) -> dtjax.Task:
    """Make a small regression."""
    return supervised(model, optax.squared_error, {}, data.from_arrays(X, Y), batch=batch)


def alone(rows: int = ROWS) -> dtjax.Trace:
    """One worker: every gradient is fresh."""
    t = np.arange(rows)[:, None]
    return dtjax.make_trace(dt=np.ones(rows), worker=0 * t, version=t, examples=16.0)


def keys(seed: int = 5) -> Any:
    """Return a run's key, and those that it makes of it: of parameters and of mini-batches."""
    key = jax.random.key(seed)
    return key, *jax.random.split(key)


def train(task: dtjax.Task, trace: dtjax.Trace, optimizer: Any, **more: Any) -> Any:
    """Replay in one compile."""
    more = {"evaluate_every": 4} | more
    run = jax.jit(lambda key, t, p: dtjax.replay(key, t, task, optimizer, **more | {"params": p}))
    return run(keys()[0], trace, more.pop("params", None))


def adamw() -> Any:
    """Make what people train with: clipping, decoupled decay, a schedule of the updates."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.05, 3, ROWS)
    return optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(schedule))


def close(a: Any, b: Any, rtol: float = 2e-5) -> None:
    """Assert that two trees of numbers are equal to rounding."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-6)
