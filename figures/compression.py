"""Draw the result of studies/compression.py: what compressors cost and save, and when they pay.

python figures/compression.py results/compression/compression.nc --out compression.png
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Options:
    """Draw what compressors cost in updates, and save in seconds and bytes."""

    result: Annotated[Path, tyro.conf.Positional]
    """The netCDF file that the study wrote."""
    out: Path = Path("compression.png")
    """The picture; its ending says the format."""
    measure: Literal["loss", "accuracy"] = "loss"
    """Of the test data."""
    memory: str = "feedback"
    """Whose curves to draw against seconds and bytes; a compressor that has none of this memory is
    drawn without."""


COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#7F7F7F")
LINES = {"contractive": "-", "unbiased": (0, (4, 1.2)), "neither": (0, (1, 1))}


def style(whole: Any) -> dict[str, dict[str, Any]]:
    """Return how each compressor is drawn: dense in black, a line style a class."""
    counts: dict[str, int] = {}
    found: dict[str, dict[str, Any]] = {}
    for text, family in zip(whole.compressor.values, whole.family.values, strict=True):
        if not found:
            found[str(text)] = {"color": "black", "linewidth": 1.6}
        elif str(text) not in found:
            place = counts.get(family, 0)
            counts[family] = place + 1
            color = COLORS[place % len(COLORS)]
            found[str(text)] = {"color": color, "linestyle": LINES[str(family)]}
    return found


def on_grid(x: np.ndarray, y: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Interpolate each run's curve on a common grid; NaN outside of what it covers."""
    import numpy as np

    rows = []
    for a, b in zip(x, y, strict=True):
        good = np.isfinite(a) & np.isfinite(b)
        rows.append(np.interp(grid, a[good], b[good], left=np.nan, right=np.nan))
    return np.stack(rows)


