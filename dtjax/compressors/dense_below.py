"""What a compressor is applied to; here, the large tensors only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.compressors import codecs
from dtjax.compressors._scope import Scope, innermost
from dtjax.compressors.compressor import CONTRACTIVE, UNBIASED, Compressor
from dtjax.compressors.top_k import top_k
from dtjax.compressors.whole import split
from dtjax.core import checks
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class DenseBelow(Scope):
    """See `dense_below`."""

    entries: int = field(metadata={"static": True})

    @property
    def keeps_zero(self) -> bool:
        """False: zeros count as entries, and may be why an array is not sent as it is."""
        return False

    def constant(self, shape: tuple[int, ...]) -> Any:
        """Return that of the compressor inside; of what is sent dense, that nothing is lost."""
        if math.prod(shape) < self.entries:
            return {CONTRACTIVE: 1.0, UNBIASED: 0.0}.get(self.family)
        return self.compressor.constant(shape)

    def array_memory(self, x: jax.Array) -> Any:
        """Return what is kept of an array that is not sent dense."""
        return () if x.size < self.entries else self.compressor.array_memory(x)

    def compress(
        self, memory: Any, x: jax.Array, key: jax.Array, step: jax.Array
    ) -> tuple[Any, jax.Array]:
        """Compress an array, if it is large enough."""
        return (
            (memory, x) if x.size < self.entries else self.compressor.compress(memory, x, key, step)
        )

    def size(self, shape: tuple[int, ...], step: Any = 0) -> Any:
        """Return 32 bits an entry, or those of the compressor inside."""
        d = math.prod(shape)
        return 32 * d if d < self.entries else self.compressor.size(shape, step)

    def message_size(self, message: jax.Array, step: Any = 0) -> Any:
        """Return 32 bits an entry, or those of the compressor inside."""
        d = message.size
        return 32 * d if d < self.entries else self.compressor.message_size(message, step)

    def memory(self, params: Any) -> Any:
        """Return the memory of the tensors that are large enough."""
        return self.compressor.memory(self._large(params))

    def compress_tree(
        self, memory: Any, gradient: Any, key: jax.Array, step: jax.Array
    ) -> tuple[Any, Any]:
        """Compress the tensors that are large enough."""
        large = self._large(gradient)
        memory, message = self.compressor.compress_tree(memory, large, key, step)
        return memory, self._put(gradient, message)

    def bits(self, params: Any, step: Any = 0) -> Any:
        """Count the bits of a message before the gradient is known."""
        return self._dense_bits(params) + self.compressor.bits(self._large(params), step)

    def message_bits(self, message: Any, step: Any = 0) -> Any:
        """Count the bits of a message."""
        large = self._large(message)
        return self._dense_bits(message) + self.compressor.message_bits(large, step)

    @property
    def decode(self) -> Callable[[Any], Any]:
        """What the server does to an average: to large tensors what the compressor inside says.

        Raises:
            AttributeError: if it says nothing.
        """
        vote = self.compressor.decode
        return lambda average: self._put(average, vote(self._large(average)))

    def pack(self, gradient: Any, key: jax.Array, *, memory: Any = None, step: int = 0) -> Any:
        """Write the message of a gradient as bytes: first what is dense."""
        small = [np.asarray(leaf).reshape(-1) for leaf in self._small(gradient)]
        dense = codecs.write_floats(np.concatenate([np.zeros(0), *small]), np.float32)
        rest = self.compressor.pack(self._large(gradient), key, memory=memory, step=step)
        return np.concatenate([codecs.to_bytes(dense), rest])

    def unpack(self, data: np.ndarray, like: Any, key: jax.Array, *, step: int = 0) -> Any:
        """Read what the receiver gets."""
        small, large = self._small(like), self._large(like)
        count = sum(leaf.size for leaf in small)
        bits = codecs.from_bytes(data[: 4 * count], 32 * count)
        numbers = jnp.asarray(codecs.read_floats(bits, np.float32, count))
        message = self.compressor.unpack(data[4 * count :], large, key, step=step)
        return self._put(split({"": numbers}, small), message, like)

    def _is_small(self, leaf: Any) -> bool:
        return math.prod(leaf.shape) < self.entries

    def _large(self, tree: Any) -> dict[str, Any]:
        """Return the tensors that are large enough by their paths."""
        pairs = jax.tree_util.tree_leaves_with_path(tree)
        named = {jax.tree_util.keystr(path): leaf for path, leaf in pairs}
        return {path: leaf for path, leaf in named.items() if not self._is_small(leaf)}

    def _small(self, tree: Any) -> list[Any]:
        """Return the others."""
        return [leaf for leaf in jax.tree.leaves(tree) if self._is_small(leaf)]

    def _dense_bits(self, tree: Any) -> int:
        return sum(32 * math.prod(leaf.shape) for leaf in self._small(tree))

    def _put(self, dense: Any, large: dict[str, Any], like: Any = None) -> Any:
        """Put large tensors among the small ones: of a tree, or listed for the tree `like`."""
        like = dense if like is None else like
        small = iter(self._small(dense))

        def choose(path: Any, leaf: Any) -> Any:
            return next(small) if self._is_small(leaf) else large[jax.tree_util.keystr(path)]

        return jax.tree_util.tree_map_with_path(choose, like)


def dense_below(compressor: Any, size: int) -> DenseBelow:
    """Send tensors with fewer than `size` entries as they are, 32 bits an entry.

    Biases and the scales of norms are few and matter much.

    Args:
        compressor: of the other tensors; `error_feedback(dense_below(c, size))` is
            `dense_below(error_feedback(c), size)`.
        size: in entries, 0 or more.

    Raises:
        ValueError: if it is not a compressor, or adds momentum, which the dense tensors would
            lack; or if the size is out of its range.

    Example:
        >>> from dtjax.compressors import top_k
        >>> compressor = dense_below(top_k(0.25), 10)
        >>> compressor.bits({"b": jnp.zeros(5), "w": jnp.zeros((10, 2))})
        480
    """
    if not isinstance(compressor, Compressor):
        raise checks.fail("dense_below", "compressor", "must be a compressor", compressor)
    if hasattr(innermost(compressor), "momentum"):
        rule = "must add no momentum, which the dense tensors would lack"
        raise checks.fail("dense_below", "compressor", rule, compressor)
    return DenseBelow(compressor, checks.integer("dense_below", "size", size))


def EXAMPLE() -> Any:  # noqa: N802
    """Return one for the conformance suite; made here, not at import, which starts no device."""
    return dense_below(top_k(0.25), 5)
