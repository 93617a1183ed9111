"""The picture of one run's bars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dtjax.analysis.gantt.cycles import NAMES, Bar, bars
from dtjax.clock.trace import seconds

COLOURS = {
    "useful": "#0072B2",
    "lost": "#D55E00",
    "open": "#56B4E9",
    "pull": "#CC79A7",
    "push": "#009E73",
    "queue": "#777777",
    "server": "#444444",
}
HEIGHTS = {"pull": 0.4, "push": 0.4, "queue": 0.03, "server": 0.5}  # of 1 a row; others 0.72


def draw(run: Any, path: Path, *, holds: bool, title: str = "", network: Any = None) -> None:
    """Draw one run and write the picture.

    Args:
        run: of `dtjax.simulate`, one run.
        path: of the picture; its ending says the format.
        holds: as in `bars`.
        title: above it.
        network: as in `bars`.
    """
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    end, n = float(run.accounts.elapsed), len(run.accounts.started)
    shown = [bar for bar in bars(run, holds=holds, network=network) if bar.end > bar.start]
    fates, names = {bar.fate for bar in shown}, dict(list(NAMES.items())[:3])
    if network is not None:
        lost = {"lost": "cancelled or discarded, all of it"}
        names = {fate: name for fate, name in (NAMES | lost).items() if fate in fates}
    rows = n + ("server" in fates)
    height = 0.9 + 0.42 * rows + 0.2 * ((len(names) - 1) // 3)
    figure, axes = plt.subplots(figsize=(7.0, height), layout="constrained")
    for bar in shown:
        _draw_bar(axes, bar, end)
    for time in seconds(run.trace)[np.asarray(run.trace.made)]:
        axes.axvline(time, color="#333333", linewidth=0.7, linestyle=":")
    axes.set(
        xlim=(0, end),
        ylim=(rows - 0.5, -0.5),
        yticks=range(rows),
        yticklabels=[f"worker {w}" for w in range(n)] + ["server"] * (rows - n),
        xlabel="seconds (dotted: updates; s: staleness of a used gradient; blank: waiting)",
        title=title,
    )
    handles = [
        Line2D([], [], color=COLOURS[fate], label=name)
        if fate == "queue"
        else Patch(label=name, **_style(fate))
        for fate, name in names.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _draw_bar(axes: Any, bar: Bar, end: float) -> None:
    """Draw one bar, with its label where there is room for it."""
    height, style = HEIGHTS.get(bar.fate, 0.72), _style(bar.fate)
    span = [(bar.start, bar.end - bar.start)]
    axes.broken_barh(span, (bar.worker - height / 2, height), **style)
    if not bar.label or bar.end - bar.start <= end / (60 if bar.fate == "server" else 25):
        return
    look: dict[str, Any] = {"color": "white", "ha": "center", "va": "center", "fontsize": 7}
    if style["hatch"]:
        box = {"fc": "white", "ec": "none", "pad": 1}
        look |= {"color": COLOURS[bar.fate], "bbox": box}
    axes.text((bar.start + bar.end) / 2, bar.worker, bar.label, **look)


def _style(fate: str) -> dict[str, Any]:
    """Return how bars of a fate are filled."""
    colour = COLOURS[fate]
    if fate in ("lost", "open"):
        return {"facecolor": "white", "edgecolor": colour, "hatch": "///"}
    edge = colour if fate == "queue" else "white"
    return {"facecolor": colour, "edgecolor": edge, "hatch": None}
