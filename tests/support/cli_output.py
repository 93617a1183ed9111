"""What tests of the command line share: running it, and cutting its text in parts."""

from __future__ import annotations

import pytest

from dtjax.cli import main

TIMES = ["--compute-times", "2", "5", "7"]


def simulate(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main.main(["simulate", *arguments])
    return capsys.readouterr().out


def rows(text: str) -> tuple[list[list[str]], list[list[str]], dict[str, float]]:
    """Cut the text in its parts: updates, workers, sums."""
    updates, workers, sums = text.strip().split("\n\n")
    lines = [line for line in sums.splitlines() if ": " in line and "stopped early" not in line]
    numbers = {line.split(": ")[0]: float(line.split(": ")[1]) for line in lines}
    tables = [[line.split("  ") for line in t.splitlines()[2:]] for t in (updates, workers)]
    cells = [[[c.strip() for c in row if c.strip()] for row in t] for t in tables]
    return cells[0], cells[1], numbers
