"""How large a step does each synchronisation policy bear, with how many workers?

Six policies have an exact edge of mean-square stability with exponential compute times: the line.
The dots are the trainer along schedules of the clock, at steps below and beyond it: whether the
mean square of the parameter grows, and whether a typical run's does. SSP has dots only.

    python studies/stability.py --help
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

POLICIES = ("bsp", "k-bsp", "k-batch-bsp", "k-asp", "k-batch-asp", "ssp", "asp")


@dataclass(frozen=True)
class Config:
    """Map which steps are stable: policy x workers x step, in theory and in the trainer.

    Steps are in units of 1 / eigenvalue. A mean square shrinks or grows if the 95 % interval of its
    growth an update, over independent populations of cloned runs, lies below or above 0.
    """

    out: Path = Path("results/stability")
    """Folder of the results; a run that was interrupted goes on from what is there."""
    policies: Annotated[tuple[str, ...], tyro.conf.arg(metavar=f"{{{','.join(POLICIES)}}} ...")] = (
        POLICIES
    )
    """Which policies to compare."""
    workers: tuple[int, ...] = (4, 8, 16, 32)
    """Numbers of workers to train with; the lines have all in between."""
    k: int = 2
    """Gradients an update for the four k-policies; of k-bsp and k-asp at most the workers."""
    bound: int = 3
    """How far ahead of the slowest a worker may run under ssp."""
    factors: tuple[float, ...] = (0.7, 0.85, 0.95, 1.05, 1.15, 1.3, 1.6)
    """Steps to train with, in units of the edge (ssp: of an estimate of its edge)."""
    particles: int = 128
    """Runs in a population."""
    islands: int = 6
    """Independent populations whose runs are cloned: they show the mean square."""
    plain: int = 3
    """Independent populations of runs that are left alone: they show a typical run."""
    length: int = 24
    """Gradients of a run, in units of the workers, but not less than 192; its first sixth is left
    out. Nothing is random without staleness: eight epochs are enough there."""
    seed: int = 0
    """Of everything."""
    figure: bool = True
    """Draw the figure, too."""
    smoke: bool = False
    """A size that only shows that everything works, in seconds."""


def settle(config: Config) -> Config:
    """Check a configuration and fill in what depends on other fields.

    Raises:
        ValueError: naming the field, the rule and the value.
    """
    from dtjax.cli.main import policy_of
    from dtjax.core import checks
    from studies.stability_runs import EPOCH, MOST_EPOCHS, numbers

    name = "stability"
    for field in ("policies", "workers", "factors"):
        if not getattr(config, field):
            raise checks.fail(name, field, "must not be empty", getattr(config, field))
    for policy in config.policies:
        checks.choice(name, "policies", policy, POLICIES)
    for n in config.workers:
        checks.integer(name, "workers", n, low=2, high=1024)
    checks.real(name, "factors", config.factors, checks.POSITIVE, ndim=1)
    checks.integer(name, "k", config.k, low=1)
    checks.integer(name, "bound", config.bound, low=0)
    checks.integer(name, "seed", config.seed, low=0, high=2**31 - 1)
    for field in ("particles", "islands", "plain"):
        checks.integer(name, field, getattr(config, field), low=2)
    if config.smoke:
        own: dict[str, Any] = {
            "workers": config.workers[1:3] or config.workers,
            "factors": (min(config.factors), max(config.factors)),
        }
        own |= {"particles": min(config.particles, 32), "islands": min(config.islands, 4)}
        config = dataclasses.replace(config, **own)
    most = MOST_EPOCHS * EPOCH // max(config.workers)
    checks.integer(name, "length", config.length, low=1, high=most)
    unique: dict[str, Any] = {"policies": tuple(dict.fromkeys(config.policies))}
    unique |= {
        field: tuple(sorted(set(getattr(config, field)))) for field in ("workers", "factors")
    }
    config = dataclasses.replace(config, **unique)
    for policy in config.policies:
        policy_of(policy, **numbers(config, policy, min(config.workers)))
    return config


def measured(config: Config, policy: str, n: int) -> xr.Dataset:
    """Compute theory and trainer of one policy with one number of workers.

    Returns:
        Raw growth of each population with dimensions factor, island and plain, and what it says.
    """
    import numpy as np
    import xarray as xr

    from studies import stability_runs as runs

    line = runs.edges(config, policy, np.array([n]))[0]
    if math.isnan(line):  # ssp: look between the edges of constant delays and of asp, then closer
        ends = [f(config, "asp", np.array([n]))[0] for f in (runs.constant_delay_edges, runs.edges)]
        tries = np.geomspace(ends[0] / 2, 2 * ends[1], 8)
        few = dataclasses.replace(config, islands=2, plain=0)
        rough = runs.growth(few, policy, n, tries)["growth"]
        middle = runs.edge(tries, rough, config.seed, resamples=1)[0]
        line = ends[1] if math.isnan(middle) else middle
    steps = line * np.array(config.factors)
    found = runs.growth(config, policy, n, steps)
    exact = runs.exact_growth(config, policy, n, steps)
    seen = {name: runs.interval(value) for name, value in found.items()}
    rate = {"units": "1", "long_name": "log growth of a square an update"}
    verdict = {
        "flag_values": list(range(len(runs.VERDICTS))),
        "flag_meanings": " ".join(runs.VERDICTS),
    }
    error = found["growth"].std(axis=1, ddof=1) / math.sqrt(config.islands)
    off = seen["growth"][:, 0] - exact
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.where(error > 1e-9, off / error, np.nan)  # synchronous policies: nothing is random
    estimates = {name: runs.edge(steps, value, config.seed) for name, value in found.items()}
    return xr.Dataset(
        {
            "growth": (("factor", "island"), found["growth"], rate),
            "typical": (("factor", "plain"), found["typical"], rate),
            "theory_growth": ("factor", exact, rate),
            "growth_interval": (("factor", "bound"), seen["growth"], rate),
            "typical_interval": (("factor", "bound"), seen["typical"], rate),
            "t": ("factor", t, {"long_name": "(growth - theory) / standard error"}),
            "verdict": ("factor", runs.verdicts(seen["growth"]), verdict),
            "typical_verdict": ("factor", runs.verdicts(seen["typical"]), verdict),
            "step": ("factor", steps, {"units": "1 / eigenvalue"}),
            "edge": ("bound", list(estimates["growth"]), {"units": "1 / eigenvalue"}),
            "typical_edge": ("bound", list(estimates["typical"]), {"units": "1 / eigenvalue"}),
        },
    )


def study(config: Config) -> xr.Dataset:
    """Run the whole study; parts that an earlier run finished are read.

    Args:
        config: settled.

    Returns:
        Arrays with dimensions policy, workers, factor, and lines with dimensions policy, n.
    """
    import jax
    import numpy as np
    from tqdm import tqdm

    from dtjax.analysis.dataset import join
    from dtjax.experiment import study as studies
    from studies.stability_runs import constant_delay_edges, edges

    parts = studies.output_folder(config.out / "parts")
    kept = dataclasses.replace(config, out=Path(), figure=True, policies=(), workers=())
    kept = [kept, max(config.workers)]
    rows = []
    total = len(config.policies) * len(config.workers)
    with jax.enable_x64(True), tqdm(total=total, unit="setting", leave=False) as bar:
        for policy in config.policies:
            row = []
            for n in config.workers:
                bar.set_postfix_str(f"{policy}, {n} workers")
                make = lambda p=policy, n=n: measured(config, p, n)  # noqa: E731
                row.append(studies.part(parts, [*kept, policy, n], make))
                bar.update()
            rows.append(row)
    n = np.arange(min(config.workers), max(config.workers) + 1)
    lines = {
        "theory_edge": [edges(config, policy, n) for policy in config.policies],
        "constant_delay_edge": [constant_delay_edges(config, p, n) for p in config.policies],
    }
    whole = join(rows, "policy", "workers").assign(
        {name: (("policy", "n"), np.array(line)) for name, line in lines.items()}
    )
    whole = whole.assign_coords(
        policy=list(config.policies),
        workers=list(config.workers),
        factor=list(config.factors),
        n=n,
        bound=["mean", "low", "high"],
    )
    return whole.assign_attrs(studies.provenance(config) | {"study": "stability"})


def tables(config: Config, whole: xr.Dataset) -> str:
    """Lay out the edges of each policy and number of workers, and what does not agree."""
    import numpy as np
    from scipy import stats

    from dtjax.core.table import table
    from studies.stability_runs import VERDICTS

    headers = ["policy", "workers", "edge: theory", "trainer", "typical run", "constant delay"]
    headers += ["shrinks at", "grows at", "undecided at", "diverged at", "max |t|"]
    rows = []
    for policy in whole.policy.values:
        for n in whole.workers.values:
            one = whole.sel(policy=policy, workers=n)
            line = one.sel(n=n)
            at = [
                " ".join(f"{x:g}" for x in one.factor.values[one.verdict.values == place]) or "-"
                for place in range(len(VERDICTS))
            ]
            known = bool(one.t.notnull().any())
            rows.append(
                [
                    str(policy),
                    int(n),
                    _number(line.theory_edge),
                    _interval(one.edge),
                    _interval(one.typical_edge),
                    _number(line.constant_delay_edge),
                    *at,
                    f"{np.nanmax(np.abs(one.t)):.2f}" if known else "-",
                ]
            )
    title = f"steps x eigenvalue; {config.islands} populations of {config.particles} cloned runs, "
    title += "95 % intervals, the trainer's edges interpolated between steps; `at`: factors of the "
    title += "edge, of ssp of its estimate"
    notes = _wrong(whole) or ["every dot is on its side of the line, or undecided"]
    if count := int(whole.t.notnull().sum()):
        bound = stats.t.isf(0.025 / count, config.islands - 1)
        notes.append(
            f"growth against theory: max |t| = {float(np.abs(whole.t).max()):.2f} of {count}; "
            f"of as many independent ones it would pass {bound:.2f} in one case of twenty"
        )
    return "\n".join([title, table(headers, rows), *notes])


def _wrong(whole: xr.Dataset) -> list[str]:
    """Name each setting whose verdict is not that of theory."""
    from studies.stability_runs import VERDICTS

    found = []
    cells = whole.verdict.stack(cell=("policy", "workers", "factor"))
    for (policy, n, factor), verdict in zip(cells.cell.values, cells.values, strict=True):
        beyond, grew = factor > 1, verdict in (1, 3)
        if policy != "ssp" and verdict != 2 and beyond != grew:
            what = VERDICTS[int(verdict)]
            found.append(f"{policy}, {n} workers: {what} at {factor:g} of the edge")
    return found


def _number(value: Any) -> str:
    return "-" if math.isnan(float(value)) else f"{float(value):.4g}"


def _interval(bounds: Any) -> str:
    middle, low, high = (float(x) for x in bounds.values)
    if math.isnan(middle):
        return "not between the steps"
    return f"{middle:.4g} [{low:.4g}, {high:.4g}]"


def main(config: Config) -> None:
    """Run the study, print its table, write its file and draw its figure."""
    from dtjax.experiment import study as studies

    studies.prepare()
    config = settle(config)
    out = studies.output_folder(config.out)
    whole = study(config)
    studies.write(whole, out / "stability.nc")
    print(tables(config, whole))
    print(f"\nwrote {out / 'stability.nc'}")
    if config.figure:
        script = Path(__file__).parents[1] / "figures" / "stability.py"
        studies.draw(script, str(out / "stability.nc"), "--out", str(out / "stability.png"))
        print(f"wrote {out / 'stability.png'}")


if __name__ == "__main__":
    try:
        main(tyro.cli(Config, description=__doc__))
    except (ValueError, RuntimeError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: what is done is kept, the same command goes on from there")
