"""Floating-point numbers of 16 and 8 bits: the class behind `fp16`, `bf16` and `fp8`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dtjax.compressors import codecs
from dtjax.compressors.compressor import CONTRACTIVE, NEITHER, Compressor
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class Floats(Compressor):
    """See `fp16`, `bf16` and `fp8`."""

    dtype: str = field(metadata={"static": True})

    @property
    def family(self) -> str:
        """CONTRACTIVE for bf16, which has the range of binary32; else NEITHER: they overflow."""
        return CONTRACTIVE if self.dtype == "bfloat16" else NEITHER

    @property
    def summable(self) -> bool:
        """True: sums are of the same type, and then lose bits of their own."""
        return True

    @property
    def keeps_zero(self) -> bool:
        """True."""
        return True

    @property
    def relative_error(self) -> float:
        """|C(x) - x| <= relative_error |x| in the normal range: half a unit of the last place."""
        return float(jnp.finfo(self.dtype).eps) / 2

    def constant(self, shape: tuple[int, ...]) -> float | None:
        """Return delta = 1 - relative_error^2 of bf16; else None."""
        del shape
        return 1 - self.relative_error**2 if self.family == CONTRACTIVE else None

    def compress(self, memory: Any, x: jax.Array, key: Any, step: Any) -> tuple[Any, jax.Array]:
        """Return the nearest number of the type."""
        del key, step
        number = x.astype(self.dtype)
        # XLA may merge a conversion with its way back (xla_allow_excess_precision), and nothing
        # would be rounded; it does not look through a step on integers.
        code = lax.bitcast_convert_type(number, f"uint{self._width()}")
        code = jnp.where(x == 0, jnp.zeros_like(code), code)
        return memory, lax.bitcast_convert_type(code, self.dtype).astype(jnp.float32)

    def size(self, shape: tuple[int, ...], step: Any = 0) -> int:
        """Return the bits of the type an entry."""
        del step
        return self._width() * math.prod(shape)

    def write(self, memory: Any, x: jax.Array, key: Any, step: Any) -> np.ndarray:
        """Write numbers of the type."""
        sent = np.asarray(self.compress(memory, x, key, step)[1]).reshape(-1)
        return codecs.write_floats(sent, jnp.dtype(self.dtype))

    def read(
        self, bits: np.ndarray, shape: tuple[int, ...], key: Any, step: Any
    ) -> tuple[jax.Array, int]:
        """Read numbers of the type."""
        del key, step
        count, end = math.prod(shape), self.size(shape)
        numbers = codecs.read_floats(bits[:end], jnp.dtype(self.dtype), count)
        return jnp.asarray(numbers.astype(np.float32)).reshape(shape), end

    def _width(self) -> int:
        return 8 * jnp.dtype(self.dtype).itemsize
