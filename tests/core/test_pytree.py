"""Structures of pytrees tell classes apart, so that `jit` never takes another class's program."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from dtjax import compressors, delays, network, policies
from dtjax.core.pytree import pytree

ALIKE: list[Any] = [
    delays.exponential(1.0),
    delays.uniform(0.0, 1.0),
    delays.pareto(2.0, 1.0),
    delays.weibull(2.0, 1.0),
    compressors.natural(),
    compressors.one_bit(),
    compressors.scaled_sign(),
    compressors.identity(),
    network.fixed(),
    policies.asp(),
]


def test_no_two_classes_have_equal_structures() -> None:
    for a, b in itertools.combinations(map(jax.tree.structure, ALIKE), 2):
        assert a != b


def test_hundreds_of_classes_have_their_own_programs() -> None:
    """With JAX's own function one in ten is given another's: 60 all right have p = .002."""

    def own(number: int) -> Any:
        return pytree(dataclass(frozen=True)(type(f"Kind{number}", (), {"number": number})))

    call = jax.jit(lambda kind: jnp.int32(kind.number))
    assert [int(call(own(number)())) for number in range(60)] == list(range(60))


def test_static_fields_and_paths() -> None:
    @pytree
    @dataclass(frozen=True)
    class Law:
        scale: Any
        workers: int = field(metadata={"static": True})

    leaves, tree = jax.tree_util.tree_flatten_with_path(Law(2.0, 3))
    assert [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves] == [(".scale", 2.0)]
    assert jax.tree.unflatten(tree, [None]) == Law(None, 3)
    assert jax.tree.structure(Law(1.0, 3)) != jax.tree.structure(Law(1.0, 4))
    with pytest.raises(ValueError, match="mismatch|Mismatch|differ"):
        jax.tree.map(lambda a, b: a, Law(1.0, 3), Law(1.0, 4))
