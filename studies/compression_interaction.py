"""Whether staleness and sparsity add, multiply or mask each other: the tables of the study.

With the loss L(staleness, share), and L0 of neither, the increments of a cell and of its two
margins are compared, summed over the cells that have both: A = sum of (L - L0) over the sum of
(L(staleness, 1) - L0) + (L(0, share) - L0); M the same with log L. A = 1: they add; M = 1: they
multiply; A < 1: one masks the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dtjax.analysis.bootstrap import bounds, median, median_interval, resampled
from dtjax.core.table import table
from studies.compression_report import notes

if TYPE_CHECKING:
    import xarray as xr

WORST = 1e6
"""Loss that counts for a run that diverged."""


def losses(one: xr.Dataset) -> np.ndarray:
    """Return each run's final test loss, f[staleness, share, run]; infinite if it diverged."""
    loss = one.test_loss.transpose("staleness", "share", "run", "evaluation").values
    return np.nan_to_num(loss[..., -1], nan=np.inf)


class Interaction(NamedTuple):
    """A and M, each with the low and high end of its 95 % interval."""

    added: tuple[float, float, float]
    multiplied: tuple[float, float, float]
    margins: tuple[float, float]  # interval of the sum of the increments of either alone

    @property
    def says(self) -> str:
        """Which of both is in its interval."""
        if not self.margins[0] > 0:
            return "undecided: alone they cost nothing that is clear"
        if self.added[2] < 1:
            return "mask each other: together they cost less than the sum"
        if self.added[1] <= 1:
            return "add"
        if self.multiplied[1] > 1:
            return "more than multiply"
        return "multiply" if self.multiplied[2] >= 1 else "more than add, less than multiply"


def interaction(loss: np.ndarray) -> Interaction:
    """Compare what staleness and sparsity cost together with what they cost alone.

    Args:
        loss: f[staleness, share, run], first 0 and 1; the same runs in every cell.
    """
    loss = np.minimum(loss, WORST)
    every = np.concatenate([median(loss)[..., None], resampled(loss)], axis=-1)
    (added, alone), (multiplied, _) = (_ratio(one) for one in (every, np.log(every)))
    a, m = ((float(one[0]), *bounds(one[1:]).tolist()) for one in (added, multiplied))
    return Interaction(a, m, tuple(bounds(alone[1:]).tolist()))


def _ratio(loss: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return A, and the sum below its line, of f[staleness, share, ...]."""
    over = loss - loss[:1, :1]
    both = over[1:, 1:].sum((0, 1))
    alone = (over[1:, :1] + over[:1, 1:]).sum((0, 1))
    return both / np.where(alone == 0, np.nan, alone), alone


def tables(whole: xr.Dataset) -> str:
    """Lay out the final losses of each memory, and how the two costs go together."""
    text = [
        f"final test loss after {int(whole.updates.max())} updates, {whole.sizes['run']} runs; "
        "medians, 95 % bootstrap intervals; the best rate in brackets {}"
    ]
    headers = ["staleness", *(f"share {share:g}" for share in whole.share.values)]
    findings = []
    for memory in whole.memory.values:
        one = whole.sel(memory=memory)
        loss, rates = losses(one), one.rate.transpose("staleness", "share").values
        rows = [
            [int(tau), *(f"{median_interval(x)} {{{r:g}}}" for x, r in zip(*row, strict=True))]
            for tau, *row in zip(one.staleness.values, loss, rates, strict=True)
        ]
        text += ["", f"memory: {memory}", table(headers, rows)]
        findings.append(f"memory {memory}: {finding(loss)}")
    return "\n".join([*text, "", *findings, *notes(whole)])


def finding(loss: np.ndarray) -> str:
    """Say in one line how staleness and sparsity go together."""
    found, corner = interaction(loss), interaction(loss[[0, -1]][:, [0, -1]])
    a, m, end = (
        f"{middle:.2f} [{low:.2f}, {high:.2f}]"
        for middle, low, high in (found.added, found.multiplied, corner.added)
    )
    return f"staleness and sparsity {found.says}: A = {a}, M = {m}; of the extreme cell A = {end}"
