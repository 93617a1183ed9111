"""Draw the result of studies/regimes.py: who is first where, and until when ASP pays.

python figures/regimes.py results/regimes/regimes.nc --out regimes.png
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro


@dataclass(frozen=True)
class Options:
    """Draw the map of regimes."""

    result: Annotated[Path, tyro.conf.Positional]
    """The netCDF file that the study wrote."""
    out: Path = Path("regimes.png")
    """The picture; its ending says the format."""


SHADES = {"nobody": "0.92", "none": "#56B4E9", "sparse": "#E69F00", "quantised": "#009E73"}
LETTERS = {"nobody": "-", "none": "N", "sparse": "S", "quantised": "Q"}
LINES = {"bsp": ("C0", "o", "-"), "k-bsp": ("C2", "s", "--"), "asp": ("C4", "*", "-")}


def short(bits: float) -> str:
    """Write a number of bits with a letter for its thousands."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= bits < float("inf"):
            return f"{bits / size:.3g}{letter}"
    return f"{bits:.3g}"


def squares(axes: Any, one: Any, names: list[str]) -> None:
    """Draw who is first in each cell of one policy and number of workers."""
    import matplotlib.pyplot as plt
    import numpy as np
    from matplotlib import patheffects

    for x, rate in enumerate(one.encode_rate.values):
        for y, bandwidth in enumerate(one.bandwidth.values):
            cell = one.sel(encode_rate=rate, bandwidth=bandwidth)
            who = "nobody" if int(cell.winner) < 0 else names[int(cell.winner)]
            clear = int(cell.clear) == 1
            style: dict[str, Any] = {
                "facecolor": SHADES[who],
                "edgecolor": "white",
                "linewidth": 1.0,
            }
            axes.add_patch(plt.Rectangle((x - 0.5, y - 0.5), 1, 1, **style))
            if not clear:
                light: dict[str, Any] = {
                    "fill": False,
                    "edgecolor": "white",
                    "linewidth": 0.0,
                    "hatch": "////",
                }
                axes.add_patch(plt.Rectangle((x - 0.5, y - 0.5), 1, 1, **light))
            halo = [patheffects.withStroke(linewidth=3.0, foreground=SHADES[who])]
            text: dict[str, Any] = {"ha": "center", "va": "center", "path_effects": halo}
            weight = "bold" if clear else "normal"
            axes.text(x, y + 0.13, LETTERS[who], fontsize=9, fontweight=weight, **text)
            if who == "nobody":
                continue
            seconds = np.quantile(cell.target_seconds[int(cell.winner)], 0.5, method="higher")
            ratio = float(cell.lead.sel(bound="middle"))
            ahead = "alone" if np.isinf(ratio) else f"x{ratio:.2f}"
            axes.text(x, y - 0.25, f"{seconds:.0f} s, {ahead}", fontsize=6, **text)
            guess = int(cell.guess_winner)
            if guess != int(cell.winner):
                letter = "-" if guess < 0 else LETTERS[names[guess]]
                axes.text(x + 0.46, y + 0.42, f"({letter})", ha="right", va="top", fontsize=6)
    axes.set(
        xlim=(-0.5, one.sizes["encode_rate"] - 0.5),
        ylim=(-0.5, one.sizes["bandwidth"] - 0.5),
        xticks=range(one.sizes["encode_rate"]),
        yticks=range(one.sizes["bandwidth"]),
    )
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def server(axes: Any, one: Any) -> None:
    """Draw the time to the target against the server's seconds, and where ASP stops paying."""
    import numpy as np

    from dtjax.analysis.bootstrap import median_interval

    for policy in one.policy.values:
        color, marker, dash = LINES[str(policy)]
        times = one.apply_target_seconds.sel(policy=policy).transpose("load", "run").values
        found = [median_interval(row) for row in times]
        middle, low, high = (
            np.array([getattr(x, name) for x in found]) for name in ("median", "low", "high")
        )
        shown = np.isfinite(middle)
        at, middle, low = one["load"].values[shown], middle[shown], low[shown]
        high = high[shown]
        arms = np.stack([middle - low, np.where(np.isfinite(high), high - middle, 0.0)])
        axes.errorbar(at, middle, yerr=arms, color=color, marker=marker, linestyle=dash,
                      markersize=4, linewidth=1.0, elinewidth=0.7, label=str(policy))  # fmt: skip
        for x, y in zip(at[np.isinf(high)], middle[np.isinf(high)], strict=True):
            axes.annotate(
                "", (x, y * 1.25), (x, y), arrowprops={"arrowstyle": "->", "color": color}
            )
    axes.set(yscale="log")
    if "crossing" not in one:
        return
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom * 0.72, top)
    for place, against in enumerate(one.against.values):
        color = LINES[str(against)][0]
        y = bottom * (0.95 - 0.14 * place)
        middle, low, high = one.crossing.sel(against=against).values
        end = float(one["load"].max())
        axes.plot([min(low, end), min(high, end)], [y, y], color=color, linewidth=2.5, alpha=0.5)
        if np.isinf(high):
            axes.plot(end, y, color=color, marker=">", markersize=4)
        if np.isfinite(middle):
            axes.plot(middle, y, color=color, marker="X", markersize=6)
            axes.axvline(middle, color=color, linewidth=0.6, linestyle=":")


