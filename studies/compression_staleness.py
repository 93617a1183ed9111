"""Do staleness and sparsity add, multiply or mask each other?  --help says how it is asked."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from dtjax import experiment as ex
from dtjax.experiment import POSITIVE, Distinct, Grid, Range, Smoke

if TYPE_CHECKING:
    import xarray as xr

MEMORIES = ("feedback", "none")
COUNT = Range(1)


@dataclass(frozen=True)
class CompressionStaleness(ex.Study):
    """Do staleness and sparsity add, multiply or mask each other?

    One gradient an update, of workers in turn, each computed at the version so many updates ago:
    staleness is emulated exactly, and is the same for every gradient. Each worker sends the largest
    share of the entries of its gradient, with a memory of what it did not send and without one. The
    learning rate is the best of each cell, by the validation loss of other seeds.
    """

    memories: Annotated[tuple[str, ...], ex.OneOf(MEMORIES), Grid("memory")] = MEMORIES
    """What workers keep of what was not sent."""
    staleness: Annotated[
        tuple[int, ...], Range(0, 256), Grid("staleness", ordered=True), Smoke((0, 16))
    ] = (0, 1, 2, 4, 8, 16)
    """Updates between reading a version and using its gradient; 0 is always among them."""
    shares: Annotated[tuple[float, ...], Range(0.0, 1.0, above=True), Smoke((1.0, 0.01))] = (
        *(1.0, 0.3, 0.1, 0.03, 0.01),
    )
    """Shares of the entries that are sent; 1 is always among them."""
    workers: Annotated[int, COUNT] = 8
    """Number of workers, each with a memory of its own."""
    updates: Annotated[int, Range(2), Smoke(96)] = 640
    """Updates that everyone trains for, one gradient each."""
    dataset: Literal["digits", "mnist-subset"] = "digits"
    """What to learn."""
    hidden: Annotated[tuple[int, ...], COUNT] = (32,)
    """Widths of the network's hidden layers."""
    batch: Annotated[int, COUNT] = 16
    """Examples in a mini-batch."""
    runs: Annotated[int, COUNT, Smoke(4)] = 12
    """Runs to report, each with seeds of its own."""
    tuning_runs: Annotated[int, COUNT, Smoke(2)] = 3
    """Runs to choose a learning rate by, with other seeds."""
    rates: Annotated[tuple[float, ...], POSITIVE, Distinct(ordered=True), Smoke((0.07, 0.1))] = (
        *(0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4),
    )
    """Learning rates to try; widened by factors of two while the best is at an edge."""
    widenings: Annotated[int, Range(0), Smoke(0)] = 3
    """How often to widen at most."""

    def filled(self) -> Self:
        """Add what costs are counted from: no staleness, and all entries; shares fall."""
        return dataclasses.replace(
            self,
            staleness=tuple(sorted({0, *self.staleness})),
            shares=tuple(sorted({1.0, *self.shares}, reverse=True)),
        )

    def compute(self, cell: dict[str, Any], progress: ex.Progress) -> xr.Dataset:
        """Tune and train all shares of one staleness and memory."""
        from studies import compression_staleness_runs as runs

        return runs.compute(self, cell["memory"], cell["staleness"], progress)

    def report(self, whole: xr.Dataset) -> str:
        """Lay out final losses, and how the two costs go together."""
        from studies.compression_interaction import tables

        return tables(whole)


if __name__ == "__main__":
    ex.main(CompressionStaleness)
