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
    from dtjax.training.rate_search import choose_rate

    config = lab.config
    tuning = lab.tuning if pools is None else lab.tuning[: config.tuning_runs]
    by = [[cell] for cell in range(len(cells))] if pools is None else pools
    count = len(tuning)
    traces, _ = lab.clocks(policy, n, cells, tuning)
    share = n if policy == "asp" else 1
    rates = [rate / share for rate in config.rates]
    found: dict[tuple[int, float], tuple[np.ndarray, np.ndarray]] = {}

    def look_up(cell: int, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        every = [[(like, float(rate)) for like in by[cell]] for rate in wanted]
        if missing := [one for row in every for one in row if one not in found]:
            raise _MissingError(missing)
        times, quality = (
            np.stack([np.concatenate([found[one][part] for one in row]) for row in every])
            for part in range(2)
        )
        return times, quality

    while True:  # all cells side by side
        missing, choices = [], []
        for cell in range(len(cells)):
            try:
                choices.append(
                    choose_rate(
                        rates,
                        lambda wanted, cell=cell: look_up(cell, wanted),
                        widenings=config.widenings,
                    )
                )
            except _MissingError as error:
                missing += error.wanted
        if not missing:
            return choices
        missing = list(dict.fromkeys(missing))  # pools overlap
        cell = np.array([c for c, _ in missing])
        trained = lab.train(
            traces,
            (cell[:, None] * count + np.arange(count)).reshape(-1),
            np.tile(tuning, len(missing)),
            np.repeat([cells[c].compressor for c in cell], count),
            np.repeat([rate for _, rate in missing], count),
        )
        times = lab.reached(trained, "gradients", "validation_accuracy")
        quality = trained.measures["validation_accuracy"][:, -1]
        for place, key in enumerate(missing):
            mine = slice(place * count, (place + 1) * count)
            found[key] = times[mine], quality[mine]


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


class _MissingError(Exception):
    def __init__(self, wanted: list[tuple[int, float]]) -> None:
        super().__init__(wanted)
        self.wanted = wanted
