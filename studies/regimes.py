"""When does it pay to compress gradients, and from which server time on does ASP not pay?

Workers around one server with a shared ingress send gradients as they are, sparse (top-k with error
feedback) or quantised. Which reaches the target accuracy first, by bandwidth, encode rate, number
of workers and policy? And how long may the server take for an update, of which ASP makes n times as
many, before BSP is faster?

Every cell has its own clock, and is trained along it: exactly, and nothing twice. A cell's learning
rate is the best of a grid that grows, by the gradients to the target on validation data, with other
seeds. Under ASP links, encoders and server time decide who is stale (a busy link makes staleness
even, which bears smaller steps), so every cell has a rate of its own, chosen by its runs and those
of the cells next to it: alone they are too few. Under BSP and k-BSP they change no gradient, and
seconds are proportional to updates: one rate for each policy, compressor and number of workers is
the best of all cells.

    python studies/regimes.py --help
"""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    import xarray as xr

POLICIES = ("bsp", "k-bsp", "asp")


@dataclass(frozen=True)
class Config:
    """Map which compressor reaches a target first, and until which server time ASP pays."""

    out: Path = Path("results/regimes")
    """Folder of the results; a run that was interrupted goes on from what is there."""
    policies: Annotated[tuple[str, ...], tyro.conf.arg(metavar=f"{{{','.join(POLICIES)}}} ...")] = (
        POLICIES
    )
    """Which policies to compare."""
    workers: tuple[int, ...] = (4, 16)
    """Numbers of workers."""
    bandwidths: tuple[float, ...] = (3e4, 1.2e5, 4.8e5, 1.92e6)
    """Of the server's ingress, bits a second."""
    encode_rates: tuple[float, ...] = (2e4, 1.2e5, 8e5)
    """Bits of the dense gradient that a worker encodes a second."""
    loads: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
    """Server seconds of an update x workers, in units of the mean compute time; from 0."""
    ratio: float = 0.02
    """Entries that top-k keeps of the whole gradient."""
    levels: int | None = None
    """Quantise by QSGD with so many levels; by int8, to nearest, if not given."""
    kept: float = 0.75
    """Share of the workers that an update of k-bsp waits for."""
    pull: bool = True
    """Whether workers pull the model, dense, before they compute."""
    mean: float = 0.5
    """Mean of the random part of a compute time, seconds."""
    shift: float = 0.5
    """Constant part of a compute time, seconds."""
    gradients: int = 1280
    """Gradients that every run uses."""
    target: float = 0.9
    """Accuracy to reach."""
    window: int = 100
    """Gradients over which the accuracy is smoothed, and for which it must stay at the target."""
    evaluate_every: int = 40
    """Gradients between two evaluations."""
    hidden: tuple[int, ...] = (32,)
    """Widths of the network's hidden layers."""
    batch: int = 16
    """Examples in a mini-batch."""
    runs: int = 10
    """Runs to report, each with seeds of its own."""
    tuning_runs: int = 3
    """Runs of a cell to choose a rate by, with other seeds; twice as many where one is for all."""
    rates: tuple[float, ...] = (0.2, 0.4, 0.8, 1.6)
    """Learning rates to try, for ASP divided by the workers; widened while the best is at an edge.
    """
    widenings: int = 2
    """How often to widen at most."""
    seed: int = 0
    """Of everything."""
    block: int = 16
    """Runs side by side on a device: part of what the bits of a run depend on."""
    figure: bool = True
    """Draw the figure, too."""
    smoke: bool = False
    """A size that only shows that everything works, in seconds."""


