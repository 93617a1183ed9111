"""Draw the result of studies/frontier.py: expected loss against seconds, theory and trainer.

python figures/frontier.py results/frontier/frontier.nc --out frontier.png
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
    """Draw expected loss against seconds on a quadratic."""

    result: Annotated[Path, tyro.conf.Positional]
    """The netCDF file that the study wrote."""
    out: Path = Path("frontier.png")
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


def panel(axes: Any, whole: Any, plan: str) -> None:
    """Draw each policy under one plan: theory as a line, the runs' mean and interval as dots."""
    import numpy as np

    for place, policy in enumerate(whole.policy.values):
        one = whole.sel(plan=plan, policy=policy)
        color = f"C{list(MARKERS).index(str(policy))}"
        time = one.time.values
        axes.plot(time[1:], one.theory_loss.values[1:], color=color, linewidth=1.0)
        stride = max(1, len(time) // 11)
        seen = np.arange(1 + place * stride // 7, len(time), stride)  # not one above the other
        loss = one.loss.transpose("run", "time").values[:, seen]
        error = 1.96 * loss.std(axis=0, ddof=1) / np.sqrt(len(loss))
        mean = loss.mean(axis=0)
        below = np.minimum(error, 0.9 * mean)
        known = one.theory_loss.notnull().any()
        axes.errorbar(
            time[seen],
            mean,
            yerr=[below, error],
            color=color,
            marker=MARKERS[str(policy)],
            markersize=3,
            linestyle="none" if known else (0, (1, 2)),
            linewidth=0.8,
            elinewidth=0.8,
            label=str(policy) if policy != "ssp" else "ssp (trainer only)",
        )


def soonest(axes: Any, whole: Any, horizon: float) -> None:
    """Draw the seconds to the target of each policy under each plan."""
    import numpy as np

    plans = {"same": "C0", "deadline": "C1", "target": "C2", "switch": "C3"}
    names = [str(policy) for policy in whole.policy.values]
    for row, policy in enumerate(names):
        for place, (plan, color) in enumerate(plans.items()):
            one = whole.sel(plan=plan, policy=policy)
            y = row + 0.2 * (place - 1.5)
            if np.isnan(one.rate_after):
                continue
            middle, low, high = one.reached.values
            if np.isfinite(middle):
                ends = [min(low, horizon), min(high, horizon)]
                axes.plot(ends, [y, y], color=color, linewidth=2.2, alpha=0.5)
                axes.plot(middle, y, color=color, marker="o", markersize=3.5)
            else:
                axes.plot(horizon, y, color=color, marker=">", markersize=3.5, clip_on=False)
            exact = float(one.theory_planned if plan == "switch" else one.theory_reached)
            if np.isfinite(exact):
                axes.plot(exact, y, color="black", marker="|", markersize=6, linestyle="none")
    labels = [
        "one rate for all",
        "best at the deadline",
        "best for the target",
        "best change of rate",
    ]
    for label, color in zip(labels, plans.values(), strict=True):
        axes.plot([], [], color=color, marker="o", markersize=3.5, label=label)
    axes.plot([], [], color="black", marker="|", linestyle="none", label="theory")
    axes.plot(
        [], [], color="0.4", marker=">", markersize=3.5, linestyle="none", label="not reached"
    )
    axes.set(yticks=range(len(names)), yticklabels=names, xlim=(0, horizon))
    axes.set_ylim(len(names) - 0.5, -0.5)


def main(options: Options) -> None:
    """Read the file and draw it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from dtjax.experiment import study as studies

    whole = studies.read(options.result)
    if whole.attrs.get("study") != "frontier":
        rule = "must be a result of studies/frontier.py"
        raise ValueError(f"figures/frontier.py: result {rule}, got '{options.result}'")
    config = json.loads(whole.attrs["config"])
    plt.style.use(Path(__file__).with_name("dtjax.mplstyle"))
    figure, grid = plt.subplots(2, 2, figsize=(7.0, 5.8), layout="constrained")
    titles = {
        "same": f"one rate for all, {config['rate']:g}",
        "deadline": f"rate with the least loss at {config['deadline']:g} s",
        "target": f"rate that reaches {config['target']:g} soonest",
    }
    for axes, (plan, title) in zip(grid.flat, titles.items(), strict=False):
        panel(axes, whole, plan)
        axes.axhline(config["target"], color="0.6", linewidth=0.8, linestyle=":")
        if plan == "deadline":
            axes.axvline(config["deadline"], color="0.6", linewidth=0.8, linestyle=":")
        axes.set(xscale="log", yscale="log", title=title, xlabel="seconds", ylabel="expected loss")
        axes.sharex(grid[0, 0])
        axes.sharey(grid[0, 0])
    last = grid[1, 1]
    soonest(last, whole, config["horizon"])
    last.set(title=f"seconds to a loss of {config['target']:g}", xlabel="seconds")
    last.legend(frameon=False, loc="center right", fontsize=6.5)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=7, frameon=False, fontsize=7)
    figure.suptitle(
        f"{config['workers']} workers, k = {config['k']}: lines are theory, dots the mean of "
        f"{config['runs']} runs of the trainer with 95 % intervals",
        fontsize=8,
    )
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with studies.whole_file(options.out) as partial:
        kind = options.out.suffix.lstrip(".") or "png"
        metadata: Any = undated.get(options.out.suffix)
        figure.savefig(partial, format=kind, metadata=metadata, dpi=120)


if __name__ == "__main__":
    try:
        main(tyro.cli(Options, description=__doc__))
    except ValueError as error:
        sys.exit(f"error: {error}")
