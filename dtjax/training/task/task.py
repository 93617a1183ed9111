"""What is learned: a loss, its mini-batches and its measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax

from dtjax.core.pytree import pytree


class Version(NamedTuple):
    """A version of a model that has state: what a worker reads, and what a run ends with."""

    params: Any  # what has gradients
    state: Any  # what has none, of floats: running statistics


@pytree
@dataclass(frozen=True)
class Task:
    """A learning problem as pure functions over data: the trainer sees nothing else of it.

    `batch` is a virtual table: the mini-batch of (key, worker, step) depends on nothing else.
    Functions are static: programs compiled for one task serve another whose functions are equal.
    Let them be functions of a module, or frozen dataclasses with `__call__`, and put arrays into
    `data`.

    A version of the model is its parameters; or, with `advance`, a `Version` of parameters and
    state. Then the server keeps the state: each update adds the mean, weighted by examples, of
    advance(Version(parameters read, newest state), mini-batch) - newest state over its gradients.
    """

    data: Any
    """Arrays that the functions get as their first argument."""
    init: Callable[[Any, jax.Array], Any] = field(metadata={"static": True})
    """(data, key) -> version 0."""
    loss: Callable[[Any, Any], jax.Array] = field(metadata={"static": True})
    """(version, batch) -> f[], the mean over the examples of the batch."""
    batch: Callable[..., Any] = field(metadata={"static": True})
    """(data, key, worker i[], step i[], examples f[]) -> batch: a pytree of fixed shapes, in which
    only the first `examples` examples count."""
    evaluate: Callable[[Any, Any], dict[str, jax.Array]] = field(metadata={"static": True})
    """(data, version) -> measures by name, arrays of fixed shapes."""
    workers: int | None = field(default=None, metadata={"static": True})
    """How many workers `batch` knows; None: any number."""
    examples: int | None = field(default=None, metadata={"static": True})
    """How many examples a mini-batch holds at most; None: any number."""
    advance: Callable[[Any, Any], Any] | None = field(default=None, metadata={"static": True})
    """(version, batch) -> its state after the batch; None: the model has no state."""


def trainable(task: Task, version: Any) -> Any:
    """Return the parameters of a version: what has gradients."""
    return version if task.advance is None else version.params
