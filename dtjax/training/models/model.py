"""Models as pairs of pure functions, and how a Flax module becomes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax

from dtjax.core import checks


class Model(NamedTuple):
    """A model: `init(key, x) -> params` and `apply(params, x) -> outputs`, both pure."""

    init: Callable[[jax.Array, jax.Array], Any]
    apply: Callable[[Any, jax.Array], jax.Array]


def from_flax(module: Any) -> Model:
    """Make a model of a Flax module, Linen or NNX, as it is.

    Args:
        module: a Linen module; or, for NNX, a function from `nnx.Rngs` to a module (a class whose
            only argument is `rngs`, by name or place, is one), since every run initialises its own.

    Returns:
        The model. The parameters are the module's trainable ones.

    Raises:
        ValueError: if it is neither, or the module keeps other state than parameters (batch
            statistics): stale gradients have no agreed meaning for it.

    Example:
        >>> import flax.linen as nn, jax.numpy as jnp
        >>> model = from_flax(nn.Dense(3))
        >>> model.apply(model.init(jax.random.key(0), jnp.ones((1, 2))), jnp.ones((5, 2))).shape
        (5, 3)
    """
    import flax.linen as nn
    from flax import nnx

    if isinstance(module, nn.Module):
        try:
            return _linen(module)  # equal modules make one model, so that nothing compiles anew
        except TypeError:  # a module that cannot be hashed
            return _linen.__wrapped__(module)
    linen_class = isinstance(module, type) and issubclass(module, nn.Module)
    if callable(module) and not linen_class and not isinstance(module, nnx.Module):
        return _nnx(module)
    rule = "must be a Linen module or a function from nnx.Rngs to an NNX module"
    raise checks.fail("from_flax", "module", rule, module)


@lru_cache(maxsize=64)
def _linen(module: Any) -> Model:
    def init(key: jax.Array, x: jax.Array) -> Any:
        variables = dict(module.init(key, x))
        params = variables.pop("params", {})
        if variables:
            rule = "must keep no state but its parameters"
            raise checks.fail("from_flax", "module", rule, sorted(variables))
        return params

    return Model(init, lambda params, x: module.apply({"params": params}, x))


def _nnx(make: Callable[..., Any]) -> Model:
    from flax import nnx

    inner: Any = make
    while isinstance(inner, partial):
        inner = inner.func
    inner = inner.__init__ if isinstance(inner, type) else inner
    by_name = "rngs" in inspect.signature(inner).parameters  # it may be keyword-only

    def build(key: jax.Array) -> Any:
        streams = nnx.Rngs(key)
        module = make(rngs=streams) if by_name else make(streams)
        if not isinstance(module, nnx.Module):
            raise checks.fail("from_flax", "module", "must make an NNX module", module)
        return module

    graph, _, rest = nnx.split(nnx.eval_shape(lambda: build(jax.random.key(0))), nnx.Param, ...)
    kept = [path for path, leaf in nnx.to_flat_state(rest) if not isinstance(leaf, nnx.RngState)]
    if kept:
        raise checks.fail("from_flax", "module", "must keep no state but its parameters", kept)

    def init(key: jax.Array, x: jax.Array) -> Any:
        del x
        return nnx.split(build(key), nnx.Param, ...)[1]

    def apply(params: Any, x: jax.Array) -> jax.Array:
        # Counters of random numbers are made anew: a model here is a function of (params, x).
        fresh = nnx.split(build(jax.random.key(0)), nnx.Param, ...)[2] if rest else rest
        return nnx.merge(graph, params, fresh)(x)

    return Model(init, apply)
