"""A quadratic with known optimum and noise."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dtjax.core import checks, random
from dtjax.training.task.task import Task


def quadratic(
    eigenvalues: checks.Numbers,
    *,
    noise: checks.Numbers = 0.0,
    start: checks.Numbers = 1.0,
) -> Task:
    """Make a quadratic whose optimum, 0, and whose noise are known.

    loss(w) = 1/2 sum_i eigenvalues_i w_i^2, gradients with independent Gaussian noise:
    eigenvalues w + noise N / sqrt(examples).

    Args:
        eigenvalues: f[d], not negative.
        noise: f[] or f[d], standard deviation of a one-example gradient, not negative.
        start: f[] or f[d], the parameters at version 0.

    Returns:
        A task whose parameters are f[d] and that measures `loss` f[] and `square` f[d], w_i^2.

    Raises:
        ValueError: if a number is out of its range or not finite.

    Example:
        >>> task = quadratic([1.0, 0.5], start=2.0)
        >>> float(task.evaluate(task.data, task.init(task.data, jax.random.key(0)))["loss"])
        3.0
    """
    curve = checks.real("quadratic", "eigenvalues", eigenvalues, checks.NON_NEGATIVE, ndim=1)
    spread = checks.real("quadratic", "noise", noise, checks.NON_NEGATIVE)
    first = checks.real("quadratic", "start", start)
    spread, first = (jnp.broadcast_to(leaf, curve.shape) for leaf in (spread, first))
    return Task((curve, spread, first), _start, _pulled, _pull, _distance)


# Functions of the module, not of the call, so that another quadratic compiles nothing anew.


def _start(arrays: Any, key: jax.Array) -> jax.Array:
    del key
    return arrays[2]


def _pull(arrays: Any, key: jax.Array, worker: Any, step: Any, examples: Any) -> Any:
    curve, spread, _ = arrays
    key = random.fold(key, worker, step)
    size = jnp.sqrt(jnp.maximum(jnp.asarray(examples, curve.dtype), 1.0))
    return curve, spread * jax.random.normal(key, curve.shape, curve.dtype) / size


def _pulled(params: jax.Array, drawn: Any) -> jax.Array:
    curve, pull = drawn
    return jnp.sum(0.5 * curve * params**2 + pull * params)


def _distance(arrays: Any, params: jax.Array) -> dict[str, jax.Array]:
    return {"loss": 0.5 * jnp.sum(arrays[0] * params**2), "square": params**2}
