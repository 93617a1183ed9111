"""Bit vectors of indices: which k of d entries were kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtjax.compressors.codecs.bits import Bits, bit_vector, front, integers, read_fixed, write_fixed
from dtjax.compressors.codecs.lengths import INDEX_CODES, LARGEST_INT32, rice_width
from dtjax.core import checks

Indices = NDArray[np.int64]


class IndicesRead(NamedTuple):
    """What `read_indices` returns."""

    indices: Indices  # i64[k], rising
    length: int  # bits read; the next part of the message begins there


class _Code(NamedTuple):
    write: Callable[[Indices, int], Bits]
    read: Callable[[Any, int, int], IndicesRead]
    largest: int  # d


def write_indices(code: str, indices: ArrayLike, d: int) -> Bits:
    """Write the indices of kept entries.

    "int32": 32 bits each; "packed": ceil(log2 d) bits each; "bitmap": a bit for each of d entries;
    "golomb": the Golomb-Rice code of the gaps g (entries left out before each kept one). Of each g
    the low m bits are written as they are, and g >> m as that many zeros and a one, where m
    follows from d and k (`index_bits`): first all the low parts, then all the high ones, which
    takes the same bits as one gap after the other.

    Args:
        code: "int32", "packed", "bitmap" or "golomb".
        indices: strictly rising integers between 0 and d - 1, [k], k from 0 to d.
        d: entries, 0 or more; up to 2^31 with "int32", 2^32 with the others.

    Returns:
        u8[`index_bits(code, d, k)`], zeros and ones; with "golomb" at most so many.

    Raises:
        ValueError: if the code is unknown, the indices do not rise or are out of range.

    Example:
        >>> write_indices("packed", [1, 3], 4).tolist()
        [0, 1, 1, 1]
        >>> write_indices("golomb", [1, 3], 4).tolist()
        [0, 1, 0, 1]

    Reference:
        Golomb, "Run-length encodings", IEEE Trans. Inf. Theory 12, 1966; Rice, "Some practical
        universal noiseless coding techniques", JPL 79-22, 1979.
    """
    chosen, d = _chosen("write_indices", code, d)
    numbers = integers("write_indices", "indices", indices)
    _check_rising("write_indices", "indices", numbers, d)
    return chosen.write(numbers, d)


def read_indices(code: str, bits: ArrayLike, d: int, k: int) -> IndicesRead:
    """Read the indices of k of d entries from the front; undoes `write_indices`.

    Args:
        code: "int32", "packed", "bitmap" or "golomb".
        bits: zeros and ones, as written; more may follow.
        d: entries, 0 or more.
        k: of them kept, between 0 and d.

    Returns:
        The indices, i64[k], and how many bits they took.

    Raises:
        ValueError: if the code is unknown, d or k is out of range, or the bits are too few or hold
            no k rising indices below d.

    Example:
        >>> read_indices("golomb", [0, 1, 0, 1, 1, 1, 1], 4, 2)
        IndicesRead(indices=array([1, 3]), length=4)
    """
    chosen, d = _chosen("read_indices", code, d)
    k = checks.integer("read_indices", "k", k, high=d, high_name="d=")
    read = chosen.read(bits, d, k)
    _check_rising("read_indices", "bits", read.indices, d)
    return read


def _chosen(function: str, code: str, d: Any) -> tuple[_Code, int]:
    chosen = _CODES[checks.choice(function, "code", code, INDEX_CODES)]
    return chosen, checks.integer(function, "d", d, high=chosen.largest)


def _check_rising(function: str, argument: str, indices: Indices, d: int) -> None:
    """Raise unless the indices rise strictly from 0 or more to less than d."""
    outside = (indices < 0) | (indices >= d)
    if outside.any():
        rule = f"must hold indices below d={d}, 0 or more"
        raise checks.fail(function, argument, rule, int(indices[outside][0]))
    falls = np.flatnonzero(np.diff(indices) <= 0)
    if len(falls):
        pair = indices[falls[0] : falls[0] + 2].tolist()
        raise checks.fail(function, argument, "must hold indices that rise strictly", pair)


def _read_fixed_width(bits: Any, width: int, k: int) -> IndicesRead:
    taken = front("read_indices", bits, k * width)
    return IndicesRead(read_fixed(taken, width, k).astype(np.int64), k * width)


def _packed_width(d: int) -> int:
    return max(d - 1, 0).bit_length()


def _write_bitmap(indices: Indices, d: int) -> Bits:
    bits = np.zeros(d, np.uint8)
    bits[indices] = 1
    return bits


def _read_bitmap(bits: Any, d: int, k: int) -> IndicesRead:
    indices = np.flatnonzero(front("read_indices", bits, d)).astype(np.int64)
    if len(indices) != k:
        raise checks.fail("read_indices", "bits", f"must hold k={k} ones", len(indices))
    return IndicesRead(indices, d)


def _write_golomb(indices: Indices, d: int) -> Bits:
    if not len(indices):
        return np.zeros(0, np.uint8)
    width = int(rice_width(d, len(indices)))
    gaps = np.diff(indices, prepend=-1) - 1
    ends = np.cumsum((gaps >> width) + 1)
    high = np.zeros(ends[-1], np.uint8)
    high[ends - 1] = 1
    return np.concatenate([write_fixed(gaps & ((1 << width) - 1), width), high])


def _read_golomb(bits: Any, d: int, k: int) -> IndicesRead:
    if not k:
        return IndicesRead(np.zeros(0, np.int64), 0)
    width = int(rice_width(d, k))
    # The bound is where to stop looking for ends: what follows may be megabytes of values.
    longest = k * (1 + width) + ((d - k) >> width)
    taken = bit_vector("read_indices", bits if np.ndim(bits) != 1 else np.asarray(bits)[:longest])
    low = read_fixed(front("read_indices", taken, k * width), width, k).astype(np.int64)
    ends = np.flatnonzero(taken[k * width :])[:k]
    if len(ends) < k:
        raise checks.fail("read_indices", "bits", f"must hold the ends of k={k} gaps", len(ends))
    gaps = ((np.diff(ends, prepend=-1) - 1) << width) | low
    return IndicesRead(np.cumsum(gaps + 1) - 1, k * width + int(ends[-1]) + 1)


_CODES = {
    "int32": _Code(
        write=lambda indices, d: write_fixed(indices, 32),
        read=lambda bits, d, k: _read_fixed_width(bits, 32, k),
        largest=LARGEST_INT32,
    ),
    "packed": _Code(
        write=lambda indices, d: write_fixed(indices, _packed_width(d)),
        read=lambda bits, d, k: _read_fixed_width(bits, _packed_width(d), k),
        largest=2**32,
    ),
    "bitmap": _Code(write=_write_bitmap, read=_read_bitmap, largest=2**32),
    "golomb": _Code(write=_write_golomb, read=_read_golomb, largest=2**32),
}
