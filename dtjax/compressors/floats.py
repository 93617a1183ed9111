"""Floating-point numbers of 16 and 8 bits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dtjax.compressors import codecs
from dtjax.compressors.compressor import CONTRACTIVE, NEITHER, Compressor
from dtjax.core import checks
from dtjax.core.pytree import pytree

FORMATS = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


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


def fp16() -> Floats:
    """Round to IEEE binary16.

    |C(x) - x| <= 2^-11 |x| from 6.1e-5 to 65504. Below, spaced by 6.0e-8, numbers vanish at
    3.0e-8; from 65520 on they become infinite, which a run reports as it does a divergence. So
    the family is NEITHER, although |C(x) - x| <= |x| wherever nothing overflows. 16 bits an entry.

    Example:
        >>> fp16().compress((), jnp.array([1.0, 65519.0, 65520.0]), None, 0)[1].tolist()
        [1.0, 65504.0, inf]

    Reference:
        IEEE 754-2008; Micikevicius et al., "Mixed precision training", ICLR 2018.
    """
    return Floats("float16")


def bf16() -> Floats:
    """Round to bfloat16: the range of binary32 with 8 bits.

    |C(x) - x| <= 2^-8 |x| for normal numbers, delta = 1 - 2^-16. 16 bits an entry. Above 3.39e38
    numbers become infinite.

    Example:
        >>> bf16().compress((), jnp.array([1.0, 1.01]), None, 0)[1].tolist()
        [1.0, 1.0078125]

    Reference:
        Kalamkar et al., "A study of BFLOAT16 for deep learning training", 2019.
    """
    return Floats("bfloat16")


def fp8(format: str = "e4m3") -> Floats:
    """Round to eight bits, of which 4 or 5 are the exponent.

    |C(x) - x| <= 2^-4 |x| from 0.016 to 448 (e4m3), 2^-3 |x| from 6.1e-5 to 57344 (e5m2). There
    is no scale: gradients below the normal range lose bits and, below 9.8e-4 and 7.6e-6, vanish.
    Family NEITHER, as `fp16`. 8 bits an entry.

    Numbers that overflow are never replaced by the greatest one, which would hide it: e5m2 gives
    infinity from 61440 on; e4m3 has no infinity and gives NaN above 464. A run reports both.

    Args:
        format: "e4m3" or "e5m2".

    Raises:
        ValueError: if there is no such format.

    Example:
        >>> fp8("e4m3").compress((), jnp.array([1.06, 448.0, 465.0]), None, 0)[1].tolist()
        [1.0, 448.0, nan]

    Reference:
        Micikevicius et al., "FP8 formats for deep learning", 2022.
    """
    return Floats(FORMATS[checks.choice("fp8", "format", format, FORMATS)])


def fp8_e4m3() -> Floats:
    """Return `fp8("e4m3")`."""
    return fp8("e4m3")


def fp8_e5m2() -> Floats:
    """Return `fp8("e5m2")`."""
    return fp8("e5m2")


EXAMPLE = fp16
EXAMPLES = [fp16, bf16, fp8_e4m3, partial(fp8, "e5m2")]
