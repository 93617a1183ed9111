"""What do stragglers cost as the cluster grows?  python studies/stragglers.py --help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from dtjax.experiment import Distinct, Grid, OneOf, Progress, Range, Smoke, Study, main

if TYPE_CHECKING:
    import xarray as xr

LAWS = ("uniform", "weibull", "shifted", "exponential", "log-normal", "pareto", "regimes")
COUNT = Range(1, 10**6)


@dataclass(frozen=True)
class Stragglers(Study):
    """What do stragglers cost as the cluster grows?

    Laws of compute times with a mean of 1 s. Theory: seconds per update of BSP and k-BSP, the k
    with which k-BSP gets the most gradients a second, the speed-up of ASP. Monte Carlo beside it,
    and alone where theory is silent: k-ASP, k-batch-BSP, and stragglers that persist.
    """

    laws: Annotated[
        tuple[str, ...], OneOf(LAWS), Grid("law"), Smoke(("shifted", "exponential"))
    ] = LAWS
    """Which laws of compute times."""
    workers: Annotated[
        tuple[int, ...], COUNT, Distinct(ordered=True), Smoke(tuple(2**i for i in range(7)))
    ] = tuple(2**i for i in range(13))
    """Numbers of workers that theory is asked about."""
    simulated: Annotated[tuple[int, ...], COUNT, Distinct(ordered=True), Smoke((1, 4, 16))] = tuple(
        4**i for i in range(7)
    )
    """Those that are simulated, too."""
    most: Annotated[int, Range("simulated", 10**6)] = 256
    """Above this many workers only BSP and k-BSP with independent times are simulated."""
    shares: Annotated[tuple[float, ...], Range(0.001, 1.0), Distinct(ordered=True)] = (0.5, 0.9)
    """Shares of the workers that k-ASP and k-batch-BSP wait for, rounded up."""
    shift: Annotated[float, Range(0.0, 0.999)] = 0.5
    """Constant part of the shifted exponential law; where stragglers persist, of its base."""
    alpha: Annotated[float, Range(1.001, 100.0)] = 2.0
    """Of the Pareto law: the tail's power; up to 2 the variance is infinite."""
    slow_factor: Annotated[float, Range(1.0, 1e6)] = 5.0
    """How many times longer a computation takes in a slow phase (regimes)."""
    slow_enter: Annotated[float, Range(1e-6, 1.0)] = 0.02
    """Probability that a slow phase begins after a fast computation (regimes)."""
    slow_leave: Annotated[float, Range(1e-6, 1.0)] = 0.08
    """Probability that it ends after a slow computation (regimes)."""
    updates: Annotated[int, Range(4, 10**6), Smoke(64)] = 128
    """Updates in a run; of ASP, 64 n if that is more."""
    runs: Annotated[int, Range(2, 10**6), Smoke(4)] = 16
    """Runs, each with a seed of its own."""

    def compute(self, cell: dict[str, Any], progress: Progress) -> xr.Dataset:
        """Ask theory about one law, and simulate it."""
        from studies import stragglers_runs as runs

        delay, persistent = runs.law(self, cell["law"]), cell["law"] == "regimes"
        sizes = sorted({*self.workers, *self.simulated})
        whole = runs.predict(delay, sizes, self.shares, persistent=persistent)
        return runs.measure(self, delay, whole, progress, persistent=persistent)

    def analyse(self, whole: xr.Dataset) -> xr.Dataset:
        """Add how far Monte Carlo is from theory."""
        from studies.stragglers_report import compare

        return compare(whole)

    def report(self, whole: xr.Dataset) -> str:
        """Lay out theory, and simulation with intervals."""
        from studies.stragglers_report import outcomes

        z, count = float(whole.largest_z), int(whole.comparisons)
        title = f"{self.runs} runs of {self.updates} updates: means (without variance medians), "
        last = f"Monte Carlo against theory: the largest |z| of {count} is {z:.2f}"
        return f"{title}95 %\n{outcomes(whole)}\n{last}"


if __name__ == "__main__":
    main(Stragglers)
