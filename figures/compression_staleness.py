"""Draw the result of studies/compression_staleness.py: final loss over staleness and sparsity.

python figures/compression_staleness.py results/compression_staleness/compression_staleness.nc \
    --out compression_staleness.png
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
    """Draw the map of final losses."""

    result: Annotated[Path, tyro.conf.Positional]
    """The netCDF file that the study wrote."""
    out: Path = Path("compression_staleness.png")
    """The picture; its ending says the format."""


def losses(one: Any) -> np.ndarray:
    """Return each run's final test loss, f[staleness, share, run]; infinite if it diverged."""
    import numpy as np

    loss = one.test_loss.transpose("staleness", "share", "run", "evaluation").values
    return np.nan_to_num(loss[..., -1], nan=np.inf)


def median(values: np.ndarray, seed: int | None = None) -> np.ndarray:
    """Return medians over runs, the higher of two; with a seed, of 1,000 resamples: f[..., S]."""
    import numpy as np

    runs = values.shape[-1]
    if seed is not None:
        values = values[..., np.random.default_rng(seed).integers(0, runs, (1000, runs))]
    return np.sort(values, axis=-1)[..., runs // 2]


def heat(axes: Any, one: Any, norm: Any) -> Any:
    """Draw the median final losses of one memory, with the ends of their intervals."""
    import numpy as np

    from dtjax.analysis.bootstrap import median_interval

    cells = [[median_interval(values) for values in row] for row in losses(one)]
    middle = np.array([[cell.median for cell in row] for row in cells])
    image = axes.imshow(middle, cmap="cividis_r", norm=norm, aspect="auto", origin="lower")
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            bright = norm(min(cell.median, norm.vmax)) < 0.5
            text = f"{cell.median:.3g}\n[{cell.low:.2g}, {cell.high:.2g}]"
            color = "black" if bright else "white"
            axes.text(j, i, text, ha="center", va="center", fontsize=5, color=color)
    axes.set_xticks(range(one.sizes["share"]), [f"{x:g}" for x in one.share.values])
    axes.set_yticks(range(one.sizes["staleness"]), [str(x) for x in one.staleness.values])
    axes.set(xlabel="share of the entries that is sent")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return image


def costs(loss: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the loss that each of both adds alone, summed, and both together: f[cell, ...]."""
    over = loss - loss[:1, :1]
    alone = over[1:, :1] + over[:1, 1:]
    return alone.reshape(-1, *loss.shape[2:]), over[1:, 1:].reshape(-1, *loss.shape[2:])


def lines(axes: Any, whole: Any) -> None:
    """Draw what staleness and sparsity cost together, against the sum of what each costs alone."""
    import numpy as np

    ends = [0.0]
    colors = ("#0072B2", "#D55E00")
    for memory, marker, color in zip(whole.memory.values, "os", colors, strict=False):
        loss = losses(whole.sel(memory=memory))
        with np.errstate(invalid="ignore"):
            x, y = costs(median(loss))
            samples = costs(median(loss, seed=0))[1]
        good = np.isfinite(x) & np.isfinite(y) & np.isfinite(samples).all(-1)
        low, high = np.quantile(samples[good], [0.025, 0.975], axis=-1)
        axes.errorbar(
            x[good],
            y[good],
            yerr=np.maximum([y[good] - low, high - y[good]], 0),
            linestyle="none",
            linewidth=0.7,
            marker=marker,
            markersize=3.5,
            color=color,
            label=f"memory: {memory}",
        )
        ends += [*x[good].tolist(), *y[good].tolist()]
    bounds = min(ends), max(ends)
    axes.plot(bounds, bounds, color="0.4", linewidth=0.8, linestyle="--", zorder=0)
    axes.annotate("they add", bounds[1:] * 2, xytext=(-3, 3), textcoords="offset points",
                  ha="right", fontsize=6.5, color="0.3")  # fmt: skip
    axes.set(xlabel="loss added by each alone,\nsummed", ylabel="loss added by both together")


def main(options: Options) -> None:
    """Read the file and draw it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import NullFormatter

    from dtjax.experiment import study as studies

    whole = studies.read(options.result)
    if whole.attrs.get("study") != "compression_staleness":
        rule = "must be a result of studies/compression_staleness.py"
        name = "figures/compression_staleness.py"
        raise ValueError(f"{name}: result {rule}, got '{options.result}'")
    config = json.loads(whole.attrs["config"])
    plt.style.use(Path(__file__).with_name("dtjax.mplstyle"))
    count = whole.sizes["memory"]
    ratios = [1.25] * count + [1.0]
    figure, panels = plt.subplots(
        1, count + 1, figsize=(7.2, 2.9), layout="constrained", width_ratios=ratios
    )
    values = np.stack([median(losses(whole.sel(memory=memory))) for memory in whole.memory.values])
    known = values[np.isfinite(values)]
    low, high = float(known.min()), max(float(known.max()), float(known.min()) * 1.01)
    norm = LogNorm(low, high)
    for axes, memory in zip(panels, whole.memory.values, strict=False):
        image = heat(axes, whole.sel(memory=memory), norm)
        title = {"feedback": "memory: error feedback", "none": "no memory"}
        axes.set(title=title.get(str(memory), str(memory)))
    panels[0].set_ylabel("staleness, updates")
    for axes in panels[1:count]:
        axes.tick_params(labelleft=False)
    bar = figure.colorbar(image, ax=list(panels[:count]), shrink=0.9, pad=0.01)
    bar.set_label("final test loss")
    ticks = [x for x in (0.1, 0.15, 0.2, 0.3, 0.5, 1, 2) if low <= x <= high]
    bar.set_ticks(ticks, labels=[f"{x:g}" for x in ticks])
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    lines(panels[-1], whole)
    handles, labels = panels[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower right", ncols=2, frameon=False, fontsize=6.5)
    figure.suptitle(
        f"top-k, {config['workers']} workers in turn, {config['updates']} updates, the best rate "
        f"of each cell; medians of {config['runs']} runs, 95 % bootstrap intervals",
        fontsize=7.5,
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
