"""What a compressor is applied to: the gradient as one vector, or its large tensors only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax import checks, codecs
from dtjax.compressors.compressor import CONTRACTIVE, UNBIASED, Compressor
from dtjax.compressors.top_k import top_k


@dataclass(frozen=True)
class Scope(Compressor):
    """What both share: in all but what it is applied to, it is the compressor inside."""

    compressor: Any

    @property
    def family(self) -> str:
        """That of the compressor inside."""
        return self.compressor.family

    @property
    def deterministic(self) -> bool:
        """That of the compressor inside."""
        return self.compressor.deterministic

    @property
    def summable(self) -> bool:
        """That of the compressor inside."""
        return self.compressor.summable

    @property
    def shared(self) -> bool:
        """That of the compressor inside."""
        return self.compressor.shared

    @property
    def remembers(self) -> bool:
        """That of the compressor inside."""
        return self.compressor.remembers

    @property
    def keeps_zero(self) -> bool:
        """That of the compressor inside."""
        return self.compressor.keeps_zero


def inside(compressor: Any, wrap: Callable[[Any], Any]) -> Any:
    """Wrap what is in scopes, so that these stay outermost.

    A memory of the whole gradient's compressor is the compressor with memory on the whole gradient;
    of what is sent dense nothing is left to remember.
    """
    if isinstance(compressor, Scope):
        return replace(compressor, compressor=inside(compressor.compressor, wrap))
    return wrap(compressor)


def innermost(compressor: Any) -> Any:
    """Return what is in scopes."""
    return innermost(compressor.compressor) if isinstance(compressor, Scope) else compressor


@jax.tree_util.register_dataclass
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

    def memory(self, params: Any) -> Any:
        """Return the memory of the gradient as one vector."""
        return self.compressor.memory(_joined(params))

    def compress_tree(
        self, memory: Any, gradient: Any, key: jax.Array, step: jax.Array
    ) -> tuple[Any, Any]:
        """Compress the gradient as one vector."""
        memory, message = self.compressor.compress_tree(memory, _joined(gradient), key, step)
        return memory, _split(message, gradient)

    def bits(self, params: Any, step: Any = 0) -> Any:
        """Count the bits of a message before the gradient is known."""
        count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
        return self.compressor.bits(jax.ShapeDtypeStruct((count,), jnp.float32), step)

    def message_bits(self, message: Any) -> Any:
        """Count the bits of a message."""
        return self.compressor.message_bits(_joined(message))

    def pack(self, gradient: Any, key: jax.Array, *, memory: Any = None, step: int = 0) -> Any:
        """Write the message of a gradient as bytes."""
        return self.compressor.pack(_joined(gradient), key, memory=memory, step=step)

    def unpack(self, data: np.ndarray, like: Any, key: jax.Array, *, step: int = 0) -> Any:
        """Read what the receiver gets."""
        return _split(self.compressor.unpack(data, _joined(like), key, step=step), like)


def _joined(tree: Any) -> dict[str, jax.Array]:
    """Join tensors to one vector, under a name that changes with their paths and shapes."""
    pairs = jax.tree_util.tree_leaves_with_path(tree)
    if not pairs:
        return {"": jnp.zeros(0)}
    name = " ".join(f"{jax.tree_util.keystr(path)}{list(leaf.shape)}" for path, leaf in pairs)
    kind = jnp.result_type(*(leaf.dtype for _, leaf in pairs))
    parts = [jnp.asarray(leaf).reshape(-1).astype(kind) for _, leaf in pairs]
    return {name: parts[0] if len(parts) == 1 else jnp.concatenate(parts)}


def _split(joined: dict[str, jax.Array], like: Any) -> Any:
    """Undo `_joined`."""
    (vector,) = joined.values()
    leaves, tree = jax.tree.flatten(like)
    ends = np.cumsum([0, *(leaf.size for leaf in leaves)]).tolist()
    parts = [
        vector[start:end].reshape(leaf.shape).astype(leaf.dtype)
        for leaf, start, end in zip(leaves, ends[:-1], ends[1:], strict=True)
    ]
    return jax.tree.unflatten(tree, parts)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DenseBelow(Scope):
    """See `dense_below`."""

    entries: int = field(metadata={"static": True})

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

    def message_size(self, message: jax.Array) -> Any:
        """Return 32 bits an entry, or those of the compressor inside."""
        d = message.size
        return 32 * d if d < self.entries else self.compressor.message_size(message)

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

    def message_bits(self, message: Any) -> Any:
        """Count the bits of a message."""
        return self._dense_bits(message) + self.compressor.message_bits(self._large(message))

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
        return self._put(_split({"": numbers}, small), message, like)

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


def whole(compressor: Any) -> Whole:
    """Apply a compressor to the whole gradient as one vector, not to each tensor.

    A ratio is of all the entries, so that some tensors may send nothing; a scale is for all.

    Args:
        compressor: any. `error_feedback(whole(c))` is `whole(error_feedback(c))`.

    Raises:
        ValueError: if it is no compressor.

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


def dense_below(compressor: Any, size: int) -> DenseBelow:
    """Send tensors with fewer than `size` entries as they are, 32 bits an entry.

    Biases and the scales of norms are few and matter much.

    Args:
        compressor: of the other tensors; `error_feedback(dense_below(c, size))` is
            `dense_below(error_feedback(c), size)`.
        size: in entries, 0 or more.

    Raises:
        ValueError: if it is no compressor, or adds momentum, which what is dense would lack; or if
            the size is out of its range.

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
