"""Bit vectors: as bytes, and of integers of a fixed width."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtjax.core import checks

Bits = NDArray[np.uint8]
"""A bit vector: zeros and ones, first bit sent first."""

WIDEST = 32
"""Bits of the widest value."""


def to_bytes(bits: ArrayLike) -> NDArray[np.uint8]:
    """Pack a bit vector into bytes, the first bit as the highest of the first byte.

    Args:
        bits: zeros and ones, [count].

    Returns:
        u8[ceil(count / 8)]; what is left of the last byte is 0.

    Raises:
        ValueError: if `bits` is no vector of zeros and ones.

    Example:
        >>> to_bytes([1, 0, 0, 0, 0, 0, 0, 1, 1]).tolist()
        [129, 128]
    """
    return np.packbits(bit_vector("to_bytes", bits))


def from_bytes(data: bytes | ArrayLike, count: int) -> Bits:
    """Unpack the first `count` bits of bytes; undoes `to_bytes`.

    Args:
        data: `bytes`, or u8[at least ceil(count / 8)].
        count: bits to take, 0 or more.

    Returns:
        u8[count], zeros and ones.

    Raises:
        ValueError: if `data` is no vector of bytes or holds fewer bits.

    Example:
        >>> from_bytes(bytes([129, 128]), 9).tolist()
        [1, 0, 0, 0, 0, 0, 0, 1, 1]
    """
    if isinstance(data, (bytes, bytearray, memoryview)):
        octets = np.frombuffer(data, np.uint8)
    else:
        octets = np.asarray(data)
        if octets.dtype != np.uint8 or octets.ndim != 1:
            got = f"{octets.dtype}{list(octets.shape)}"
            raise checks.fail("from_bytes", "data", "must be a vector of bytes (u8)", got)
    count = checks.integer(
        "from_bytes", "count", count, high=8 * len(octets), high_name="the bits of data="
    )
    return np.unpackbits(octets, count=count)


def write_fixed(values: ArrayLike, width: int) -> Bits:
    """Write integers of `width` bits each, the highest bit first.

    Signs are width 1, ternary values shifted to 0..2 are width 2.

    Args:
        values: integers between 0 and 2^width - 1, [count].
        width: bits of each, between 0 and 32; with 0, all values are 0 and nothing is written.

    Returns:
        u8[count x width], zeros and ones.

    Raises:
        ValueError: if a value does not fit or is not an integer, or `width` is out of range.

    Example:
        >>> write_fixed([2, 0, 1], 2).tolist()
        [1, 0, 0, 0, 0, 1]
    """
    width = checks.integer("write_fixed", "width", width, high=WIDEST)
    numbers = integers("write_fixed", "values", values)
    outside = (numbers < 0) | (numbers > 2**width - 1)
    if outside.any():
        rule = f"must be between 0 and {2**width - 1} to fit into {width} bits"
        raise checks.fail("write_fixed", "values", rule, int(numbers[outside][0]))
    bits = np.empty((len(numbers), width), np.uint8)
    for j in range(width):  # a column at a time: no array of count x width wide integers
        bits[:, j] = (numbers >> (width - 1 - j)) & 1
    return bits.reshape(-1)


def read_fixed(bits: ArrayLike, width: int, count: int) -> NDArray[np.uint32]:
    """Read `count` integers of `width` bits each from the front; undoes `write_fixed`.

    Args:
        bits: zeros and ones, [at least count x width].
        width: bits of each, between 0 and 32.
        count: of integers, 0 or more.

    Returns:
        u32[count].

    Raises:
        ValueError: if there are too few bits, or an argument is out of range.

    Example:
        >>> read_fixed([1, 0, 0, 0, 0, 1], 2, 3).tolist()
        [2, 0, 1]
    """
    width = checks.integer("read_fixed", "width", width, high=WIDEST)
    count = checks.integer("read_fixed", "count", count)
    columns = front("read_fixed", bits, count * width).reshape(count, width)
    values = np.zeros(count, np.uint32)
    for j in range(width):
        values = (values << np.uint32(1)) | columns[:, j]
    return values


def bit_vector(function: str, bits: Any) -> Bits:
    """Return `bits` as u8, checked to be a vector of zeros and ones."""
    found = np.asarray(bits)
    if found.ndim != 1:
        raise checks.fail(function, "bits", "must have 1 axes", found.shape)
    if found.size and found.dtype != bool and not np.issubdtype(found.dtype, np.integer):
        raise checks.fail(function, "bits", "must be zeros and ones", found.dtype.name)
    wrong = (found != 0) & (found != 1)
    if wrong.any():
        raise checks.fail(function, "bits", "must be zeros and ones", int(found[wrong][0]))
    return found.astype(np.uint8, copy=False)


def front(function: str, bits: Any, count: int) -> Bits:
    """Return the first `count` bits, checked to be there."""
    found = np.asarray(bits)[:count] if np.ndim(bits) == 1 else bits
    found = bit_vector(function, found)
    if len(found) < count:
        raise checks.fail(function, "bits", f"must hold {count} bits or more", len(found))
    return found


def integers(function: str, argument: str, values: Any) -> NDArray[np.int64]:
    """Return `values` as i64, checked to be a vector of integers."""
    found = np.asarray(values)
    if found.ndim != 1:
        raise checks.fail(function, argument, "must have 1 axes", found.shape)
    if found.size and not np.issubdtype(found.dtype, np.integer):
        raise checks.fail(function, argument, "must be integers", found.dtype.name)
    if found.dtype == np.uint64 and (found > np.iinfo(np.int64).max).any():
        raise checks.fail(function, argument, "must be below 2^63", int(found.max()))
    return found.astype(np.int64, copy=False)
