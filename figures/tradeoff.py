"""Draw the result of studies/tradeoff.py: loss against updates and against seconds.

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


def panel(axes: Any, one: Any, across: str, label: str, marker: str) -> None:
    """Draw one policy's median test loss and the middle half of its runs."""
    import numpy as np

    x, y = one[across].values, one.test_loss.values
    top = np.nanmedian(np.nanmax(x, axis=-1))
    low = np.nanmin(x[:, 1]) if across == "updates" else 0.0
    grid = np.geomspace(low, top, 60) if across == "updates" else np.linspace(0.0, top, 60)
    values = on_grid(x, y, grid)
    seen = np.isfinite(values).sum(axis=0) >= max(1, len(values) // 2)
    grid, values = grid[seen], values[:, seen]
    low_, middle, high = np.nanquantile(values, [0.25, 0.5, 0.75], axis=0)
    (line,) = axes.plot(grid, middle, label=label, marker=marker, markevery=10, markersize=3)
    axes.fill_between(grid, low_, high, color=line.get_color(), alpha=0.15, linewidth=0)


def main(options: Options) -> None:
    """Read the file and draw it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    from dtjax.experiment import study as studies

    whole = studies.read(options.result)
    if whole.attrs.get("study") != "tradeoff":
        rule = "must be a result of studies/tradeoff.py"
        raise ValueError(f"figures/tradeoff.py: result {rule}, got '{options.result}'")
    config = json.loads(whole.attrs["config"])
    plt.style.use(Path(__file__).with_name("dtjax.mplstyle"))
    worlds = [str(world) for world in whole.world.values]
    figure, grid = plt.subplots(
        len(worlds),
        2,
        figsize=(7.0, 2.5 * len(worlds) + 0.5),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for row, world in zip(grid, worlds, strict=True):
        for axes, across in zip(row, ("updates", "seconds"), strict=True):
            for policy, marker in zip(whole.policy.values, "osD^vP*", strict=False):
                one = whole.sel(world=world, policy=policy)
                panel(axes, one, across, str(policy), marker)
            axes.set(yscale="log", title=f"{world}: against {across}")
        row[0].set(xscale="log", xlabel="updates of the model", ylabel="test loss")
        row[1].set(xlabel="simulated seconds")
        for policy, line in zip(whole.policy.values, row[1].lines, strict=True):
            reached = whole.target_seconds.sel(world=world, policy=policy).values
            middle = float(np.quantile(reached, 0.5, method="higher"))
            if np.isfinite(middle):
                row[1].axvline(middle, color=line.get_color(), linewidth=0.6, linestyle=":")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=7, frameon=False)
    rate = config.get("bandwidth")
    linked = "" if rate is None else f", {rate:.3g} bits a second"
    figure.suptitle(
        f"{config['workers']} workers{linked}, {config['runs']} runs: median and middle half; "
        f"dotted: median seconds to {config['target']:.0%} test accuracy",
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
