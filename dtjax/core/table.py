"""Text tables: the one way in which this library lays out a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]], *, digits: int = 4) -> str:
    """Lay out a table as text: words to the left, numbers to the right.

    Args:
        headers: of the columns.
        rows: cells.
        digits: of floats.

    Example:
        >>> print(table(["policy", "seconds"], [["bsp", 7.0], ["asp", 12.5]]))
        policy  seconds
        ------  -------
        bsp           7
        asp        12.5
    """
    cells = [[_cell(value, digits) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    right = [
        all(isinstance(row[c], (int, float)) for row in rows) and bool(rows)
        for c in range(len(headers))
    ]

    def line(row: Sequence[str]) -> str:
        padded = (
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(row, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(headers), rule, *(line(row) for row in cells)])


def _cell(value: Any, digits: int) -> str:
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return str(value)
