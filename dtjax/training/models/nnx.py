"""Flax NNX modules as models."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dtjax.core import checks, random
from dtjax.training.models.held import Held, switch_of, switched
from dtjax.training.models.model import Model
from dtjax.training.task.task import Version


def from_nnx(module: Any) -> Model:
    """Make a model of an NNX module, or of a function that makes one; see `from_flax`."""
    from flax import nnx

    own = isinstance(module, nnx.Module)
    build = None if own else _builder(module)
    shapes = module if build is None else nnx.eval_shape(lambda: build(jax.random.key(0)))
    evaluated, trained = _split(shapes, "eval"), _split(shapes, "train")
    graph, _, noise, state = trained
    rngs = Rngs(
        jax.tree.structure(noise),
        tuple((_is_key(leaf), leaf.shape) for leaf in jax.tree.leaves(noise)),
    )
    stateful = bool(jax.tree.leaves(state))
    switch = switch_of(shapes.__call__)
    told = switch is not None or bool(rngs.leaves) or stateful or graph != evaluated[0]
    start = _version(trained) if own else None
    return Model(
        init=partial(_started, start) if build is None else _Init(build),
        apply=_Apply(graph=Held(evaluated[0]), rngs=rngs, switch=switch),
        train=_Train(graph=Held(graph), rngs=rngs, switch=switch) if told else None,
        start=start,
    )


@dataclass(frozen=True)
class _Build:
    """Makes a module from a key."""

    made: Held  # (function, arguments, keywords): a partial itself is compared by identity
    by_name: bool

    def __call__(self, key: jax.Array) -> Any:
        from flax import nnx

        function, arguments, keywords = self.made.value
        streams, named = nnx.Rngs(key), dict(keywords)
        if self.by_name:
            module = function(*arguments, rngs=streams, **named)
        else:
            module = function(*arguments, streams, **named)
        if not isinstance(module, nnx.Module):
            raise checks.fail("from_flax", "module", "must make an NNX module", module)
        return module


def _builder(make: Callable[..., Any]) -> _Build:
    inner: Any = make
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    while isinstance(inner, partial):
        arguments, keywords = inner.args + arguments, inner.keywords | keywords
        inner = inner.func
    asked = inner.__init__ if isinstance(inner, type) else inner
    by_name = "rngs" in inspect.signature(asked).parameters  # it may be keyword-only
    return _Build(Held((inner, arguments, tuple(keywords.items()))), by_name)


@dataclass(frozen=True)
class Rngs:
    """The random streams of a module: made anew from a key, and not counted on."""

    structure: Any
    leaves: tuple[tuple[bool, tuple[int, ...]], ...]  # is it a key or a counter, and its shape

    def seeded(self, key: jax.Array) -> Any:
        """Return all streams at their beginning, each with a key of its own."""
        made = []
        for place, (is_key, shape) in enumerate(self.leaves):
            own = random.fold(key, place) if is_key else None
            if own is None:
                made.append(jnp.zeros(shape, jnp.uint32))
            else:
                made.append(jax.random.split(own, shape) if shape else own)
        return jax.tree.unflatten(self.structure, made)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _split(module: Any, mode: str) -> tuple[Any, Any, Any, Any]:
    """Return the graph, parameters, random streams and state of a module in training or not."""
    from flax import nnx

    module = copy.deepcopy(module)  # the user's own keeps its mode
    getattr(module, mode)()
    graph, params, noise, _, state = nnx.split(
        module, nnx.Param, nnx.RngState, nnx.Intermediate, ...
    )
    return graph, params, noise, state


def _version(parts: tuple[Any, Any, Any, Any]) -> Any:
    _, params, _, state = parts
    return Version(params, state) if jax.tree.leaves(state) else params


def _started(start: Any, key: jax.Array, x: jax.Array) -> Any:
    del key, x
    return start


@dataclass(frozen=True)
class _Init:
    build: _Build

    def __call__(self, key: jax.Array, x: jax.Array) -> Any:
        del x
        return _version(_split(self.build(key), "train"))


@dataclass(frozen=True)
class _Module:
    graph: Held
    rngs: Rngs
    switch: str | None

    def merged(self, version: Any, key: jax.Array | None) -> Any:
        """Return the module of a version, with random streams of a key."""
        from flax import nnx

        version = version if isinstance(version, Version) else Version(version, nnx.State({}))
        if self.rngs.leaves and key is None:
            key = jax.random.key(0)  # who draws in evaluation draws the same always
        streams = nnx.State({}) if key is None else self.rngs.seeded(key)
        return nnx.merge(self.graph.value, version.params, streams, version.state, copy=True)


@dataclass(frozen=True)
class _Apply(_Module):
    def __call__(self, version: Any, x: jax.Array) -> jax.Array:
        return self.merged(version, None)(x, **switched(self.switch, False))


@dataclass(frozen=True)
class _Train(_Module):
    def __call__(self, version: Any, x: jax.Array, key: jax.Array) -> tuple[jax.Array, Any]:
        from flax import nnx

        module = self.merged(version, key)
        outputs = module(x, **switched(self.switch, True))
        if not isinstance(version, Version):
            return outputs, ()
        return outputs, nnx.split(module, nnx.Param, nnx.RngState, nnx.Intermediate, ...)[4]