def curve(axes: Any, x: Any, one: Any, options: Options, how: dict[str, Any]) -> None:
    """Draw one setting's median test measure, where half of the runs or more have one."""
    import numpy as np

    y = one[f"test_{options.measure}"].values
    ends = np.nanmax(np.where(np.isfinite(y), x, np.nan), axis=-1)
    grid = np.geomspace(max(np.nanmin(x[:, 1]), 1e-9), np.nanmedian(ends), 60)
    values = on_grid(x, y, grid)
    seen = np.isfinite(values).sum(axis=0) >= max(1, (len(values) + 1) // 2)
    if seen.any():
        axes.plot(grid[seen], np.nanmedian(values[:, seen], axis=0), **how)


def chosen(whole: Any, memory: str) -> list[Any]:
    """Return one setting a compressor: with this memory if there is one."""
    found: dict[str, Any] = {}
    for place in range(whole.sizes["setting"]):
        one = whole.isel(setting=place)
        text = str(one.compressor.values)
        if text not in found or str(one.memory.values) == memory:
            found[text] = one
    return list(found.values())


def median(values: np.ndarray, seed: int | None = None) -> np.ndarray:
    """Return medians over runs, the higher of two; with a seed, of 1,000 resamples: f[..., S]."""
    import numpy as np

    runs = values.shape[-1]
    if seed is not None:
        values = values[..., np.random.default_rng(seed).integers(0, runs, (1000, runs))]
    return np.sort(values, axis=-1)[..., runs // 2]


def relative(axes: Any, whole: Any, ones: list[Any], how: dict[str, dict[str, Any]]) -> None:
    """Draw settings' median seconds over those of dense gradients, and where they meet."""
    import numpy as np

    finite = np.isfinite(whole.bandwidth.values)
    speed = whole.bandwidth.values[finite]

    def reached(one: Any) -> np.ndarray:
        return one.target_seconds.transpose("bandwidth", "run").values[finite]

    dense = reached(whole.isel(setting=0))
    axes.axhline(1.0, **how[str(whole.compressor.values[0])])
    for one in ones:
        own = reached(one)
        if not (np.isfinite(median(own)).all() and np.isfinite(median(dense)).all()):
            continue
        line = how[str(one.compressor.values)]
        axes.plot(speed, median(own) / median(dense), **line)
        with np.errstate(invalid="ignore"):  # the same runs of both; of two infinities 1
            samples = np.nan_to_num(median(own, seed=0) / median(dense, seed=0), nan=1, posinf=1e9)
        low, high = np.quantile(samples, [0.025, 0.975], axis=-1)
        axes.fill_between(speed, low, high, color=line["color"], alpha=0.12, linewidth=0)
        even = float(one.break_even)
        if 0 < even < np.inf:
            axes.plot(even, 1.0, marker="o", markersize=3.5, color=line["color"], zorder=4)
    axes.set(xscale="log", yscale="log", xlabel="bandwidth, bit/s")
    axes.set_ylim(top=1.3 * max(float(np.max(line.get_ydata())) for line in axes.lines))
    axes.set_xlim(speed[0] / 1.5, speed[-1] * 1.5)


def errors(axes: Any, whole: Any, how: dict[str, dict[str, Any]]) -> None:
    """Draw what is lost of a message, without a memory and with one."""
    import numpy as np
    from matplotlib.ticker import LogLocator

    names: list[str] = []
    axes.set_xscale("log")
    several = len(set(whole.memory.values)) > 2
    for place in np.flatnonzero(whole.memory.values != "none"):
        kept, y = whole.isel(setting=place), len(names)
        text = str(kept.compressor.values)
        names.append(f"{text}, {kept.memory.values}" if several else text)
        color, end = how[text]["color"], float(kept.mean_error.median())
        axes.plot(end, y, marker="o", markersize=4, color=color)
        for plain in np.flatnonzero(whole.setting.values == text):
            start = float(whole.mean_error.isel(setting=plain).median())
            axes.plot([start, end], [y, y], color=color, linewidth=0.8)
            axes.plot(start, y, marker="o", markersize=4, markerfacecolor="white", color=color)
        if mark := {0: "+", 1: "x"}.get(int(kept.verdict)):
            axes.plot(1.04, y, marker=mark, markersize=5, color="black", clip_on=False,
                      transform=axes.get_yaxis_transform())  # fmt: skip
    axes.axvline(1.0, color="0.5", linewidth=0.8, linestyle="--")
    axes.xaxis.set_major_locator(LogLocator(numticks=4))
    axes.set_yticks(range(len(names)), names, fontsize=6.5)
    axes.invert_yaxis()
    axes.set(xlabel=r"lost of a message, $|C(x)-x|^2/|x|^2$")
    axes.set_title("open: gradient; full: and memory\n+: memory helps, x: hurts")


def _power(value: float) -> str:
    mantissa, exponent = f"{value:.1e}".split("e")
    return rf"${mantissa}\cdot10^{{{int(exponent)}}}$"


def main(options: Options) -> None:
    """Read the file and draw it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np
    from matplotlib.ticker import NullLocator

    from dtjax.experiment import study as studies

    whole = studies.read(options.result)
    if whole.attrs.get("study") != "compression":
        rule = "must be a result of studies/compression.py"
        raise ValueError(f"figures/compression.py: result {rule}, got '{options.result}'")
    config = json.loads(whole.attrs["config"])
    plt.style.use(Path(__file__).with_name("dtjax.mplstyle"))
    how = style(whole)
    places = [int(np.argmin(abs(whole.ratio.values - ratio))) for ratio in config["ratios"]][:3]
    figure, grid = plt.subplots(3, 3, figsize=(7.2, 7.4), layout="constrained")
    updates, seconds, others = grid

    def draw(axes: Any, x: Any, one: Any) -> None:
        curve(axes, x, one, options, how[str(one.compressor.values)])

    plain = [whole.isel(setting=i) for i in np.flatnonzero(whole.memory.values == "none")]
    kept = chosen(whole, options.memory)
    for one in plain:
        draw(updates[0], one.updates.values, one)
    for one in kept:
        draw(updates[1], one.updates.values, one)
        draw(updates[2], one.gradients.values * float(one.bits) / 8, one)
        for axes, place in zip(seconds, places, strict=False):
            draw(axes, one.seconds.transpose("bandwidth", "run", "evaluation").values[place], one)
    known = options.memory if options.memory != "feedback" else "error feedback"
    updates[0].set(xlabel="updates of the model", title="no memory")
    updates[1].set(xlabel="updates of the model", title=known)
    updates[2].set(xlabel="bytes of all gradients", title=known)
    for axes, place in zip(seconds, places, strict=False):
        speed, ratio = float(whole.bandwidth[place]), float(whole.ratio[place])
        axes.set(xlabel="simulated seconds", title=f"{_power(speed)} bit/s, D = {ratio:g}")
    for axes in seconds[len(places) :]:
        axes.set_visible(False)
    curves = [line.get_ydata() for line in updates[1].lines]
    low = min((float(np.min(y)) for y in curves), default=0.1)
    loss = options.measure == "loss"
    for axes in (*updates, *seconds):
        axes.set(xscale="log", ylim=(low * 0.85, 3.5) if loss else (0.0, 1.0))
        if loss:
            axes.set_yscale("log")
            ticks = [x for x in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0) if x > low * 0.85]
            axes.set_yticks(ticks, [f"{x:g}" for x in ticks])
            axes.yaxis.set_minor_locator(NullLocator())
        if axes not in (updates[0], seconds[0]):
            axes.tick_params(labelleft=False)
    for axes in (updates[0], seconds[0]):
        axes.set_ylabel(f"test {options.measure}")
    for axes, ones, name in ((others[0], plain[1:], "no memory"), (others[1], kept[1:], known)):
        relative(axes, whole, ones, how)
        axes.set(title=f"seconds to {config['target']:.0%}, {name}")
        for place in places:
            axes.axvline(
                float(whole.bandwidth[place]), color="0.5", linewidth=0.6, linestyle=":", zorder=0
            )
    ends = np.array([axes.get_ylim() for axes in others[:2]])
    for axes in others[:2]:
        axes.set_ylim(ends[:, 0].min(), ends[:, 1].max())
        ticks = [x for x in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10) if ends[:, 0].min() < x]
        ticks = [x for x in ticks if x < ends[:, 1].max()]
        axes.set_yticks(ticks, [f"{x:g}" for x in ticks])
        axes.yaxis.set_minor_locator(NullLocator())
    others[0].set_ylabel("times those of dense gradients")
    others[1].tick_params(labelleft=False)
    errors(others[2], whole, how)
    names = {text: "dense" if line["color"] == "black" else text for text, line in how.items()}
    handles = [plt.Line2D([], [], label=names[text], **line) for text, line in how.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False, fontsize=6.5,
                  handlelength=2.6)  # fmt: skip
    figure.suptitle(
        f"{config['workers']} workers, BSP, {config['runs']} runs: medians, bands: 95 % bootstrap; "
        "solid: contractive, dashed: unbiased.\nD: seconds of a dense gradient's transfer over a "
        "mean compute time; dots: break-even bandwidths",
        fontsize=7.5,
    )
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with studies.whole_file(options.out) as partial:
        kind = options.out.suffix.lstrip(".") or "png"
        metadata: Any = undated.get(options.out.suffix)
        figure.savefig(partial, format=kind, metadata=metadata, dpi=140)


if __name__ == "__main__":
    try:
        main(tyro.cli(Options, description=__doc__))
    except ValueError as error:
        sys.exit(f"error: {error}")
