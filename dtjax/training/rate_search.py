"""Choosing learning rates: by the time to a target, on grids that grow where they must."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dtjax.core import checks

Try = tuple[Any, float]
"""A cell and a rate."""


class Choice(NamedTuple):
    """A rate, and how it was found."""

    rate: float
    warning: str  # "" or what is doubtful about it
    tried: np.ndarray  # f[C] the rates that were tried, rising
    seconds: np.ndarray  # f[C, R] time to the target of each run


class RateSearch:
    """Find for each of many cells the rate with the least median time to a target: ask and tell.

    While the best rate of a cell is the lowest or the highest that was tried, two more by factors
    of two are asked for beyond it. If no rate brings half of the runs to the target, the best
    median final quality decides. All cells are asked at once, so that they can train together.

    Example:
        >>> search = RateSearch({"a": [1.0], "b": [1.0]})
        >>> optimum = {"a": 2.0, "b": 0.5}
        >>> while wanted := search.ask():
        ...     for cell, rate in wanted:
        ...         search.tell(cell, rate, [abs(np.log2(rate / optimum[cell]))], [0.0])
        >>> {cell: choice.rate for cell, choice in search.choices().items()}
        {'a': 2.0, 'b': 0.5}
    """

    def __init__(
        self,
        rates: Mapping[Any, Sequence[float]],
        *,
        widenings: int = 3,
        pools: Mapping[Any, Sequence[Any]] | None = None,
    ) -> None:
        """Begin with a grid for each cell.

        Args:
            rates: by cell, any hashable name: learning rates, positive, at least one.
            widenings: how often the grid of a cell may grow.
            pools: by cell, the cells whose runs judge its rates; None: its own alone.

        Raises:
            ValueError: if there is no rate, or one is not positive.
        """
        self._widenings = checks.integer("RateSearch", "widenings", widenings, low=0)
        self._grids: dict[Hashable, list[float]] = {}
        for cell, grid in rates.items():
            given = checks.real("RateSearch", "rates", grid, checks.POSITIVE, ndim=1)
            if not given.size:
                raise checks.fail("RateSearch", "rates", "must not be empty", list(grid))
            self._grids[cell] = sorted({float(rate) for rate in grid})
        self._pools = {cell: (cell,) if pools is None else pools[cell] for cell in rates}
        self._turns = dict.fromkeys(rates, 0)
        self._found: dict[Try, tuple[np.ndarray, np.ndarray]] = {}

    def ask(self) -> list[Try]:
        """Return all (cell, rate) to be trained next; none: the search is over."""
        missing: dict[Try, None] = {}  # a set in order
        for cell in self._grids:
            unknown = self._unknown(cell)
            while not unknown and self._grow(cell):
                unknown = self._unknown(cell)
            missing |= dict.fromkeys(unknown)
        return list(missing)

    def tell(self, cell: Any, rate: float, seconds: Any, quality: Any) -> None:
        """Say what came of a rate.

        Args:
            cell: as asked.
            rate: as asked.
            seconds: f[R], to the target; infinite where it is not reached.
            quality: f[R], at the end; larger is better.
        """
        self._found[cell, rate] = np.asarray(seconds, float), np.asarray(quality, float)

    def choices(self) -> dict[Any, Choice]:
        """Return the choice of each cell; its warning says if the best rate lies at an edge.

        Raises:
            ValueError: if something that was asked was not told.
        """
        if missing := [one for cell in self._grids for one in self._unknown(cell)]:
            raise checks.fail("RateSearch.choices", "tell", "must have said all asked", missing)
        return {cell: self._choice(cell) for cell in self._grids}

    def _unknown(self, cell: Any) -> list[Try]:
        asked = [(like, rate) for rate in self._grids[cell] for like in self._pools[cell]]
        return [one for one in asked if one not in self._found]

    def _seen(self, cell: Any, rate: float) -> tuple[np.ndarray, np.ndarray]:
        """Return (seconds, quality) of all the runs that judge a rate."""
        runs = zip(*(self._found[like, rate] for like in self._pools[cell]), strict=True)
        seconds, quality = (np.concatenate(part) for part in runs)
        return seconds, quality

    def _best(self, cell: Any) -> float:
        def score(rate: float) -> tuple[float, float]:
            seconds, quality = self._seen(cell, rate)
            return float(np.quantile(seconds, 0.5, method="higher")), -float(np.median(quality))

        return min(self._grids[cell], key=score)

    def _grow(self, cell: Any) -> bool:
        """Widen the grid of a cell if its best rate is at an edge; return whether it was."""
        grid, best = self._grids[cell], self._best(cell)
        if best not in (grid[0], grid[-1]) or self._turns[cell] == self._widenings:
            return False
        # One rate alone is both edges: look to both sides.
        below = [best / 4, best / 2] if best == grid[0] else []
        above = [best * 2, best * 4] if best == grid[-1] else []
        self._grids[cell] = below + grid + above
        self._turns[cell] += 1
        return True

    def _choice(self, cell: Any) -> Choice:
        grid, best = self._grids[cell], self._best(cell)
        edge = "lowest" if best == grid[0] else "highest" if best == grid[-1] else ""
        warning = f"the best rate, {best:g}, is the {edge} that was tried" if edge else ""
        seconds = np.stack([self._seen(cell, rate)[0] for rate in grid])
        return Choice(best, warning, np.array(grid), seconds)