def main(options: Options) -> None:
    """Read the file and draw it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    from dtjax.experiment import study as studies

    whole = studies.read(options.result)
    if whole.attrs.get("study") != "regimes":
        rule = "must be a result of studies/regimes.py"
        raise ValueError(f"figures/regimes.py: result {rule}, got '{options.result}'")
    config = json.loads(whole.attrs["config"])
    plt.style.use(Path(__file__).with_name("dtjax.mplstyle"))
    policies, workers = whole.policy.values, whole.workers.values
    names = [str(name) for name in whole.compressor.values]
    figure = plt.figure(figsize=(7.2, 2.15 * len(workers) + 2.9), layout="constrained")
    heights = [2.15 * len(workers), 2.5]
    halves: Any = figure.subfigures(2, 1, height_ratios=heights)
    upper, lower = halves
    grid = upper.subplots(len(workers), len(policies), squeeze=False, sharex=True, sharey=True)
    for row, n in zip(grid, workers, strict=True):
        for axes, policy in zip(row, policies, strict=True):
            squares(axes, whole.sel(workers=n, policy=policy), names)
            axes.set_title(f"{policy}, {n} workers")
        row[0].set_yticklabels([short(x) for x in whole.bandwidth.values])
        row[0].set_ylabel("bandwidth, bits/s")
    for axes in grid[-1]:
        axes.set_xticklabels([short(x) for x in whole.encode_rate.values])
        axes.set_xlabel("encode rate, bits/s")
    handles: list[Any] = [
        plt.Rectangle((0, 0), 1, 1, facecolor=SHADES[name], label=f"{LETTERS[name]} {name}")
        for name in names
    ]
    handles.append(
        plt.Rectangle((0, 0), 1, 1, facecolor="0.6", edgecolor="white", linewidth=0.0, hatch="////",
                      label="lead not clear")
    )  # fmt: skip
    handles.append(plt.Line2D([], [], linestyle="none", label="x: over the second"))
    handles.append(plt.Line2D([], [], linestyle="none", label="( ): the closed form's first"))
    upper.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False, fontsize=6.5,
                 handlelength=1.6, columnspacing=1.2)  # fmt: skip

    panels = lower.subplots(1, len(workers), squeeze=False)[0]
    for axes, n in zip(panels, workers, strict=True):
        server(axes, whole.sel(workers=n))
        axes.set(title=f"server time, {n} workers", xlabel="workers x apply / mean compute time")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    panels[0].set_ylabel(f"seconds to {config['target']:.0%}")
    handles = panels[0].get_legend_handles_labels()[0]
    if "crossing" in whole:
        line: dict[str, Any] = {"color": "0.4", "marker": "X", "linewidth": 2.5}
        handles.append(plt.Line2D([], [], **line, label="asp meets it, 95 %"))
    lower.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False, fontsize=7)
    figure.suptitle(
        f"first to {config['target']:.0%} test accuracy, {config['runs']} runs: which compressor "
        "by links and encoders (apply 0), which policy by server time (no links)",
        fontsize=8,
    )
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with studies.whole_file(options.out) as partial:
        kind = options.out.suffix.lstrip(".") or "png"
        metadata: Any = undated.get(options.out.suffix)
        figure.savefig(partial, format=kind, metadata=metadata, dpi=150)


if __name__ == "__main__":
    try:
        main(tyro.cli(Options, description=__doc__))
    except ValueError as error:
        sys.exit(f"error: {error}")
