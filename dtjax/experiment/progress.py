"""How far a study is: one bar over all cells."""

from __future__ import annotations


class Progress:
    """Where a study is: one bar over all cells.

    Args:
        cells: how many there are.
        shown: whether the bar is drawn.
    """

    def __init__(self, cells: int, *, shown: bool = True) -> None:
        from tqdm import tqdm

        form = "{desc}{percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
        self._bar = tqdm(
            total=cells, bar_format=form, dynamic_ncols=True, leave=False, disable=not shown
        )
        self._cells, self._label = 0, ""

    def note(self, words: str) -> None:
        """Say what a cell is at."""
        self._bar.set_postfix_str(f"{self._label}: {words}")

    def share(self, done: float) -> None:
        """Say which share of its work, from 0 to 1, a cell has done."""
        self._bar.update(max(0.0, self._cells + min(done, 1.0) - self._bar.n))

    def begin(self, label: str) -> None:
        """Name the cell that comes now."""
        self._label = label
        self._bar.set_postfix_str(label)

    def end(self) -> None:
        """Count a cell as done."""
        self.share(1.0)
        self._cells += 1

    def close(self) -> None:
        """Take the bar away."""
        self._bar.close()
