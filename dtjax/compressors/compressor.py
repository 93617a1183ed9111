"""What compressors share: from one array to a gradient's tree, optax, bits and bytes.

A compressor is written for one array. This class applies it to every tensor of a gradient, and
gives the three faces that users see: the trainer's encoder, an optax transformation, and a codec.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.compressors import codecs
from dtjax.core import checks, random

CONTRACTIVE, UNBIASED, NEITHER = "contractive", "unbiased", "neither"
"""The classes: E|C(x) - x|^2 <= (1 - delta) |x|^2; E C(x) = x with E|C(x) - x|^2 <= omega |x|^2."""


class State(NamedTuple):
    """What the optax transformation keeps."""

    memory: Any
    key: jax.Array  # key[] of what is drawn; replace it to make runs differ
    step: jax.Array  # i[] updates so far


class Compressor:
    """A compressor of one array; a subclass is a frozen dataclass registered as a pytree.

    A subclass gives `compress` and `size`, and says its `family`; where messages can be written as
    bytes also `write` and `read`. Numbers are traced leaves; what decides a shape is static.
    """

    @property
    def family(self) -> str:
        """CONTRACTIVE, UNBIASED or NEITHER."""
        raise NotImplementedError(f"{type(self).__name__}: a compressor must say its family")

    @property
    def deterministic(self) -> bool:
        """Whether the same array always gives the same message."""
        return True

    @property
    def summable(self) -> bool:
        """Whether compressed messages of several workers may be summed in transit."""
        return False

    @property
    def shared(self) -> bool:
        """Whether all the workers draw the same random numbers at the same step."""
        return False

    @property
    def remembers(self) -> bool:
        """Whether anything is kept between two gradients."""
        return False

    @property
    def keeps_zero(self) -> bool:
        """Whether entries that are zero stay so, and change nothing in what becomes of others."""
        return False

    @property
    def sized(self) -> bool:
        """Whether `bits` is what every message takes, whatever the gradient, and not a bound."""
        return True

    def constant(self, shape: tuple[int, ...]) -> Any:
        """Return delta (contractive) or omega (unbiased) for arrays of a shape; None: not known."""
        del shape
        return None

    # One array.

    def array_memory(self, x: jax.Array) -> Any:
        """Return what is kept of one array before the first gradient, a pytree."""
        del x
        return ()

    def compress(
        self, memory: Any, x: jax.Array, key: jax.Array, step: jax.Array
    ) -> tuple[Any, jax.Array]:
        """Return (memory, what the receiver reads out of the message), of the shape of x."""
        raise NotImplementedError(f"{type(self).__name__}: a compressor must define compress")

    def size(self, shape: tuple[int, ...], step: Any = 0) -> Any:
        """Return the bits of a message before the gradient is known: exact, or a bound."""
        raise NotImplementedError(f"{type(self).__name__}: a compressor must define size")

    def message_size(self, message: jax.Array, step: Any = 0) -> Any:
        """Return the bits of this message exactly."""
        return self.size(message.shape, step)

    def write(self, memory: Any, x: jax.Array, key: jax.Array, step: int) -> np.ndarray:
        """Return the message as bits, on the host."""
        raise NotImplementedError(f"{type(self).__name__}: no codec is known for its messages")

    def read(
        self, bits: np.ndarray, shape: tuple[int, ...], key: jax.Array, step: int
    ) -> tuple[jax.Array, int]:
        """Return what `compress` gave, from the first bits of a vector, and how many they were."""
        raise NotImplementedError(f"{type(self).__name__}: no codec is known for its messages")

    # A gradient: a tree of arrays.

    def memory(self, params: Any) -> Any:
        """Return the memory of one worker before its first gradient, by the path of each tensor."""
        return {path: self.array_memory(leaf) for path, leaf in _named(params)}

    def encode(self, memory: Any, gradient: Any, extras: Any) -> tuple[Any, Any]:
        """Return (memory, message): see `dtjax.protocols.Encoder`."""
        key = extras.shared if self.shared else extras.key
        return self.compress_tree(memory, gradient, key, extras.step)

    def compress_tree(
        self, memory: Any, gradient: Any, key: jax.Array, step: jax.Array
    ) -> tuple[Any, Any]:
        """Compress every tensor of a gradient.

        Raises:
            ValueError: if the memory is not of tensors of these shapes.
        """
        name = type(self).__name__
        _same_shapes(name, memory, jax.eval_shape(self.memory, gradient))
        after, message = {}, []
        for place, (path, leaf) in enumerate(_named(gradient)):
            kept, sent = memory[path], leaf
            if leaf.size:
                kept, sent = self.compress(kept, leaf, random.fold(key, place), step)
            after[path] = kept
            message.append(sent.astype(leaf.dtype))
        return after, jax.tree.unflatten(jax.tree.structure(gradient), message)

    # optax.

    def init(self, params: Any) -> State:
        """Start as an optax transformation; `transformation` takes a key."""
        return State(self.memory(params), jax.random.key(0, impl=random.DEFAULT), jnp.int32(0))

    def update(
        self, updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, State]:
        """Replace the gradient by what a receiver would read, as an optax transformation."""
        del params, extra
        own = random.fold(state.key, state.step)
        memory, message = self.compress_tree(state.memory, updates, own, state.step)
        return message, State(memory, state.key, state.step + 1)

    def transformation(self, key: jax.Array | None = None) -> Any:
        """Return an `optax.GradientTransformation` with a key of its own."""
        import optax

        def init(params: Any) -> State:
            start = self.init(params)
            return start if key is None else start._replace(key=random.plain(key))

        return optax.GradientTransformationExtraArgs(init, self.update)

    # Bits and bytes.

    def bits(self, params: Any, step: Any = 0) -> Any:
        """Count the bits of a message before the gradient is known: exact, or a declared bound.

        Args:
            params: a tree of arrays, or of anything with a `shape`.
            step: how many gradients were sent before.

        Returns:
            A number of Python, exact, where the compressor's numbers are concrete; else f[].
        """
        leaves = jax.tree.leaves(params)
        return sum(self.size(tuple(leaf.shape), step) for leaf in leaves if np.prod(leaf.shape))

    def message_bits(self, message: Any, step: Any = 0) -> Any:
        """Count the bits of a message exactly, from what the receiver reads out of it.

        Where what was sent cannot be read out of it, in `ef21` and `compose`, this is `bits`.

        Args:
            message: of a finite gradient.
            step: how many gradients were sent before it; `dgc` keeps more in a warm-up.
        """
        return sum(self.message_size(leaf, step) for leaf in jax.tree.leaves(message) if leaf.size)

    def pack(self, gradient: Any, key: jax.Array, *, memory: Any = None, step: int = 0) -> Any:
        """Write the message of a gradient as bytes, u8[ceil(bits / 8)], on the host.

        Args:
            gradient: a tree of arrays.
            key: as in `compress_tree`.
            memory: as in `compress_tree`; None: as before the first gradient.
            step: as in `compress_tree`.

        Raises:
            ValueError: if the memory is not of tensors of these shapes.
        """
        fresh = self.memory(gradient) if memory is None else jax.eval_shape(self.memory, gradient)
        memory = fresh if memory is None else memory
        _same_shapes(type(self).__name__, memory, fresh)
        written = [
            self.write(memory[path], jnp.asarray(leaf), random.fold(key, place), step)
            for place, (path, leaf) in enumerate(_named(gradient))
            if np.size(leaf)
        ]
        return codecs.to_bytes(np.concatenate([np.zeros(0, np.uint8), *written]))

    def unpack(self, data: np.ndarray, like: Any, key: jax.Array, *, step: int = 0) -> Any:
        """Read what the receiver gets out of bytes that `pack` wrote.

        Args:
            data: u8[...].
            like: a tree of arrays of the gradient's shapes.
            key: as in `pack`: where masks are drawn from a seed, the receiver draws them too.
            step: as in `pack`.
        """
        leaves, tree = jax.tree.flatten(like)
        bits, found = codecs.from_bytes(data, 8 * len(data)), []
        for place, leaf in enumerate(leaves):
            if not leaf.size:
                found.append(leaf)
                continue
            message, used = self.read(bits, leaf.shape, random.fold(key, place), step)
            bits = bits[used:]
            found.append(message.astype(leaf.dtype))
        return jax.tree.unflatten(tree, found)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other numbers: sweeps under `vmap` replace leaves by tracers."""
        from dataclasses import replace

        return replace(self, **changes)  # ty: ignore[invalid-argument-type]


@dataclass(frozen=True)
class Around(Compressor):
    """A compressor around another one, its field `compressor`: what both say alike."""

    compressor: Any

    @property
    def deterministic(self) -> bool:
        """That of the compressor inside."""
        return self.compressor.deterministic

    @property
    def sized(self) -> bool:
        """That of the compressor inside."""
        return self.compressor.sized

    @property
    def summable(self) -> bool:
        """That of the compressor inside."""
        return self.compressor.summable

    @property
    def shared(self) -> bool:
        """That of the compressor inside."""
        return self.compressor.shared


def _named(tree: Any) -> list[tuple[str, Any]]:
    """Return the leaves of a tree with their paths."""
    pairs = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in pairs]


def _same_shapes(name: str, memory: Any, expected: Any) -> None:
    """Raise unless the memory has the structure and shapes that a fresh one would have."""
    found, wanted = (
        {path: np.shape(leaf) for path, leaf in _named(tree)} for tree in (memory, expected)
    )
    if found != wanted or jax.tree.structure(memory) != jax.tree.structure(expected):
        rule = f"must be of tensors like the gradient's, {wanted}"
        raise checks.fail(name, "memory", rule, found)
