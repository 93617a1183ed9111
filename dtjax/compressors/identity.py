"""No compression: 32 bits an entry."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.compressors import codecs
from dtjax.compressors.compressor import CONTRACTIVE, Compressor
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class Identity(Compressor):
    """See `identity`."""

    @property
    def family(self) -> str:
        """CONTRACTIVE with delta 1, and unbiased with omega 0."""
        return CONTRACTIVE

    @property
    def summable(self) -> bool:
        """True."""
        return True

    def constant(self, shape: tuple[int, ...]) -> float:
        """Return delta = 1: nothing is lost."""
        del shape
        return 1.0

    def compress(self, memory: Any, x: jax.Array, key: Any, step: Any) -> tuple[Any, jax.Array]:
        """Return the array."""
        del key, step
        return memory, x

    def size(self, shape: tuple[int, ...], step: Any = 0) -> int:
        """Return 32 bits an entry."""
        del step
        return 32 * math.prod(shape)

    def write(self, memory: Any, x: jax.Array, key: Any, step: Any) -> np.ndarray:
        """Write binary32 numbers."""
        del memory, key, step
        return codecs.write_floats(np.asarray(x).reshape(-1), np.float32)

    def read(
        self, bits: np.ndarray, shape: tuple[int, ...], key: Any, step: Any
    ) -> tuple[jax.Array, int]:
        """Read binary32 numbers."""
        del key, step
        count = math.prod(shape)
        numbers = codecs.read_floats(bits[: 32 * count], np.float32, count)
        return jnp.asarray(numbers).reshape(shape), 32 * count


def identity() -> Identity:
    """Send gradients as they are, in binary32.

    C(x) = x; 32 d bits, whatever the type: also of bfloat16, which `bf16` sends in 16, and of
    float64, which bytes round.

    Example:
        >>> identity().bits({"w": jnp.zeros((10, 3))})
        960
    """
    return Identity()


EXAMPLE = identity
