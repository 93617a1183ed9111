"""Draw the result of studies/stragglers.py: what stragglers cost as the cluster grows.

python figures/stragglers.py results/stragglers/stragglers.nc --out stragglers.png
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Options:
    """Draw the cost of stragglers against the number of workers."""

    result: Annotated[Path, tyro.conf.Positional]
    """The netCDF file that the study wrote."""
    out: Path = Path("stragglers.png")
    """The picture; its ending says the format."""


def interval(one: xr.Dataset, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means over runs and how far their 95 % intervals reach below and above.

    Medians with bootstrap intervals where the variance is infinite.

    Args:
        one: of one law.
        values: f[workers, run].
    """
    from dtjax.analysis.bootstrap import mean_interval, median_interval

    if one.finite_variance:
        mean, half = mean_interval(values)
        return mean, np.stack([half, half])
    found = [median_interval(row) for row in values]
    middle = np.array([each.median for each in found])
    return middle, np.abs(np.array([[each.low, each.high] for each in found]).T - middle)


def draw(axes: Any, one: xr.Dataset, line: Any, values: Any, style: dict[str, Any]) -> None:
    """Draw theory as a line where it speaks, and simulation as dots with intervals.

    Args:
        axes: to draw on.
        one: of one law.
        line: f[workers], or None.
        values: f[workers, run], NaN where nothing was simulated, or None.
        style: colour and marker.
    """
    n = one.workers.values
    if line is not None:
        axes.plot(n, line, color=style["color"])
    if values is None:
        return
    values = np.asarray(values.transpose("workers", "run"))
    seen = ~np.isnan(values).any(-1)
    if seen.any():
        middle, reach = interval(one, values[seen])
        # Without theory the eye needs something to follow.
        join = {"linestyle": "none"} if line is not None else {"linestyle": ":", "linewidth": 0.7}
        axes.errorbar(n[seen], middle, reach, **style, **join, markersize=3, elinewidth=0.8)


def main(options: Options) -> None:
    """Read the file and draw it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from dtjax.experiment import study as studies

    whole = studies.read(options.result)
    if whole.attrs.get("study") != "stragglers":
        rule = "must be a result of studies/stragglers.py"
        raise ValueError(f"figures/stragglers.py: result {rule}, got '{options.result}'")
    config = json.loads(whole.attrs["config"])
    plt.style.use(Path(__file__).with_name("dtjax.mplstyle"))
    figure, grid = plt.subplots(2, 3, figsize=(7.6, 5.0), sharex=True, layout="constrained")
    (slow, busy, share), (cost, k_asp, k_batch_bsp) = grid
    handles: dict[str, Any] = {}
    for place, (name, marker) in enumerate(zip(whole.law.values, "osD^vP*", strict=False)):
        one = whole.sel(law=name)
        style: dict[str, Any] = {"color": f"C{place}", "marker": marker}
        last = one.isel(share=-1)
        handles[str(name)] = plt.Line2D([], [], **style, markersize=3)
        if one.finite_variance:
            draw(slow, one, one.bsp_theory, one.bsp, style)
        else:  # the mean has no interval: the median beside it
            slow.plot(one.workers, one.bsp_theory, color=style["color"])
            slow.plot(one.workers, one.bsp_median_theory, color=style["color"], linestyle="--")
            draw(slow, one, one.bsp_median_theory * np.nan, one.bsp_median, style)
        draw(busy, one, 1 / one.asp_gradient_speedup, one.bsp_utilisation, style)
        silent = bool(one.best_theory.isnull().all())
        known = ~one.best_k.isnull()
        dots = {"marker": marker, "linestyle": "none"} if silent else {}
        share.plot(
            one.workers[known],
            (one.best_k / one.workers)[known],
            color=style["color"],
            markersize=3,
            **dots,
        )
        each = one.workers / one.best_k
        draw(cost, one, None if silent else each * one.best_theory, each * one.best, style)
        last = last.sel(workers=last.workers > 1)  # one worker waits for nobody
        beside = last.k_bsp if silent else last.k_bsp_theory
        draw(k_asp, last, None, last.k_asp / beside, style)
        draw(k_batch_bsp, last, None, last.k_batch_bsp / beside, style)
    top = 2.2 * float(whole.bsp_theory.max())
    slow.set(xscale="log", yscale="log", ylim=(0.5, top), ylabel="mean compute times")
    slow.set_title("BSP: seconds per update\n= ASP's gain in gradients/s")
    marks = {"pareto": (r"$\propto\sqrt{n}$", 4), "exponential": (r"$\propto\log n$", -10)}
    for name in marks.keys() & handles.keys():
        words, above = marks[name]
        end, color = whole.bsp_theory.sel(law=name)[-1], handles[name].get_color()
        place = (float(end.workers), float(end))
        slow.annotate(words, place, (6, above), textcoords="offset points", color=color, ha="right")
    busy.set(ylim=(0, 1.05), ylabel="share of worker-seconds used", title="BSP: utilisation")
    share.set(ylim=(-0.03, 1.05), ylabel="k / n", title="k-BSP: k with most gradients/s")
    cost.set(ylabel="worker-seconds a gradient", title="k-BSP with that k (ASP: 1)")
    ratio = f"ratio to k-BSP, k = {config['shares'][-1]:g} n"
    k_asp.set(ylabel=ratio, title="k-ASP: seconds per update")
    k_batch_bsp.set(ylabel=ratio, title="k-batch-BSP: seconds per update")
    for axes in grid.flat:
        axes.axhline(1.0, color="0.6", linewidth=0.6, zorder=0)
        axes.xaxis.set_major_locator(plt.LogLocator(numticks=9))
    for axes in grid[-1]:
        axes.set_xlabel("workers n")
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=7, frameon=False
    )
    figure.suptitle(
        f"Lines: theory. Dots: {config['runs']} runs of {config['updates']} updates, mean with "
        "95 % interval; without finite variance: median (dashed: theory's)",
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
