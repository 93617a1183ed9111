"""What the checks share."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def require(condition: Any, sentence: str) -> None:
    """Raise with this sentence unless the condition holds."""
    if not condition:
        raise AssertionError(sentence)


def require_methods(thing: Any, *methods: str) -> None:
    """Raise unless the object has these methods."""
    for method in methods:
        found = callable(getattr(thing, method, None))
        require(found, f"{type(thing).__name__} has no method {method}")


def require_numbers(thing: Any) -> None:
    """Raise unless the object is a pytree of numbers."""
    name = type(thing).__name__
    for leaf in jax.tree.leaves(thing):
        number = isinstance(leaf, (jax.Array, np.ndarray, np.generic, bool, int, float))
        what = "itself (register the class as a pytree)" if leaf is thing else repr(leaf)
        require(number, f"{name} must be a pytree of numbers, but a leaf is {what}")


@contextmanager
def stage(name: str, when: str) -> Generator[None]:
    """Turn what goes wrong inside into a sentence."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{name} fails {when}: {error}") from error


def kinds(tree: Any) -> Any:
    """Return the tree with the shape and type of each array in its place."""
    return jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", tree)


def close(a: Any, b: Any) -> bool:
    """Whether two arrays agree to the rounding of a few operations."""
    return np.allclose(a, b, rtol=1e-4, atol=1e-30, equal_nan=True)


def changed(tree: Any) -> list[Any]:
    """Return copies of the tree, each with another of its numbers changed by a little."""
    leaves, structure = jax.tree.flatten(tree)
    copies = []
    for place, leaf in enumerate(leaves):
        kind = jnp.result_type(leaf)
        if jnp.issubdtype(kind, jnp.floating):
            other = leaf * (1 - 1 / 64)
        elif jnp.issubdtype(kind, jnp.integer) and np.ndim(leaf) == 0:
            other = leaf - 1 if leaf > 1 else leaf + 1
        else:
            continue
        if not isinstance(leaf, (int, float)):
            other = jnp.asarray(other, kind)
        copies.append(jax.tree.unflatten(structure, [*leaves[:place], other, *leaves[place + 1 :]]))
    return copies


def stack(trees: list[Any]) -> Any:
    """Stack trees of one structure, leaf by leaf."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *trees)
