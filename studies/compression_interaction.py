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
    says: str


def interaction(loss: np.ndarray) -> Interaction:
    """Compare what staleness and sparsity cost together with what they cost alone.

    Args:
        loss: f[staleness, share, run], first 0 and 1; the same runs in every cell.
    """
    loss = np.minimum(loss, WORST)
    samples = resampled(loss)  # [staleness, share, S]
    middle = median(loss)[..., None]
    a, margins = _ratio(samples)
    m, _ = _ratio(np.log(samples))
    added = (float(_ratio(middle)[0][0]), *bounds(a).tolist())
    multiplied = (float(_ratio(np.log(middle))[0][0]), *bounds(m).tolist())
    ends = tuple(bounds(margins).tolist())
    return Interaction(added, multiplied, ends, _says(added, multiplied, ends))


def _ratio(loss: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return A, and the sum below its line, of f[staleness, share, ...]."""
    over = loss - loss[:1, :1]
    both = over[1:, 1:].sum((0, 1))
    alone = (over[1:, :1] + over[:1, 1:]).sum((0, 1))
    return both / np.where(alone == 0, np.nan, alone), alone


def _says(
    added: tuple[float, ...], multiplied: tuple[float, ...], margins: tuple[float, ...]
) -> str:
    if not margins[0] > 0:
        return "undecided: alone they cost nothing that is clear"
    if added[2] < 1:
        return "mask each other: together they cost less than the sum"
    if added[1] <= 1:
        return "add"
    if multiplied[1] > 1:
        return "more than multiply"
    return "multiply" if multiplied[2] >= 1 else "more than add, less than multiply"


def tables(whole: xr.Dataset) -> str:
    """Lay out the final losses of each memory, and how the two costs go together."""
    runs = whole.sizes["run"]
    text = [
        f"final test loss after {int(whole.updates.max())} updates, {runs} runs; medians, "
        "95 % bootstrap intervals; the best rate in brackets {}"
    ]
    findings, notes = [], []
    for memory in whole.memory.values:
        one = whole.sel(memory=memory)
        loss = losses(one)
        headers = ["staleness", *(f"share {share:g}" for share in whole.share.values)]
        cells = []
        for i, tau in enumerate(whole.staleness.values):
            rates = one.rate.transpose("staleness", "share").values[i]
            row = [f"{median_interval(loss[i, j])} {{{rate:g}}}" for j, rate in enumerate(rates)]
            cells.append([int(tau), *row])
        text += ["", f"memory: {memory}", table(headers, cells)]
        findings.append(f"memory {memory}: {finding(loss)}")
        notes += _notes(one, str(memory))
    return "\n".join([*text, "", *findings, *notes])


def finding(loss: np.ndarray) -> str:
    """Say in one line how staleness and sparsity go together."""
    found = interaction(loss)
    corner = interaction(loss[[0, -1]][:, [0, -1]])
    return (
        f"staleness and sparsity {found.says}: A = {_interval(found.added)}, "
        f"M = {_interval(found.multiplied)}; of the extreme cell A = {_interval(corner.added)}"
    )


def _interval(bounds: tuple[float, float, float]) -> str:
    return f"{bounds[0]:.2f} [{bounds[1]:.2f}, {bounds[2]:.2f}]"


def _notes(one: xr.Dataset, memory: str) -> list[str]:
    notes = []
    for tau in one.staleness.values:
        for share in one.share.values:
            cell = one.sel(staleness=tau, share=share)
            name = f"{memory}, staleness {tau}, share {share:g}"
            if str(cell.rate_warning.values):
                notes.append(f"{name}: {cell.rate_warning.values}")
            if lost := int((cell.diverged.values >= 0).sum()):
                notes.append(f"{name}: {lost} of {cell.sizes['run']} runs diverged")
    return notes
