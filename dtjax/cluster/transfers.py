"""How long a gradient is on the wire in each format: a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dtjax.compressors import codecs
from dtjax.compressors.top_k import count
from dtjax.core import checks
from dtjax.core.table import table

_SCALE_BITS = 32
_WHOLE = 1e5  # milliseconds
# name, bits of an entry, whether a scale goes with each tensor
_FORMATS = (
    ("fp32", 32, False),
    ("fp16", 16, False),
    ("int8", 8, True),
    ("two bits", 2, True),
    ("one bit", 1, True),
)


@dataclass(frozen=True)
class Transfer:
    """A gradient in one format."""

    name: str
    bits_per_entry: float  # bits over entries of the gradient, sent or not
    bits: int  # on the wire, the protocol's included
    bytes: int  # bits / 8, rounded up
    seconds: float


@dataclass(frozen=True, repr=False)
class TransferTable:
    """A gradient in several formats; printed, it is a table. See `transfer_table`."""

    rows: tuple[Transfer, ...]
    senders: int
    ingress_seconds: float  # of all senders' fp32 gradients through one link
    notes: tuple[str, ...]

    def __str__(self) -> str:
        headers = ["format", "bits an entry", "bits", "bytes", "milliseconds"]
        cells = [
            [row.name, row.bits_per_entry, row.bits, row.bytes, _milliseconds(row.seconds)]
            for row in self.rows
        ]
        milliseconds = _milliseconds(self.ingress_seconds)
        number = f"{milliseconds:,}" if milliseconds >= _WHOLE else f"{milliseconds:,.6g}"
        senders = f"{self.senders} fp32 {'sender' if self.senders == 1 else 'senders'}"
        last = f"{senders} on one shared ingress: at least {number} ms"
        return "\n".join([table(headers, cells, digits=6), *self.notes, last])

    __repr__ = __str__


def transfer_table(
    parameters: int | Sequence[int] = 100_000_000,
    *,
    bandwidth: float = 10e9,
    senders: int = 8,
    tensors: int = 1,
    scales: bool = False,
    indices: str = "int32",
    kept: float = 0.01,
    overhead: float = 0.0,
) -> TransferTable:
    """Tabulate how long one gradient is on the wire, by format: bits / bandwidth, no latency.

    Rows: fp32, fp16, int8, two bits (ternary), one bit (signs), and the k largest entries as fp32
    values with their indices, k = max(1, floor(kept d)) of a tensor's d entries, as `top_k` counts
    them (in binary32, where millions are kept, it may be a few more). Values are packed without
    gaps, also between tensors.

    Args:
        parameters: entries of the gradient, counted as one tensor by the last row; or the sizes of
            its tensors, each 1 or more.
        bandwidth: bits per second, positive and finite.
        senders: workers that send to one server at once, 1 or more.
        tensors: how many scales `scales` counts, between 1 and `parameters`; with sizes, their
            number, and need not be given.
        scales: whether each tensor of the quantised formats (int8, two bits, one bit) has a scale,
            32 bits.
        indices: code of the indices: "int32", "packed", "bitmap" or "golomb" (the length of this
            one depends on the data: its upper bound is counted). See `dtjax.codecs.index_bits`.
        kept: the share of the entries that the last row sends, above 0, at most 1.
        overhead: of the protocol, as a share of the payload: 0.05 is 5 % more bits, rounded up to a
            whole bit. It is in all columns.

    Returns:
        The rows as numbers, and as text with `print`; its last line is the least time in which one
        shared link takes the fp32 gradients of all senders, whatever the order.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> print(transfer_table())
        format                  bits an entry        bits      bytes  milliseconds
        ----------------------  -------------  ----------  ---------  ------------
        fp32                               32  3200000000  400000000           320
        fp16                               16  1600000000  200000000           160
        int8                                8   800000000  100000000            80
        two bits                            2   200000000   25000000            20
        one bit                             1   100000000   12500000            10
        top 1 %, fp32 by int32           0.64    64000000    8000000           6.4
        8 fp32 senders on one shared ingress: at least 2,560 ms
    """
    name = "transfer_table"
    sizes, tensors = _sizes(parameters, tensors)
    bandwidth = _number("bandwidth", bandwidth, checks.POSITIVE)
    senders = checks.integer(name, "senders", senders, low=1)
    checks.choice(name, "indices", indices, codecs.INDEX_CODES)
    kept = _number("kept", kept, _SHARE)
    protocol = 1 + Fraction(repr(_number("overhead", overhead, checks.NON_NEGATIVE)))
    if indices == "int32" and max(sizes) > 2**31:
        rule = f"must be another code for a tensor of {max(sizes)} entries, more than 2^31"
        raise checks.fail(name, "indices", rule, indices)

    entries = sum(sizes)
    payloads = [
        (label, entries * bits + (tensors * _SCALE_BITS if scales and quantised else 0))
        for label, bits, quantised in _FORMATS
    ]
    largest = [count(np.float64(kept), size) for size in sizes]
    sparse = 32 * sum(largest) + sum(
        codecs.index_bits(indices, size, k) for size, k in zip(sizes, largest, strict=True)
    )
    payloads.append((f"top {100 * kept:.6g} %, fp32 by {indices}", sparse))
    rows = []
    for label, payload in payloads:
        bits = math.ceil(payload * protocol)  # as a fraction: 1.05 in binary is above it
        rows.append(Transfer(label, bits / entries, bits, -(-bits // 8), bits / bandwidth))
    notes = []
    if indices == "golomb":
        notes.append("golomb: an upper bound; the indices of a gradient take fewer bits.")
    if overhead:
        notes.append(f"{100 * overhead:.6g} % of the payload for the protocol included.")
    return TransferTable(tuple(rows), senders, senders * rows[0].seconds, tuple(notes))


def _milliseconds(seconds: float) -> float:
    """Return milliseconds; large ones as whole numbers, which print without an exponent."""
    milliseconds = 1000 * seconds
    return round(milliseconds) if milliseconds >= _WHOLE else milliseconds


_SHARE: checks.Rule = ("must be above 0 and at most 1", lambda x: (x > 0) & (x <= 1))


def _number(argument: str, value: Any, rule: checks.Rule) -> float:
    """Return a checked number as it is: arrays of the default float type would round it."""
    checks.real("transfer_table", argument, value, rule, ndim=0)
    return float(value)


def _sizes(parameters: Any, tensors: Any) -> tuple[list[int], int]:
    """Return the sizes that the sparse row sees, and the number of tensors."""
    name = "transfer_table"
    if np.ndim(parameters) == 0:
        entries = checks.integer(name, "parameters", parameters, low=1)
        high = {"high": entries, "high_name": "parameters="}
        return [entries], checks.integer(name, "tensors", tensors, low=1, **high)
    if not len(parameters):
        raise checks.fail(name, "parameters", "must hold the size of a tensor", parameters)
    sizes = [checks.integer(name, "parameters", size, low=1) for size in parameters]
    if checks.integer(name, "tensors", tensors, low=1) not in (1, len(sizes)):
        rule = f"must be the number of sizes in parameters, {len(sizes)}, or not be given"
        raise checks.fail(name, "tensors", rule, tensors)
    return sizes, len(sizes)
