"""Which compressor of gradients pays, at which bandwidth?  studies/compression.py --help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dtjax import experiment as ex
from dtjax.experiment import POSITIVE, Analysis, Distinct, Range, Smoke

if TYPE_CHECKING:
    import xarray as xr

DEFAULT = ("top-k:0.1", "top-k:0.01", "scaled-sign", "one-bit", "power-sgd:1")
DEFAULT += ("random-k:0.6", "random-k:0.1", "qsgd:4", "terngrad", "int8")
COUNT, SORTED, MEMORIES = Range(1), Distinct(True), ex.OneOf(("none", "feedback", "ef21"))


@dataclass(frozen=True)
class Compression(ex.Study):
    """Which compressor of gradients pays, at which bandwidth, and does it need a memory?

    Workers of BSP share the ingress of one server, and pull the dense model from it. Every
    compressor trains the same network, without and with error feedback, with the learning rate
    that is best for it on validation data and other seeds. Under BSP the bandwidth decides when an
    update happens, but not what is in it: each compressor is trained once, and its seconds at any
    bandwidth are exact, those of the clock with its bits.
    """

    compressors: Annotated[tuple[str, ...], Distinct(), Smoke(("top-k:0.1",)), Analysis()] = DEFAULT
    """Which compressors, beside dense gradients: fp16, bf16, fp8, int8, natural, terngrad, one-bit,
    scaled-sign, majority-sign, top-k:SHARE, random-k:SHARE, qsgd:LEVELS, power-sgd:RANK."""
    memories: Annotated[tuple[str, ...], MEMORIES, Distinct(), Analysis()] = ("none", "feedback")
    """What workers keep of what was not sent; ef21 only of contractive compressors."""
    ratios: Annotated[tuple[float, ...], POSITIVE, SORTED, Analysis()] = (0.1, 1.0, 10.0)
    """Bandwidths to report, as seconds of a dense gradient's transfer over a mean compute time."""
    pull: Annotated[bool, Analysis()] = True
    """Whether workers pull the dense model before they compute, at the same bandwidth each."""
    encode: Annotated[float, Range(0.0), Analysis()] = 0.0
    """Seconds in which a worker compresses; dense gradients need none."""
    mean: Annotated[float, POSITIVE, Analysis()] = 0.5
    """Mean of the random (exponential) part of a compute time, seconds."""
    shift: Annotated[float, Range(0.0), Analysis()] = 0.5
    """Constant part of a compute time, seconds."""
    workers: Annotated[int, COUNT] = 8
    """Number of workers."""
    updates: Annotated[int, COUNT, Smoke(60)] = 240
    """Updates that everyone trains for."""
    target: Annotated[float, Range(0.0, 1.0, above=True), Smoke(0.5)] = 0.94
    """Accuracy to reach."""
    window: Annotated[int, Range(0), Smoke(20)] = 80
    """Gradients over which the accuracy is smoothed, and for which it must stay at the target."""
    evaluate_every: Annotated[int, COUNT] = 32
    """Gradients between two evaluations."""
    dataset: Literal["digits", "mnist-subset"] = "digits"
    """What to learn."""
    hidden: Annotated[tuple[int, ...], COUNT] = (32,)
    """Widths of the network's hidden layers."""
    batch: Annotated[int, COUNT] = 16
    """Examples in a mini-batch."""
    runs: Annotated[int, COUNT, Smoke(4)] = 16
    """Runs to report, each with seeds of its own."""
    tuning_runs: Annotated[int, COUNT, Smoke(2)] = 4
    """Runs to choose a learning rate by, with other seeds."""
    rates: Annotated[tuple[float, ...], POSITIVE, SORTED, Smoke((0.2, 0.4))] = (0.2, 0.4, 0.8, 1.6)
    """Learning rates to try; widened by factors of two while the best is at an edge."""
    widenings: Annotated[int, Range(0), Smoke(0)] = 3
    """How often to widen at most."""

    def grid(self) -> dict[str, tuple[Any, ...]]:
        """Return the settings: compressors with the memories that make sense, dense first."""
        from studies import compression_runs as runs

        return {"setting": runs.settings(self.compressors, self.memories)}

    def check(self) -> None:
        """Check the compressors."""
        self.grid()

    def compute(self, cell: dict[str, Any], progress: ex.Progress) -> xr.Dataset:
        """Tune and train one compressor with one memory."""
        from studies import compression_runs

        return compression_runs.compute(self, cell["setting"], progress)

    def analyse(self, whole: xr.Dataset) -> xr.Dataset:
        """Add seconds at each bandwidth, who is first, break-evens and what a memory does."""
        from studies import compression_report, compression_seconds

        return compression_report.judged(self, compression_seconds.timed(self, whole))

    def report(self, whole: xr.Dataset) -> str:
        """Lay out what each compressor takes, and what a memory does to it."""
        from studies import compression_report

        return compression_report.tables(self, whole)


if __name__ == "__main__":
    ex.main(Compression)
