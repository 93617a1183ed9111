"""Choosing a learning rate: by the time to a target, on a grid that grows where it must."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dtjax.core import checks


class Choice(NamedTuple):
    """A rate, and how it was found."""

    rate: float
    warning: str  # "" or what is doubtful about it
    tried: np.ndarray  # f[C] the rates that were tried, rising
    seconds: np.ndarray  # f[C, R] time to the target of each run


def choose_rate(
    rates: Sequence[float],
    train: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    *,
    widenings: int = 3,
) -> Choice:
    """Find the rate with the least median time to a target.

    While the best of the rates is the lowest or the highest, two more by factors of two are tried
    beyond it. If no rate brings half of the runs to the target, the best final quality decides.

    Args:
        rates: f[C], to begin with, positive.
        train: from rates f[C] to (seconds to the target [C, R], infinite where it is not reached;
            final quality [C, R], larger is better).
        widenings: how often the grid may grow.

    Returns:
        The choice; its warning says if the best rate lies at an edge all the same.

    Raises:
        ValueError: if there is no rate, or one is not positive.

    Example:
        >>> choose_rate([1.0], lambda r: (abs(np.log2(r / 2.0))[:, None], -r[:, None])).rate
        2.0
    """
    grid = np.asarray(checks.real("choose_rate", "rates", rates, checks.POSITIVE, ndim=1), float)
    if not grid.size:
        raise checks.fail("choose_rate", "rates", "must not be empty", list(rates))
    wanted = np.unique(np.asarray(rates, float))
    found: dict[float, tuple[np.ndarray, np.ndarray]] = {}
    for turn in range(widenings + 1):
        seconds, quality = train(wanted)
        found |= {float(r): (seconds[i], quality[i]) for i, r in enumerate(wanted)}
        best = min(found, key=lambda rate: _score(*found[rate]))
        low, high = min(found), max(found)
        if best not in (low, high) or turn == widenings:
            break
        # One rate alone is both edges: look to both sides.
        below = [low / 4, low / 2] if best == low else []
        above = [high * 2, high * 4] if best == high else []
        wanted = np.array(below + above)
    edge = "lowest" if best == low else "highest" if best == high else ""
    warning = f"the best rate, {best:g}, is the {edge} that was tried" if edge else ""
    tried = sorted(found)
    return Choice(best, warning, np.array(tried), np.stack([found[r][0] for r in tried]))


def _score(seconds: np.ndarray, quality: np.ndarray) -> tuple[float, float]:
    return float(np.quantile(seconds, 0.5, method="higher")), -float(np.median(quality))
