"""A compressor applied to the whole gradient as one vector."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.compressors._scope import Scope
from dtjax.compressors.compressor import Compressor
from dtjax.compressors.top_k import top_k
from dtjax.core import checks
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class Whole(Scope):
    """See `whole`."""

    def constant(self, shape: tuple[int, ...]) -> Any:
        """Return that of the compressor inside, for the vector."""
        return self.compressor.constant((math.prod(shape),))

    def array_memory(self, x: jax.Array) -> Any:
        """Return what is kept of the array as a vector."""
        return self.compressor.array_memory(x.reshape(-1))

    def compress(
        self, memory: Any, x: jax.Array, key: jax.Array, step: jax.Array
    ) -> tuple[Any, jax.Array]:
        """Compress one array as a vector."""
        memory, message = self.compressor.compress(memory, x.reshape(-1), key, step)
        return memory, message.reshape(x.shape)

    def size(self, shape: tuple[int, ...], step: Any = 0) -> Any:
        """Return the bits of the vector."""
        return self.compressor.size((math.prod(shape),), step)

    def message_size(self, message: jax.Array, step: Any = 0) -> Any:
        """Return the bits of the vector."""
        return self.compressor.message_size(message.reshape(-1), step)

    def memory(self, params: Any) -> Any:
        """Return the memory of the gradient as one vector."""
        return self.compressor.memory(joined(params))

    def compress_tree(
        self, memory: Any, gradient: Any, key: jax.Array, step: jax.Array
    ) -> tuple[Any, Any]:
        """Compress the gradient as one vector."""
        memory, message = self.compressor.compress_tree(memory, joined(gradient), key, step)
        return memory, split(message, gradient)

    def bits(self, params: Any, step: Any = 0) -> Any:
        """Count the bits of a message before the gradient is known."""
        count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
        return self.compressor.bits(jax.ShapeDtypeStruct((count,), jnp.float32), step)

    def message_bits(self, message: Any, step: Any = 0) -> Any:
        """Count the bits of a message."""
        return self.compressor.message_bits(joined(message), step)

    @property
    def decode(self) -> Callable[[Any], Any]:
        """What the server does to an average of vectors; only where the compressor inside has it.

        Raises:
            AttributeError: if it has not.
        """
        vote = self.compressor.decode
        return lambda average: split(vote(joined(average)), average)

    def pack(self, gradient: Any, key: jax.Array, *, memory: Any = None, step: int = 0) -> Any:
        """Write the message of a gradient as bytes."""
        return self.compressor.pack(joined(gradient), key, memory=memory, step=step)

    def unpack(self, data: np.ndarray, like: Any, key: jax.Array, *, step: int = 0) -> Any:
        """Read what the receiver gets."""
        return split(self.compressor.unpack(data, joined(like), key, step=step), like)


def joined(tree: Any) -> dict[str, jax.Array]:
    """Join tensors to one vector, under a name that changes with their paths and shapes."""
    pairs = jax.tree_util.tree_leaves_with_path(tree)
    if not pairs:
        return {"": jnp.zeros(0)}
    name = " ".join(f"{jax.tree_util.keystr(path)}{list(leaf.shape)}" for path, leaf in pairs)
    kind = jnp.result_type(*(leaf.dtype for _, leaf in pairs))
    parts = [jnp.asarray(leaf).reshape(-1).astype(kind) for _, leaf in pairs]
    return {name: parts[0] if len(parts) == 1 else jnp.concatenate(parts)}


def split(joined: dict[str, jax.Array], like: Any) -> Any:
    """Undo `joined`."""
    (vector,) = joined.values()
    leaves, tree = jax.tree.flatten(like)
    ends = np.cumsum([0, *(leaf.size for leaf in leaves)]).tolist()
    parts = [
        vector[start:end].reshape(leaf.shape).astype(leaf.dtype)
        for leaf, start, end in zip(leaves, ends[:-1], ends[1:], strict=True)
    ]
    return jax.tree.unflatten(tree, parts)


def whole(compressor: Any) -> Whole:
    """Apply a compressor to the whole gradient as one vector, not to each tensor.

    A ratio is of all the entries, so that some tensors may send nothing; a scale is for all.

    Args:
        compressor: any. `error_feedback(whole(c))` is `whole(error_feedback(c))`.

    Raises:
        ValueError: if it is not a compressor.

    Example:
        >>> from dtjax.compressors import top_k
        >>> gradient = {"b": jnp.array([1.0, 2.0]), "w": jnp.array([[5.0, 4.0], [3.0, 0.0]])}
        >>> compressor = whole(top_k(0.5))
        >>> message, _ = compressor.update(gradient, compressor.init(gradient))
        >>> message["b"].tolist(), message["w"].tolist()
        ([0.0, 0.0], [[5.0, 4.0], [3.0, 0.0]])
    """
    if not isinstance(compressor, Compressor):
        raise checks.fail("whole", "compressor", "must be a compressor", compressor)
    return Whole(compressor)


def EXAMPLE() -> Any:  # noqa: N802
    """Return one for the conformance suite; made here, not at import, which starts no device."""
    return whole(top_k(k=3, indices="bitmap"))
