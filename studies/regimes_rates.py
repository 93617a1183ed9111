"""Learning rates of studies/regimes.py: many cells side by side, each by runs of its neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from studies.regimes_runs import Cell, Lab


def tune(
    lab: Lab, policy: str, n: int, cells: list[Cell], pools: list[list[int]] | None = None
) -> list[Any]:
    """Choose a rate for each cell, by the gradients to the target on validation data.

    Within a cell seconds are proportional to gradients, whatever the rate.

    Args:
        lab: trains.
        policy: its name.
        n: workers.
        cells: to choose for.
        pools: the cells by whose runs the rate of each is chosen; None: its own, twice as many.
    """
    from dtjax.training.rate_search import RateSearch

    config = lab.config
    tuning = lab.tuning if pools is None else lab.tuning[: config.tuning_runs]
    count = len(tuning)
    traces, _ = lab.clocks(policy, n, cells, tuning)
    share = n if policy == "asp" else 1
    rates = [rate / share for rate in config.rates]
    places = range(len(cells))
    by = None if pools is None else dict(enumerate(pools))
    search = RateSearch(dict.fromkeys(places, rates), widenings=config.widenings, pools=by)
    while wanted := search.ask():  # all cells side by side
        cell = np.array([c for c, _ in wanted])
        trained = lab.train(
            traces,
            (cell[:, None] * count + np.arange(count)).reshape(-1),
            np.tile(tuning, len(wanted)),
            np.repeat([cells[c].compressor for c in cell], count),
            np.repeat([rate for _, rate in wanted], count),
        )
        times = lab.reached(trained, "gradients", "validation_accuracy")
        quality = trained.measures["validation_accuracy"][:, -1]
        each = (x.reshape(len(wanted), count) for x in (times, quality))
        for one, *told in zip(wanted, *each, strict=True):
            search.tell(*one, *told)
    choices = search.choices()
    return [choices[place] for place in places]


def neighbours(cells: list[Cell]) -> list[list[int]]:
    """List for each cell those of its compressor one place away in one setting, and itself."""
    axes = [sorted({cell[i] for cell in cells}) for i in range(1, 4)]
    places = [
        (cell.compressor, *(axis.index(x) for axis, x in zip(axes, cell[1:], strict=True)))
        for cell in cells
    ]

    def near(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        return a[0] == b[0] and sum(abs(x - y) for x, y in zip(a, b, strict=True)) <= 1

    return [[j for j, b in enumerate(places) if near(a, b)] for a in places]
