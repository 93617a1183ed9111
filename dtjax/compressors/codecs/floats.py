"""Bit vectors of floating point numbers."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtjax.compressors.codecs.bits import Bits, front, read_fixed, write_fixed
from dtjax.core import checks

FLOATS: dict[str, np.dtype[Any]] = {
    np.dtype(kind).name: np.dtype(kind)
    for kind in (
        jnp.float32,
        jnp.float16,
        jnp.bfloat16,
        jnp.float8_e4m3fn,
        jnp.float8_e5m2,
    )
}
"""The formats, by name."""


def write_floats(x: ArrayLike, dtype: Any) -> Bits:
    """Write numbers in a floating point format: sign, exponent, mantissa, highest bit first.

    Numbers that already have the format are written bit by bit, nan's payload and -0 included;
    others are rounded to it first: what is too large becomes inf, or nan in float8_e4m3fn, which
    has no inf.

    Args:
        x: real numbers, [count].
        dtype: float32, float16, bfloat16, float8_e4m3fn or float8_e5m2, as a name or a type.

    Returns:
        u8[count x bits of the format], zeros and ones.

    Raises:
        ValueError: if `x` is no vector of numbers or the format is another.

    Example:
        >>> write_floats([-1.0], "float16").tolist()
        [1, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    """
    kind = _format("write_floats", dtype)
    try:
        numbers = np.asarray(x)
        if np.iscomplexobj(numbers):
            raise TypeError("complex numbers have no such format")
        # Overflow is the format's, and documented; a signalling nan is only copied.
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = numbers.astype(kind, copy=False)
    except (TypeError, ValueError):
        raise checks.fail("write_floats", "x", "must be real numbers", x) from None
    if numbers.ndim != 1:
        raise checks.fail("write_floats", "x", "must have 1 axes", numbers.shape)
    words = np.ascontiguousarray(numbers).view(f"u{kind.itemsize}")
    return write_fixed(words, 8 * kind.itemsize)


def read_floats(bits: ArrayLike, dtype: Any, count: int) -> NDArray[Any]:
    """Read `count` numbers of a floating point format from the front; undoes `write_floats`.

    Args:
        bits: zeros and ones, [at least count x bits of the format].
        dtype: the format, as for `write_floats`.
        count: of numbers, 0 or more.

    Returns:
        [count] of the format's type.

    Raises:
        ValueError: if there are too few bits or the format is another.

    Example:
        >>> read_floats(write_floats([0.5, -3.0], "bfloat16"), "bfloat16", 2).tolist()
        [0.5, -3.0]
    """
    kind = _format("read_floats", dtype)
    width = 8 * kind.itemsize
    count = checks.integer("read_floats", "count", count)
    words = read_fixed(front("read_floats", bits, count * width), width, count)
    return words.astype(f"u{kind.itemsize}").view(kind)


def _format(function: str, dtype: Any) -> np.dtype:
    """Return the numpy type of a format given by its name or as a type."""
    name = dtype
    if not isinstance(dtype, str):
        try:
            name = np.dtype(dtype).name
        except TypeError:
            name = repr(dtype)
    return FLOATS[checks.choice(function, "dtype", name, FLOATS)]
