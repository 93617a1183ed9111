"""Which synchronisation policy reaches a target accuracy soonest?  studies/tradeoff.py --help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import dtjax
from dtjax import experiment as ex
from dtjax.analysis.ranking import ranking
from dtjax.experiment import POSITIVE, Distinct, Range, Smoke

if TYPE_CHECKING:
    import xarray as xr

POLICIES = ("bsp", "k-bsp", "k-batch-bsp", "k-asp", "k-batch-asp", "ssp", "asp")
WORLDS = ("exponential", "persistent")
PROBABILITY, COUNT = Range(0.0, 1.0, above=True), Range(1)


@dataclass(frozen=True)
class Tradeoff(ex.Study):
    """Which synchronisation policy reaches a target accuracy soonest?

    Each trains the same network for the same simulated seconds, with the learning rate that suits
    it, where compute times are independent, and where workers fall into slow phases (persistent).
    """

    worlds: Annotated[tuple[str, ...], ex.OneOf(WORLDS), Distinct(), ex.Grid("world")] = WORLDS
    """Which worlds to compare them in."""
    policies: Annotated[tuple[str, ...], ex.OneOf(POLICIES), Distinct(), ex.Grid("arm")] = POLICIES
    """Which policies to compare."""
    workers: Annotated[int, COUNT] = 8
    """Number of workers."""
    k: Annotated[int | None, Range(1, "workers")] = None
    """Gradients an update for the four k-policies; half of the workers if not given."""
    bound: Annotated[int, Range(0)] = 3
    """How far ahead of the slowest a worker may run under ssp."""
    mean: Annotated[float, POSITIVE] = 0.5
    """Mean of the random part of a compute time, seconds."""
    shift: Annotated[float, Range(0.0)] = 0.5
    """Constant part of a compute time, seconds."""
    slow_factor: Annotated[float, Range(1.0)] = 5.0
    """How many times longer a computation takes in a slow phase (persistent world)."""
    slow_enter: Annotated[float, PROBABILITY] = 0.02
    """Probability that a slow phase begins after a fast computation (persistent world)."""
    slow_leave: Annotated[float, PROBABILITY] = 0.08
    """Probability that it ends after a slow computation (persistent world)."""
    bandwidth: Annotated[float | None, POSITIVE] = None
    """Of the server's ingress, bits a second; bytes cost nothing if not given."""
    pull: bool = False
    """Whether workers pull the model, 32 bits a parameter, before they compute."""
    horizon: Annotated[float, POSITIVE, Smoke(25.0)] = 300.0
    """Simulated seconds that every policy gets."""
    target: Annotated[float, PROBABILITY, Smoke(0.5)] = 0.95
    """Accuracy to reach: learning rates are chosen for it."""
    shown: Annotated[float | None, PROBABILITY, ex.Analysis()] = None
    """Another accuracy to report, by the same trainings."""
    window: Annotated[int, Range(0), Smoke(20)] = 100
    """Gradients over which the accuracy is smoothed, and for which it must stay at the target."""
    evaluate_every: Annotated[int, COUNT, Smoke(20)] = 100
    """Gradients between two evaluations."""
    dataset: Literal["digits", "mnist-subset"] = "digits"
    """What to learn."""
    data: Literal["shared", "sharded", "skewed"] = "shared"
    """How workers see the data: all of it, a shard each, or a mixture of classes each."""
    alpha: Annotated[float, POSITIVE] = 0.3
    """How even the mixtures of classes are (skewed data): small is uneven."""
    hidden: Annotated[tuple[int, ...], COUNT] = (32,)
    """Widths of the network's hidden layers."""
    batch: Annotated[int, COUNT] = 16
    """Examples in a mini-batch."""
    runs: Annotated[int, COUNT, Smoke(4)] = 16
    """Runs to report, each with seeds of its own."""
    tuning_runs: Annotated[int, COUNT, Smoke(2)] = 5
    """Runs to choose a learning rate by, with other seeds."""
    rates: Annotated[
        tuple[float, ...], POSITIVE, Distinct(ordered=True), Smoke((0.1, 0.2, 0.4))
    ] = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
    """Learning rates to try; widened by factors of two while the best is at an edge."""
    widenings: Annotated[int, Range(0), Smoke(0)] = 3
    """How often to widen at most."""

    def compute(self, cell: dict[str, Any], progress: ex.Progress) -> xr.Dataset:
        """Compare one policy in one world: by the random numbers of all the others."""
        from studies import tradeoff_runs

        return tradeoff_runs.compute(self, cell["arm"], cell["world"], progress)

    def analyse(self, whole: xr.Dataset) -> xr.Dataset:
        """Add medians, paired differences and who is first."""
        return whole.merge(ranking(whole, target=self.shown))

    def report(self, whole: xr.Dataset) -> str:
        """Lay out who is first, by how much, and why."""
        return dtjax.report(whole, target=self.shown)


if __name__ == "__main__":
    ex.main(Tradeoff)
