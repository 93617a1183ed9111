"""Floating-point numbers of eight bits."""

from __future__ import annotations

from dtjax.compressors._floats import Floats
from dtjax.core import checks

FORMATS = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


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
        >>> import jax.numpy as jnp
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


EXAMPLE = fp8
