"""The entries whose magnitude reaches a fixed level."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dtjax.compressors import codecs
from dtjax.compressors._places import places_size
from dtjax.compressors.compressor import NEITHER, Compressor
from dtjax.core import checks
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class Threshold(Compressor):
    """See `threshold`."""

    level: jax.Array  # f[]
    indices: str = field(metadata={"static": True})

    @property
    def family(self) -> str:
        """NEITHER: the error is bounded in absolute terms."""
        return NEITHER

    @property
    def sized(self) -> bool:
        """False: how many entries reach the level depends on the gradient."""
        return False

    @property
    def keeps_zero(self) -> bool:
        """True."""
        return True

    def compress(self, memory: Any, x: jax.Array, key: Any, step: Any) -> tuple[Any, jax.Array]:
        """Keep entries of the level or more, and NaN."""
        del key, step
        small = jnp.abs(x) < self.level.astype(x.dtype)
        return memory, jnp.where(small, jnp.zeros_like(x), x)

    def size(self, shape: tuple[int, ...], step: Any = 0) -> int:
        """Return the bound: the count, and every entry dense."""
        del step
        return 32 + 32 * math.prod(shape)

    def message_size(self, message: jax.Array, step: Any = 0) -> Any:
        """Return the bits of the count and of what is not zero, sparse or dense."""
        del step
        sent = (message != 0).reshape(-1)
        index, dense = places_size(self.indices, sent), 32 * message.size
        if checks.is_concrete(sent):
            many = int(np.asarray(sent).sum())
            return 32 + (index + 32 * many if self._sparse(message.size, many) else dense)
        many = jnp.sum(sent, dtype=jnp.int32)
        size = index + 32.0 * many.astype(float)
        return 32.0 + jnp.where(self._sparse(message.size, many), size, float(dense))

    def _sparse(self, d: int, many: Any) -> Any:
        """Whether indices and values are sent: from what the receiver knows, so by the bound."""
        words = 32.0 * many.astype(float) if isinstance(many, jax.Array) else 32 * many
        return codecs.index_bits(self.indices, d, many) + words < 32 * d

    def write(self, memory: Any, x: jax.Array, key: Any, step: Any) -> np.ndarray:
        """Write how many entries there are; then them all, or indices and values, if shorter."""
        message = np.asarray(self.compress(memory, x, key, step)[1]).reshape(-1)
        places = np.flatnonzero(message)
        head = codecs.write_fixed([len(places)], 32)
        if not self._sparse(x.size, len(places)):
            return np.concatenate([head, codecs.write_floats(message, np.float32)])
        indices = codecs.write_indices(self.indices, places, x.size)
        return np.concatenate([head, indices, codecs.write_floats(message[places], np.float32)])

    def read(
        self, bits: np.ndarray, shape: tuple[int, ...], key: Any, step: Any
    ) -> tuple[jax.Array, int]:
        """Read the count, which says whether indices follow."""
        del key, step
        d, many = math.prod(shape), int(codecs.read_fixed(bits[:32], 32, 1)[0])
        places, used = np.arange(d), 32
        if self._sparse(d, many):
            places, length = codecs.read_indices(self.indices, bits[32:], d, many)
            used += length
        end = used + 32 * len(places)
        message = np.zeros(d, np.float32)
        message[places] = codecs.read_floats(bits[used:end], np.float32, len(places))
        return jnp.asarray(message).reshape(shape), end


def threshold(level: ArrayLike, indices: str = "packed") -> Threshold:
    """Keep the entries of magnitude `level` or more, however many they are.

    |C(x) - x|^2 <= d level^2. A message is their number (32 bits), then their indices and values,
    or all d values where that is shorter (Golomb-Rice indices: than their bound). `bits` gives the
    bound 32 + 32 d, `message_bits` what the message takes.

    Args:
        level: 0 or more, in units of the gradient.
        indices: how the places are coded: "int32", "packed", "bitmap" or "golomb", see
            `dtjax.codecs.index_bits`.

    Raises:
        ValueError: if the level is negative or not finite, or the code unknown.

    Example:
        >>> compressor, x = threshold(2.0), jnp.array([1.0, -9.0, 2.0, 0.5])
        >>> message = compressor.compress((), x, None, 0)[1]
        >>> message.tolist(), compressor.message_bits(message), compressor.bits(x)
        ([0.0, -9.0, 2.0, 0.0], 100, 160)

    Reference:
        Strom, "Scalable distributed DNN training using commodity GPU cloud computing",
        Interspeech 2015; Dutta et al., "On the discrepancy between the theoretical analysis and
        practical implementations of compressed communication", AAAI 2020.
    """
    return Threshold(
        checks.real("threshold", "level", level, checks.NON_NEGATIVE, ndim=0),
        checks.choice("threshold", "indices", indices, codecs.INDEX_CODES),
    )


EXAMPLE = partial(threshold, 0.5)
