"""Draw the result of studies/tradeoff.py: who is first, and the losses behind it.

python figures/tradeoff.py results/tradeoff/tradeoff.nc --out tradeoff.png
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Options:
    """Draw the trade-off between error and time."""

    result: Annotated[Path, tyro.conf.Positional]
    """The netCDF file that the study wrote."""
    out: Path = Path("tradeoff.png")
    """The picture; its ending says the format."""


def on_grid(x: np.ndarray, y: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Interpolate each run's curve on a common grid; NaN outside of what it covers."""
    import numpy as np

    rows = []
    for a, b in zip(x, y, strict=True):
        good = np.isfinite(a) & np.isfinite(b)
        rows.append(np.interp(grid, a[good], b[good], left=np.nan, right=np.nan))
    return np.stack(rows)


def curve(axes: Any, one: Any, across: str, color: str) -> None:
    """Draw the median test loss of one arm, and the middle half of its runs."""
    import numpy as np

    x, y = one[across].values, one.test_loss.values
    top = np.nanmedian(np.nanmax(x, axis=-1))
    low = np.nanmin(x[:, 1]) if across == "updates" else 0.0
    grid = np.geomspace(low, top, 60) if across == "updates" else np.linspace(0.0, top, 60)
    values = on_grid(x, y, grid)
    seen = np.isfinite(values).sum(axis=0) >= max(1, len(values) // 2)
    grid, values = grid[seen], values[:, seen]
    low_, middle, high = np.nanquantile(values, [0.25, 0.5, 0.75], axis=0)
    axes.plot(grid, middle, color=color)
    axes.fill_between(grid, low_, high, color=color, alpha=0.12, linewidth=0)


def answer(axes: Any, one: Any, end: float, colors: list[str]) -> None:
    """Draw the median seconds to the target of every arm of a world, soonest on top."""
    import numpy as np

    order = np.argsort(one.median_seconds.values, kind="stable")
    for row, place in enumerate(order):
        arm, color = one.isel(arm=place), colors[place]
        middle = float(arm.median_seconds)
        low, high = (min(float(x), end) for x in arm.median_bounds.values)
        chance = f"{float(arm.first_probability):.0%}"
        if np.isfinite(middle):
            axes.plot([low, high], [row, row], color=color, linewidth=2)
            axes.plot(middle, row, "o", color=color, markersize=5)
            if not np.isfinite(float(arm.median_bounds[1])):
                axes.plot(end, row, ">", color=color, markersize=5)
        else:
            got = one.sizes["run"] - int(arm.censored)
            words = f"reached by {got} of {one.sizes['run']} runs"
            axes.text(0.97 * end, row, words, ha="right", va="center", fontsize=6, color=color)
        axes.text(1.03 * end, row, chance, ha="left", va="center", fontsize=6.5)
    names = [str(one.arm.values[place]) for place in order]
    axes.set_yticks(range(len(order)), names)
    for label, place in zip(axes.get_yticklabels(), order, strict=True):
        label.set_color(colors[place])
    axes.text(1.03 * end, -0.75, "P(first)", ha="left", va="bottom", fontsize=6.5)
    axes.set(xlim=(0.0, end), ylim=(len(order) - 0.5, -0.6), axisbelow=True)
    axes.grid(axis="x", linewidth=0.4, alpha=0.5)


def ends(one: Any) -> tuple[float, float]:
    """Return the limits of the losses of a world: from below the least median to the first."""
    medians = one.test_loss.median("run")
    return 0.85 * float(medians.min()), 1.15 * float(medians.isel(evaluation=0).max())


def main(options: Options) -> None:
    """Read the file and draw it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from dtjax.experiment import study as studies

    whole = studies.read(options.result)
    if whole.attrs.get("study") != "tradeoff":
        rule = "must be a result of studies/tradeoff.py"
        raise ValueError(f"figures/tradeoff.py: result {rule}, got '{options.result}'")
    config = json.loads(whole.attrs["config"])
    goal = config["target"] if config.get("shown") is None else config["shown"]
    plt.style.use(Path(__file__).with_name("dtjax.mplstyle"))
    colors = [f"C{place}" for place in range(whole.sizes["arm"])]
    worlds = [str(world) for world in whole.world.values]
    size = (9.0, 2.5 * len(worlds) + 0.4)
    figure, grid = plt.subplots(len(worlds), 3, figsize=size, squeeze=False, layout="constrained")
    for row, world in zip(grid, worlds, strict=True):
        one = whole.sel(world=world)
        answer(row[0], one, float(config["horizon"]), colors)
        row[0].set(
            title=f"{world}: who is first", xlabel=f"seconds to {100 * goal:.4g}% test accuracy"
        )
        for axes, across in zip(row[1:], ("seconds", "updates"), strict=True):
            for place, color in enumerate(colors):
                curve(axes, one.isel(arm=place), across, color)
            axes.set(yscale="log", ylabel="test loss", title=f"{world}: against {across}")
        row[1].set(xlabel="simulated seconds")
        row[2].set(xscale="log", xlabel="updates of the model")
        row[2].sharey(row[1])
        row[1].set_yticks([0.1, 0.2, 0.5, 1.0, 2.0], ["0.1", "0.2", "0.5", "1", "2"], minor=False)
        row[1].yaxis.set_minor_formatter("")
        row[1].set_ylim(*ends(one))
    rate = config.get("bandwidth")
    linked = "" if rate is None else f", {rate:.3g} bits a second"
    figure.suptitle(
        f"{config['workers']} workers{linked}, {config['runs']} runs. Left: median and its 95 % "
        "interval, probability of being first. Right: median and middle half of the runs",
        fontsize=8,
    )
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with studies.whole_file(options.out) as partial:
        kind = options.out.suffix.lstrip(".") or "png"
        metadata: Any = undated.get(options.out.suffix)
        figure.savefig(partial, format=kind, metadata=metadata)


if __name__ == "__main__":
    try:
        main(tyro.cli(Options, description=__doc__))
    except ValueError as error:
        sys.exit(f"error: {error}")
