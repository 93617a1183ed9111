"""How large a rate does each synchronisation policy bear?  python studies/stability.py --help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from dtjax.experiment import POSITIVE, Distinct, Grid, OneOf, Progress, Range, Smoke, Study, main

if TYPE_CHECKING:
    import xarray as xr

POLICIES = ("bsp", "k-bsp", "k-batch-bsp", "k-asp", "k-batch-asp", "ssp", "asp")
SORTED = Distinct(ordered=True)


@dataclass(frozen=True)
class Stability(Study):
    """How large a learning rate does each synchronisation policy bear, with how many workers?

    Six policies have an exact edge of mean-square stability with exponential compute times: the
    line. The dots are the trainer along schedules of the clock, at rates below and beyond it:
    whether the mean square of the parameter grows, and whether a typical run's does. SSP has dots
    only. Rates are in units of 1 / eigenvalue. A mean square shrinks or grows if the 95 % interval
    of its growth an update, over independent populations of cloned runs, lies below or above 0.
    """

    policies: Annotated[tuple[str, ...], OneOf(POLICIES), Grid("policy")] = POLICIES
    """Which policies to compare."""
    workers: Annotated[tuple[int, ...], Range(2, 1024), SORTED, Smoke((8, 16))] = (4, 8, 16, 32)
    """Numbers of workers to train with; the lines have all in between."""
    k: Annotated[int, Range(1)] = 2
    """Gradients an update for the four k-policies; of k-bsp and k-asp at most the workers."""
    bound: Annotated[int, Range(0)] = 3
    """How far ahead of the slowest a worker may run under ssp."""
    factors: Annotated[tuple[float, ...], POSITIVE, SORTED, Smoke((0.7, 1.6))] = (
        *(0.7, 0.85, 0.95),
        *(1.05, 1.15, 1.3, 1.6),
    )
    """Rates to train with, in units of the edge (ssp: of an estimate of its edge)."""
    particles: Annotated[int, Range(2), Smoke(32)] = 128
    """Runs in a population."""
    islands: Annotated[int, Range(2), Smoke(4)] = 6
    """Independent populations whose runs are cloned: they show the mean square."""
    plain: Annotated[int, Range(2)] = 3
    """Independent populations of runs that are left alone: they show a typical run."""
    length: Annotated[int, Range(1)] = 24
    """Gradients of a run, in units of the workers, but not less than 192; its first sixth is left
    out. Nothing is random without staleness: eight epochs are enough there."""

    def check(self) -> None:
        """Check that the longest run is not too long."""
        from dtjax.core import checks
        from studies.stability_runs import EPOCH, MOST_EPOCHS

        most = MOST_EPOCHS * EPOCH // max(self.workers)
        checks.integer("stability", "length", self.length, low=1, high=most)

    def compute(self, cell: dict[str, Any], progress: Progress) -> xr.Dataset:
        """Compute the growth of one policy with each number of workers, and its lines."""
        import jax

        from studies.stability_runs import measured

        with jax.enable_x64(True):
            return measured(self, cell["policy"], progress)

    def analyse(self, whole: xr.Dataset) -> xr.Dataset:
        """Add intervals, verdicts, the edges of the dots and how far growth is from theory."""
        from studies.stability_report import judged

        return judged(whole, self.seed)

    def report(self, whole: xr.Dataset) -> str:
        """Lay out the edges, and what does not agree with theory."""
        from studies.stability_report import tables

        return tables(self, whole)


if __name__ == "__main__":
    main(Stability)
