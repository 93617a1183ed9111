"""Draw the result of studies/stability.py: the largest stable rate against workers, and dots.

python figures/stability.py results/stability/stability.nc --out stability.png
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
    """Draw the map of stable rates."""

    result: Annotated[Path, tyro.conf.Positional]
    """The netCDF file that the study wrote."""
    out: Path = Path("stability.png")
    """The picture; its ending says the format."""


MARKERS = {
    "bsp": "o",
    "k-bsp": "s",
    "k-batch-bsp": "D",
    "k-asp": "^",
    "k-batch-asp": "v",
    "ssp": "P",
    "asp": "*",
}
DOTS = {
    "mean square shrinks": ("#0072B2", "#0072B2"),
    "mean square grows, a typical run shrinks": ("white", "#D55E00"),
    "both grow": ("#D55E00", "#D55E00"),
    "one of them undecided": ("0.8", "0.4"),
}


def overview(axes: Any, whole: Any) -> None:
    """Draw the edge of each policy: theory as a line, the trainer's with its interval."""
    import numpy as np

    for policy in whole.policy.values:
        one = whole.sel(policy=policy)
        color = f"C{list(MARKERS).index(str(policy))}"
        axes.plot(one.n, one.theory_edge, color=color)
        middle, low, high = one.edge.transpose("interval", "workers").values
        axes.errorbar(
            one.workers,
            middle,
            yerr=np.stack([middle - low, high - middle]),
            color=color,
            marker=MARKERS[str(policy)],
            markersize=3.5,
            linestyle="none" if one.theory_edge.notnull().any() else (0, (1, 2)),
            linewidth=0.8,
            label=str(policy),
        )
    axes.legend(frameon=False, fontsize=6.5, loc="lower left")


def dots(axes: Any, one: Any) -> None:
    """Draw one policy: what became of each rate, and the lines to compare them with."""
    import numpy as np

    axes.plot(one.n, one.theory_edge, color="black")
    axes.plot(one.n, one.constant_delay_edge, color="black", linestyle="--", linewidth=0.9)
    for n in one.workers.values:
        for factor in one.factor.values:
            at = one.sel(workers=n, factor=factor)
            square, typical = int(at.verdict), int(at.typical_verdict)
            if square == 3:
                axes.plot(n, at.rate, color="black", marker="x", markersize=4)
                continue
            grown = "both grow" if typical == 1 else "mean square grows, a typical run shrinks"
            unclear = square == 2 or (square == 1 and typical == 2)
            kind = "mean square shrinks" if square == 0 else grown
            kind = "one of them undecided" if unclear else kind
            face, edge = DOTS[kind]
            style = {"markerfacecolor": face, "markeredgecolor": edge, "markeredgewidth": 0.9}
            axes.plot(n, at.rate, marker="o", markersize=4, linestyle="none", zorder=3, **style)
    middle = one.edge.sel(interval="mean").values
    if not one.theory_edge.notnull().any() and np.isfinite(middle).any():
        axes.plot(one.workers, middle, color="black", linestyle=":", linewidth=0.9)


def main(options: Options) -> None:
    """Read the file and draw it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    from dtjax.experiment import study as studies

    whole = studies.read(options.result)
    if whole.attrs.get("study") != "stability":
        rule = "must be a result of studies/stability.py"
        raise ValueError(f"figures/stability.py: result {rule}, got '{options.result}'")
    config = json.loads(whole.attrs["config"])
    plt.style.use(Path(__file__).with_name("dtjax.mplstyle"))
    names = [str(policy) for policy in whole.policy.values]
    fresh = [name for name in names if name.endswith("bsp")]
    shown = fresh[:1] + [name for name in names if name not in fresh]
    columns = min(3, 1 + len(shown))
    rows = -(-(1 + len(shown)) // columns)
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(7.0, 2.3 * rows + 0.8),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    first, *others = grid.flat
    overview(first, whole)
    first.set(title="edge of each policy")
    for axes, name in zip(others, shown, strict=False):
        dots(axes, whole.sel(policy=name))
        axes.set(title=", ".join(fresh) if name in fresh else name)
    for axes in others[len(shown) :]:
        axes.set_visible(False)
    ends = whole.n.values[[0, -1]]
    first.set(xscale="log", yscale="log", xlim=(ends[0] / 1.15, ends[1] * 1.15))
    first.xaxis.set_major_locator(FixedLocator(whole.workers.values.tolist()))
    first.xaxis.set_minor_locator(NullLocator())
    first.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    for axes in grid[:, 0]:
        axes.set_ylabel("rate x eigenvalue")
    for axes in grid[-1]:
        axes.set_xlabel("workers")
    handles: list[Any] = [
        plt.Line2D([], [], linestyle="none", marker="o", markersize=4, label=label,
                   markerfacecolor=face, markeredgecolor=edge)
        for label, (face, edge) in DOTS.items()
    ]  # fmt: skip
    lines: dict[str, Any] = {
        "edge in theory": "-",
        "at constant staleness": "--",
        "edge of ssp's dots": ":",
    }
    handles += [
        plt.Line2D([], [], color="black", linewidth=0.9, linestyle=style, label=label)
        for label, style in lines.items()
    ]
    if (whole.verdict == 3).any():
        handles.append(
            plt.Line2D([], [], color="black", marker="x", linestyle="none", label="diverged")
        )
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=6.5)
    figure.suptitle(
        f"k = {config['k']}, ssp bound {config['bound']}, exponential compute times: theory, and "
        f"the trainer with {config['islands']} x {config['particles']} cloned runs a dot",
        fontsize=8,
    )
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with studies.whole_file(options.out) as partial:
        kind = options.out.suffix.lstrip(".") or "png"
        metadata: Any = undated.get(options.out.suffix)
        figure.savefig(partial, format=kind, metadata=metadata, dpi=130)


if __name__ == "__main__":
    try:
        main(tyro.cli(Options, description=__doc__))
    except ValueError as error:
        sys.exit(f"error: {error}")
