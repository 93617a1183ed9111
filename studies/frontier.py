"""How does the error fall with time on a quadratic?  python studies/frontier.py --help."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

from dtjax.experiment import POSITIVE, Grid, OneOf, Progress, Range, Smoke, Study, main

if TYPE_CHECKING:
    import xarray as xr

POLICIES = ("bsp", "k-bsp", "k-batch-bsp", "k-asp", "k-batch-asp", "ssp", "asp")


@dataclass(frozen=True)
class Frontier(Study):
    """How does the error fall with time on a quadratic, in theory and in the trainer?

    Seven policies with exponential compute times. Six have an exact expected loss at every second;
    SSP has none and is trained only. Each policy runs at one learning rate for all, at its best
    fixed rate for a deadline and for a target loss, and with the best single change of rate. The
    table says by how many standard errors many runs of the trainer differ from theory.
    """

    policies: Annotated[tuple[str, ...], OneOf(POLICIES), Grid("policy")] = POLICIES
    """Which policies to compare."""
    workers: Annotated[int, Range(1)] = 8
    """Number of workers."""
    k: Annotated[int | None, Range(1, "workers")] = None
    """Gradients an update for the four k-policies; half of the workers if not given."""
    bound: Annotated[int, Range(0)] = 3
    """How far ahead of the slowest a worker may run under ssp."""
    mean: Annotated[float, POSITIVE] = 1.0
    """Mean of the exponential compute times, seconds."""
    eigenvalues: Annotated[tuple[float, ...], Range(0)] = (1.0, 0.2)
    """Of the quadratic."""
    noise: Annotated[float, Range(0)] = 1.0
    """Standard deviation of the gradient of a mini-batch, in each direction."""
    start: Annotated[float, Range()] = 3.0
    """Every parameter at second 0; the optimum is 0."""
    rate: Annotated[float, POSITIVE] = 0.25
    """The learning rate that is the same for all policies."""
    deadline: Annotated[float, Range(0.0, "horizon", above=True), Smoke(10.0)] = 30.0
    """Seconds by which one rate of each policy is to give the least expected loss."""
    target: Annotated[float, POSITIVE] = 0.05
    """Expected loss that the other rates are to reach soonest."""
    horizon: Annotated[float, POSITIVE, Smoke(20.0)] = 60.0
    """Simulated seconds."""
    points: Annotated[int, Range(2), Smoke(30)] = 80
    """Seconds at which the loss is looked at, evenly on a log scale from 1/300 of the horizon."""
    runs: Annotated[int, Range(2), Smoke(200)] = 2000
    """Runs of the trainer, the same random numbers for every policy."""
    tuning_runs: Annotated[int, Range(1), Smoke(50)] = 500
    """Runs to choose the rates of ssp by, with other seeds."""
    tuning_rates: Annotated[int, Range(1), Smoke(8)] = 24
    """Rates tried for ssp, evenly on a log scale from 1/200 of bsp's stability edge to half of it;
    rounded up to a multiple of four."""
    x64: bool = True
    """Train in binary64; else in binary32."""
    block: Annotated[int, Range(1), Smoke(100)] = 250
    """Runs side by side on a device: part of what the bits of a run depend on."""

    def filled(self) -> Self:
        """Fill in k, and round up the rates to try."""
        k = max(1, self.workers // 2) if self.k is None else self.k
        return dataclasses.replace(self, k=k, tuning_rates=-(-self.tuning_rates // 4) * 4)

    def check(self) -> None:
        """Check that every policy makes an update by the deadline."""
        from dtjax.core import checks
        from studies.frontier_runs import seconds_per_update

        if not any(self.eigenvalues):
            rule = "must hold a positive one"
            raise checks.fail("frontier", "eigenvalues", rule, self.eigenvalues)
        for policy in self.policies:
            if (each := seconds_per_update(self, policy)) > self.deadline:
                rule = f"must be at least the {each:.3g} s of an update of {policy}"
                raise checks.fail("frontier", "deadline", rule, self.deadline)

    def compute(self, cell: dict[str, Any], progress: Progress) -> xr.Dataset:
        """Compute theory and trainer of one policy under each plan."""
        import jax

        from studies.frontier_runs import compared

        with jax.enable_x64(self.x64):
            return compared(self, cell["policy"], progress)

    def report(self, whole: xr.Dataset) -> str:
        """Lay out one table a plan, and how far the trainer is from theory at most."""
        from studies.frontier_report import tables

        return tables(self, whole)


if __name__ == "__main__":
    main(Frontier)