def settle(config: Config) -> Config:
    """Check a configuration and fill in what depends on other fields.

    Raises:
        ValueError: naming the field, the rule and the value.
    """
    from dtjax.core import checks
    from studies.regimes_runs import encoders, gradients_an_update

    name = "regimes"
    tuples = ("policies", "workers", "bandwidths", "encode_rates", "loads", "rates", "hidden")
    for field in tuples:
        if not getattr(config, field):
            raise checks.fail(name, field, "must not be empty", getattr(config, field))
    for policy in config.policies:
        checks.choice(name, "policies", policy, POLICIES)
    for n in config.workers:
        checks.integer(name, "workers", n, low=2, high=256)
    for field in ("bandwidths", "encode_rates"):
        for value in getattr(config, field):
            if not value > 0:  # infinite: costs nothing
                raise checks.fail(name, field, "must be positive", value)
    checks.real(name, "rates", config.rates, checks.POSITIVE, ndim=1)
    checks.real(name, "loads", config.loads, checks.NON_NEGATIVE, ndim=1)
    if min(config.loads) != 0:
        raise checks.fail(name, "loads", "must hold 0", config.loads)
    for field in ("target", "kept"):
        if not 0 < getattr(config, field) <= 1:
            raise checks.fail(name, field, "must be above 0 and at most 1", getattr(config, field))
    checks.real(name, "mean", config.mean, checks.POSITIVE, ndim=0)
    checks.real(name, "shift", config.shift, checks.NON_NEGATIVE, ndim=0)
    for field in ("runs", "tuning_runs", "batch", "block", "evaluate_every"):
        checks.integer(name, field, getattr(config, field), low=1)
    for field in ("window", "widenings"):
        checks.integer(name, field, getattr(config, field), low=0)
    checks.integer(name, "seed", config.seed, low=0, high=2**31 - 1)
    if config.smoke:
        own: dict[str, Any] = {
            "workers": config.workers[:1],
            "bandwidths": (min(config.bandwidths), max(config.bandwidths)),
            "encode_rates": (min(config.encode_rates), max(config.encode_rates)),
            "loads": tuple(sorted(set(config.loads)))[::2],
            "gradients": min(config.gradients, 240),
            "target": min(config.target, 0.5),
            "window": min(config.window, 20),
            "runs": min(config.runs, 4),
            "tuning_runs": min(config.tuning_runs, 2),
            "rates": config.rates[1:3] or config.rates,
            "widenings": 0,
        }
        config = dataclasses.replace(config, **own)
    checks.integer(name, "gradients", config.gradients, low=max(config.workers))
    unique: dict[str, Any] = {"policies": tuple(dict.fromkeys(config.policies))}
    for field in ("workers", "bandwidths", "encode_rates", "loads", "rates"):
        unique[field] = tuple(sorted(set(getattr(config, field))))
    config = dataclasses.replace(config, **unique)
    encoders(config)
    for n in config.workers:
        gradients_an_update(config, "k-bsp", n)
    return config


def measured(config: Config, policy: str, n: int, lab: Any) -> xr.Dataset:
    """Tune and train all cells of one policy with one number of workers.

    Returns:
        Raw arrays with dimensions compressor, bandwidth, encode_rate, run, fate; those of the
        server's seconds have load in place of the first three. What is not encoded has the same
        numbers at every encode rate.
    """
    import numpy as np
    import xarray as xr

    from studies.regimes_rates import neighbours, tune
    from studies.regimes_runs import COMPRESSORS, Cell

    bandwidths, encode_rates = config.bandwidths, config.encode_rates
    mean = config.shift + config.mean
    applies = [load * mean / n for load in config.loads]
    served = [Cell(0, math.inf, math.inf, seconds) for seconds in applies]
    linked = [
        Cell(c, bandwidth, rate, 0.0)
        for c in range(len(COMPRESSORS))
        for bandwidth in bandwidths
        for rate in (encode_rates if c else (math.inf,))
    ]
    cells = linked + served
    if policy == "asp":
        pools = neighbours(linked)
        pools += [[len(linked) + i for i in near] for near in neighbours(served)]
        choices = tune(lab, policy, n, cells, pools)
    else:
        free = [Cell(c, math.inf, math.inf, 0.0) for c in range(len(COMPRESSORS))]
        each = tune(lab, policy, n, free)
        choices = [each[cell.compressor] for cell in cells]
    found = lab.report(policy, n, cells, [choice.rate for choice in choices])
    shape = (len(COMPRESSORS), len(bandwidths), len(encode_rates))
    place = np.array(
        [
            linked.index(Cell(c, bandwidth, rate if c else math.inf, 0.0))
            for c in range(len(COMPRESSORS))
            for bandwidth in bandwidths
            for rate in encode_rates
        ]
    )
    seconds = {"units": "s"}
    attributes = {"target_seconds": seconds | {"note": "infinite: not reached"}}
    attributes["seconds_an_update"] = seconds
    values: dict[str, Any] = {}
    for name, value in found.items():
        more = ["run", "fate"][: value.ndim - 1]
        grid = value[place].reshape(*shape, *value.shape[1:])
        own = attributes.get(name, {})
        values[name] = (["compressor", "bandwidth", "encode_rate", *more], grid, own)
        values[f"apply_{name}"] = (["load", *more], value[len(linked) :], own)
    for name in ("rate", "warning"):
        value = np.array([getattr(choice, name) for choice in choices])
        grid = value[place].reshape(shape)
        values[f"chosen_{name}"] = (["compressor", "bandwidth", "encode_rate"], grid)
        values[f"apply_chosen_{name}"] = ("load", value[len(linked) :])
    values |= {
        "apply": ("load", applies, seconds),
        "bits": ("compressor", lab.bits, {"units": "bit"}),
    }
    return xr.Dataset(values)


