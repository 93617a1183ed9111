"""Models as pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax


class Model(NamedTuple):
    """A model: pure functions of a version, which is its parameters.

    If it has state besides them (running statistics), a version is a `dtjax.task.Version`, and
    there is `train`.
    """

    init: Callable[[jax.Array, jax.Array], Any]
    """(key, x) -> version 0."""
    apply: Callable[[Any, jax.Array], jax.Array]
    """(version, x) -> outputs, as the model is evaluated."""
    train: Callable[[Any, jax.Array, jax.Array], tuple[jax.Array, Any]] | None = None
    """(version, x, key) -> (outputs, state after x), as it is trained; `key` is of the worker's
    computation, for random masks. Without state it is (). None: it is trained as evaluated."""
    start: Any = None
    """Version 0 of every run, where it does not depend on the key: what `init` returns."""
