"""A Markdown table that also reads well as text while it is printed, and its numbers as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Table(NamedTuple):
    """The heads of the columns; each column is as wide as its head, 6 at least."""

    head: Sequence[str]

    def title(self) -> str:
        """Format the first two lines."""
        return f"{self.line(self.head)}\n|{'---:|' * len(self.head)}"

    def line(self, entries: Iterable[str]) -> str:
        """Format a row."""
        pairs = zip(entries, self.head, strict=True)
        cells = (entry.rjust(max(len(head), 6)) for entry, head in pairs)
        return f"| {' | '.join(cells)} |"


def ratio(value: float | None, to: float | None) -> str:
    """Format a quotient of two rates; "-" if one is not known."""
    if value is None or to is None:
        return "-"
    quotient = value / to
    return f"{quotient:.0f}" if quotient >= 100 else f"{quotient:.3g}"


def save(out: Path | None, options: Any, machine: dict[str, Any], **cells: Any) -> None:
    """Write the numbers of a run, if there is a file for them.

    Args:
        out: a JSON file, or None.
        options: the dataclass of settings.
        machine: see `timing.machine`.
        cells: lists of named tuples by the name of their table.
    """
    if out is None:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    tables = {name: [cell._asdict() for cell in rows] for name, rows in cells.items()}
    given = {**dataclasses.asdict(options), "out": None}
    out.write_text(json.dumps({"machine": machine, "options": given, **tables}, indent=1))
