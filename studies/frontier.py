"""How does the error fall with time on a quadratic, in theory and in the trainer?

Seven policies with exponential compute times. Six have an exact expected loss at every second; SSP
has none and is trained only. Each policy runs at one step for all, at its best fixed step for a
deadline and for a target loss, and with the best single change of step. The trainer goes the same
way many times, and the table says by how many standard errors it differs from theory.

    python studies/frontier.py --help
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
    """Compare expected loss against seconds on a quadratic: exact theory and the trainer."""

    out: Path = Path("results/frontier")
    """Folder of the results; a run that was interrupted goes on from what is there."""
    policies: Annotated[tuple[str, ...], tyro.conf.arg(metavar=f"{{{','.join(POLICIES)}}} ...")] = (
        POLICIES
    )
    """Which policies to compare."""
    workers: int = 8
    """Number of workers."""
    k: int | None = None
    """Gradients an update for the four k-policies; half of the workers if not given."""
    bound: int = 3
    """How far ahead of the slowest a worker may run under ssp."""
    mean: float = 1.0
    """Mean of the exponential compute times, seconds."""
    eigenvalues: tuple[float, ...] = (1.0, 0.2)
    """Of the quadratic."""
    noise: float = 1.0
    """Standard deviation of the gradient of a mini-batch, in each direction."""
    start: float = 3.0
    """Every parameter at second 0; the optimum is 0."""
    step: float = 0.25
    """The step that is the same for all policies."""
    deadline: float = 30.0
    """Seconds by which one step of each policy is to give the least expected loss."""
    target: float = 0.05
    """Expected loss that the other steps are to reach soonest."""
    horizon: float = 60.0
    """Simulated seconds."""
    points: int = 80
    """Seconds at which the loss is looked at, evenly on a log scale from 1/300 of the horizon."""
    runs: int = 2000
    """Runs of the trainer, the same random numbers for every policy."""
    tuning_runs: int = 500
    """Runs to choose the steps of ssp by, with other seeds."""
    tuning_steps: int = 24
    """Steps tried for ssp, evenly on a log scale from 1/200 of bsp's stability edge to half of it;
    rounded up to a multiple of four."""
    x64: bool = True
    """Train in binary64; else in binary32."""
    seed: int = 0
    """Of everything."""
    block: int = 250
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
    from dtjax.cli.main import policy_of
    from dtjax.core import checks
    from studies.frontier_runs import PLANS, numbers, seconds_per_update

    name = "frontier"
    if not config.policies:
        raise checks.fail(name, "policies", "must not be empty", config.policies)
    for policy in config.policies:
        checks.choice(name, "policies", policy, POLICIES)
    for field in ("workers", "runs", "tuning_runs", "points", "tuning_steps", "block"):
        low = 2 if field in ("runs", "points") else 1
        checks.integer(name, field, getattr(config, field), low=low)
    for field in ("mean", "step", "deadline", "target", "horizon"):
        if not 0 < getattr(config, field) < math.inf:
            rule = "must be positive and finite"
            raise checks.fail(name, field, rule, getattr(config, field))
    checks.real(name, "eigenvalues", config.eigenvalues, checks.NON_NEGATIVE, ndim=1)
    if not any(config.eigenvalues):
        raise checks.fail(name, "eigenvalues", "must hold a positive one", config.eigenvalues)
    checks.real(name, "noise", config.noise, checks.NON_NEGATIVE)
    checks.real(name, "start", config.start)
    if config.smoke:
        smaller: dict[str, float] = {
            "runs": 200,
            "tuning_runs": 50,
            "tuning_steps": 8,
            "points": 30,
            "block": 100,
        }
        smaller |= {"horizon": 20.0 * config.mean, "deadline": 10.0 * config.mean}
        own = {field: min(getattr(config, field), value) for field, value in smaller.items()}
        config = dataclasses.replace(config, **own)
    if config.deadline > config.horizon:
        rule = f"must be at most horizon={config.horizon:g}"
        raise checks.fail(name, "deadline", rule, config.deadline)
    k = max(1, config.workers // 2) if config.k is None else config.k
    checks.integer(name, "k", k, low=1, high=config.workers, high_name="workers=")
    checks.integer(name, "bound", config.bound, low=0)
    checks.integer(name, "seed", config.seed, low=0, high=2**31 - 1)
    config = dataclasses.replace(
        config,
        k=k,
        policies=tuple(dict.fromkeys(config.policies)),
        tuning_steps=-(-config.tuning_steps // len(PLANS)) * len(PLANS),
    )
    for policy in config.policies:
        policy_of(policy, **numbers(config, policy))
        if (each := seconds_per_update(config, policy)) > config.deadline:
            rule = f"must be at least the {each:.3g} s of an update of {policy}"
            raise checks.fail(name, "deadline", rule, config.deadline)
    return config


def study(config: Config) -> xr.Dataset:
    """Run the whole study; parts that an earlier run finished are read.

    Args:
        config: settled.

    Returns:
        Arrays with dimensions policy, plan, run, time.
    """
    import jax
    import xarray as xr
    from tqdm import tqdm

    from dtjax.experiment import study as studies
    from studies.frontier_runs import compared

    parts = studies.output_folder(config.out / "parts")
    kept = dataclasses.replace(config, out=Path(), figure=True, policies=())
    rows = []
    with jax.enable_x64(config.x64), tqdm(config.policies, unit="policy", leave=False) as bar:
        for policy in bar:
            bar.set_postfix_str(policy)
            rows.append(studies.part(parts, [kept, policy], lambda p=policy: compared(config, p)))
    whole = xr.concat(rows, "policy", data_vars="all").assign_coords(
        policy=list(config.policies), run=range(config.runs)
    )
    return whole.assign_attrs(studies.provenance(config) | {"study": "frontier"})


def largest(one: xr.Dataset) -> float:
    """Return the largest |z| of a plan, or of all of them; NaN where there is no theory."""
    import numpy as np

    every = [one[name].values.ravel() for name in ("z", "z_update_loss", "z_update_seconds")]
    sizes = np.abs(np.concatenate(every))
    return float(np.nanmax(sizes)) if np.isfinite(sizes).any() else math.nan


def tables(config: Config, whole: xr.Dataset) -> str:
    """Lay out one table a plan, and below them how far the trainer is from theory at most."""
    import numpy as np
    from scipy import stats

    from dtjax.core.table import table

    titles = {
        "same": f"one step for all, {config.step:g}",
        "deadline": f"the step with the least expected loss at {config.deadline:g} s",
        "target": f"the step that reaches an expected loss of {config.target:g} soonest",
        "switch": "the best change of step on the way to that target",
    }
    headers = ["policy", "step", "floor", f"loss at {config.deadline:g} s: theory", "trainer"]
    headers += ["s to target: by updates", "by seconds", "trainer", "max |z|"]
    text = []
    for plan, title in titles.items():
        rows = []
        for policy in whole.policy.values:
            one = whole.sel(plan=plan, policy=policy)
            if math.isnan(float(one.step_after)):
                continue
            rows.append([str(policy), *_row(config, one)])
        text += [f"\n{title} ({config.runs} runs; means, 95 % intervals)", table(headers, rows)]
    count = int(sum(np.isfinite(whole[n].values).sum() for n in ("z", "z_update_loss")))
    if count:
        bound = stats.norm.isf(0.025 / count)
        text.append(
            f"\ntrainer against theory: max |z| = {largest(whole):.2f} of {count} comparisons; "
            f"of as many independent ones it would pass {bound:.2f} in one case of twenty"
        )
    if "ssp" in whole.policy:
        text.append("ssp has no theory: its steps were tuned, and its numbers are the trainer's")
    return "\n".join(text)


def _row(config: Config, one: xr.Dataset) -> list[str]:
    """Write the cells of one policy under one plan."""
    steps = f"{float(one.step_before):.3g}"
    if float(one.step_before) != float(one.step_after):
        when = int(one.switch_updates)
        steps += f", {float(one.step_after):.3g} after {when} updates"
    known = not math.isnan(float(one.theory_floor))
    at = one.sel(time=config.deadline, method="nearest")
    loss = at.loss.values
    error = 1.96 * float(loss.std(ddof=1)) / math.sqrt(len(loss))
    middle, low, high = one.reached.values.tolist()
    lost = int(one.diverged)
    trainer = f"{loss.mean():.4g} \u00b1 {error:.2g}"
    return [
        steps,
        "unstable" if bool(one.unstable) else _number(one.theory_floor),
        _number(at.theory_loss),
        f"{lost} of {len(loss)} runs diverged" if lost else trainer,
        _seconds(float(one.theory_planned)),
        _seconds(float(one.theory_reached)) if at.theory_loss.notnull() else "-",
        f"{_seconds(middle)} [{_seconds(low)}, {_seconds(high)}]"
        if low < math.inf
        else "not reached",
        f"{largest(one):.2f}" if known and not bool(one.unstable) else "-",
    ]


def _number(value: Any) -> str:
    return "-" if math.isnan(float(value)) else f"{float(value):.4g}"


def _seconds(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.3g}" if math.isfinite(value) else "never"


def main(config: Config) -> None:
    """Run the study, print its tables, write its file and draw its figure."""
    from dtjax.experiment import study as studies

    studies.prepare()
    config = settle(config)
    out = studies.output_folder(config.out)
    whole = study(config)
    studies.write(whole, out / "frontier.nc")
    print(tables(config, whole))
    print(f"\nwrote {out / 'frontier.nc'}")
    if config.figure:
        script = Path(__file__).parents[1] / "figures" / "frontier.py"
        studies.draw(script, str(out / "frontier.nc"), "--out", str(out / "frontier.png"))
        print(f"wrote {out / 'frontier.png'}")


if __name__ == "__main__":
    try:
        main(tyro.cli(Config, description=__doc__))
    except (ValueError, RuntimeError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: what is done is kept, the same command goes on from there")
