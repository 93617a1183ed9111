"""Scaled sign: one bit an entry, and the mean of the absolute values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.compressors import _rounding, codecs
from dtjax.compressors.compressor import CONTRACTIVE, Compressor
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class ScaledSign(Compressor):
    """See `scaled_sign`."""

    @property
    def family(self) -> str:
        """CONTRACTIVE."""
        return CONTRACTIVE

    def constant(self, shape: tuple[int, ...]) -> float:
        """Return delta = 1 / d, reached where one entry alone is not 0."""
        return 1 / max(math.prod(shape), 1)

    def compress(self, memory: Any, x: jax.Array, key: Any, step: Any) -> tuple[Any, jax.Array]:
        """Return mean|x| sign(x), with sign(0) = 1."""
        del key, step
        scale = _rounding.mean(jnp.abs(_rounding.flat(x)))
        return memory, jnp.where(x < 0, -scale, scale)

    def size(self, shape: tuple[int, ...], step: Any = 0) -> int:
        """Return 1 bit an entry and 32."""
        del step
        return math.prod(shape) + 32

    def write(self, memory: Any, x: jax.Array, key: Any, step: Any) -> np.ndarray:
        """Write the scale, then 1 for each entry below 0."""
        del memory, key, step
        scale = np.asarray(_rounding.mean(jnp.abs(_rounding.flat(x)))).reshape(1)
        below = np.asarray(x < 0).reshape(-1).astype(np.int64)
        return np.concatenate(
            [codecs.write_floats(scale, np.float32), codecs.write_fixed(below, 1)]
        )

    def read(
        self, bits: np.ndarray, shape: tuple[int, ...], key: Any, step: Any
    ) -> tuple[jax.Array, int]:
        """Read the scale and the signs."""
        del key, step
        count = math.prod(shape)
        scale = codecs.read_floats(bits[:32], np.float32, 1)[0]
        below = codecs.read_fixed(bits[32 : 32 + count], 1, count)
        return jnp.asarray(np.where(below == 1, -scale, scale)).reshape(shape), 32 + count


def scaled_sign() -> ScaledSign:
    """Send the signs of the entries and the mean of their absolute values.

    C(x) = |x|_1 / d sign(x) with sign(0) = 1, and |C(x) - x|^2 = (1 - delta) |x|^2 exactly, with
    delta = |x|_1^2 / (d |x|^2): 2 / pi for many Gaussian entries, at worst 1 / d. d + 32 bits.

    An entry that is 0 among others is sent as the scale, to be corrected by an error-feedback
    memory; without one it drifts. An array of zeros is sent as 0.

    Example:
        >>> x = jnp.array([3.0, -1.0, 0.0, 0.0])
        >>> scaled_sign().compress((), x, None, 0)[1].tolist()
        [1.0, -1.0, 1.0, 1.0]
        >>> scaled_sign().bits({"w": x})
        36

    Reference:
        Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression schemes",
        ICML 2019.
    """
    return ScaledSign()


EXAMPLE = scaled_sign