def study(config: Config) -> xr.Dataset:
    """Run the whole study; parts that an earlier run finished are read.

    Args:
        config: settled.

    Returns:
        The arrays of `measured` with dimensions policy, workers before them, and what they say.
    """
    from tqdm import tqdm

    from dtjax.analysis.dataset import join
    from dtjax.clock.accounting import FATES
    from dtjax.experiment import study as studies
    from studies.regimes_findings import findings
    from studies.regimes_runs import COMPRESSORS, Lab

    parts = studies.output_folder(config.out / "parts")
    kept = dataclasses.replace(config, out=Path(), figure=True, policies=(), workers=())
    # What all the parts share decides the shapes of what is compiled, and so the last bits.
    shared = [kept, max(config.workers)]
    rows = []
    with tqdm(unit="gradient", unit_scale=True, dynamic_ncols=True, total=0) as bar:

        def advance(more: int, done: int) -> None:
            bar.total += more
            bar.update(done)

        lab = Lab(config, advance)
        for policy in config.policies:
            row = []
            for n in config.workers:
                bar.set_postfix_str(f"{policy}, {n} workers")
                make = lambda p=policy, n=n: measured(config, p, n, lab)  # noqa: E731
                row.append(studies.part(parts, [*shared, policy, n], make))
            rows.append(row)
    whole = join(rows, "policy", "workers").assign_coords(
        policy=list(config.policies),
        workers=list(config.workers),
        compressor=list(COMPRESSORS),
        bandwidth=list(config.bandwidths),
        encode_rate=list(config.encode_rates),
        load=list(config.loads),
        run=range(config.runs),
        fate=list(FATES),
    )
    whole = whole.assign(findings(config, whole))
    return whole.assign_attrs(studies.provenance(config) | {"study": "regimes"})


def main(config: Config) -> None:
    """Run the study, print its tables, write its file and draw its figure."""
    from dtjax.experiment import study as studies
    from studies.regimes_tables import tables

    studies.prepare()
    config = settle(config)
    out = studies.output_folder(config.out)
    whole = study(config)
    studies.write(whole, out / "regimes.nc")
    print(tables(config, whole))
    print(f"\nwrote {out / 'regimes.nc'}")
    if config.figure:
        script = Path(__file__).parents[1] / "figures" / "regimes.py"
        studies.draw(script, str(out / "regimes.nc"), "--out", str(out / "regimes.png"))
        print(f"wrote {out / 'regimes.png'}")


if __name__ == "__main__":
    try:
        main(tyro.cli(Config, description=__doc__))
    except (ValueError, RuntimeError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: what is done is kept, the same command goes on from there")
