"""What do stragglers cost as the cluster grows?

Laws of compute times with one mean, workers from 1 to 4,096. Theory: seconds per update of BSP and
k-BSP, the k with which k-BSP gets the most gradients a second, the speed-up of ASP. Monte Carlo
beside it, and alone where theory is silent: k-ASP, k-batch-BSP, and stragglers that persist.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

if TYPE_CHECKING:
    import xarray as xr

LAWS = ("uniform", "weibull", "shifted", "exponential", "log-normal", "pareto", "regimes")
SMOKE = ("shifted", "exponential")
COUNTS = {"workers": 1, "simulated": 1, "most": 1, "runs": 2, "updates": 4, "seed": 0}
BOUNDS = {"shares": (0.001, 1.0), "shift": (0.0, 0.999), "alpha": (1.001, 100.0)}
BOUNDS |= {"slow_factor": (1.0, 1e6), "slow_enter": (1e-6, 1.0), "slow_leave": (1e-6, 1.0)}
SIMULATED = ("bsp", "bsp_median", "bsp_utilisation", "asp", "best", "k_bsp", "k_asp", "k_batch_bsp")
"""Seconds per update, but for utilisation; best is k-BSP with the k of most gradients a second."""


@dataclass(frozen=True)
class Config:
    """Find what stragglers cost: every law has a mean of 1 s."""

    out: Path = Path("results/stragglers")
    """Folder of the results; a run that was interrupted goes on from what is there."""
    laws: Annotated[tuple[str, ...], tyro.conf.arg(metavar=f"{{{','.join(LAWS)}}} ...")] = LAWS
    """Which laws of compute times."""
    workers: tuple[int, ...] = tuple(2**i for i in range(13))
    """Numbers of workers that theory is asked about."""
    simulated: tuple[int, ...] = tuple(4**i for i in range(7))
    """Those that are simulated, too."""
    most: int = 256
    """Above this many workers only BSP and k-BSP with independent times are simulated."""
    shares: tuple[float, ...] = (0.5, 0.9)
    """Shares of the workers that k-ASP and k-batch-BSP wait for, rounded up."""
    shift: float = 0.5
    """Constant part of the shifted exponential law; where stragglers persist, of its base."""
    alpha: float = 2.0
    """Of the Pareto law: the tail's power; up to 2 the variance is infinite."""
    slow_factor: float = 5.0
    """How many times longer a computation takes in a slow phase (regimes)."""
    slow_enter: float = 0.02
    """Probability that a slow phase begins after a fast computation (regimes)."""
    slow_leave: float = 0.08
    """Probability that it ends after a slow computation (regimes)."""
    updates: int = 128
    """Updates in a run; of ASP, 64 n if that is more."""
    runs: int = 16
    """Runs, each with a seed of its own."""
    seed: int = 0
    """Of everything."""
    figure: bool = True
    """Draw the figure, too."""
    smoke: bool = False
    """A size that only shows that everything works, in seconds."""


def settle(config: Config) -> Config:
    """Check a configuration, sort what it lists; raise ValueError with field, rule and value."""
    from dtjax.core import checks

    for name in ("laws", *COUNTS, *BOUNDS):
        values = getattr(config, name)
        if values == ():
            raise checks.fail("stragglers", name, "must not be empty", values)
        for value in values if isinstance(values, tuple) else (values,):
            low, high = BOUNDS.get(name, (0, 0))
            if name == "laws":
                checks.choice("stragglers", name, value, LAWS)
            elif name in COUNTS:
                checks.integer("stragglers", name, value, low=COUNTS[name], high=10**6)
            elif not low <= value <= high:
                raise checks.fail("stragglers", name, f"must be between {low} and {high}", value)
    checks.integer("stragglers", "most", config.most, low=min(config.simulated))
    laws, simulated = tuple(dict.fromkeys(config.laws)), sorted(set(config.simulated))
    workers = sorted(set(config.workers))
    if config.smoke:
        laws = tuple(one for one in laws if one in SMOKE) or laws[:1]
        simulated, workers = simulated[:3], [n for n in workers if n <= 64]
        small = {"updates": min(config.updates, 64), "runs": min(config.runs, 4)}
        config = dataclasses.replace(config, **small)
    sizes = {"workers": tuple(sorted({*workers, *simulated})), "simulated": tuple(simulated)}
    return dataclasses.replace(config, laws=laws, shares=tuple(sorted(set(config.shares))), **sizes)


def law(config: Config, name: str) -> Any:
    """Return a law of compute times with mean 1 s."""
    from dtjax import delays

    enter, leave, factor = config.slow_enter, config.slow_leave, config.slow_factor
    mean = (enter + leave) / (enter * factor + leave) if name == "regimes" else 1.0
    shifted = delays.exponential((1.0 - config.shift) * mean, shift=config.shift * mean)
    return {
        "uniform": delays.uniform(0.5, 1.5),
        "weibull": delays.weibull(2.0, 2.0 / math.sqrt(math.pi)),
        "shifted": shifted,
        "exponential": delays.exponential(1.0),
        "log-normal": delays.log_normal(math.exp(-0.5), 1.0),
        "pareto": delays.pareto(config.alpha, 1.0 - 1.0 / config.alpha),
        "regimes": delays.regimes(shifted, factor=factor, enter=enter, leave=leave),
    }[name]


def best_k(of: Any, n: int) -> int:
    """Return the k with the most gradients a second, k / E[X_(k:n)], taken to have one maximum."""
    from dtjax import theory

    low, high = 1, n
    while low < high:
        k = (low + high) // 2
        now, more = theory.k_bsp_seconds(of, n, [k, k + 1])
        low, high = (k + 1, high) if (k + 1) * now > k * more else (low, k)
    return low


def predict(config: Config, name: str) -> xr.Dataset:
    """Return what theory says of a law, NaN where it is silent."""
    import xarray as xr

    from dtjax import theory

    of, n = law(config, name), np.array(config.workers)
    k = np.ceil(n[:, None] * np.array(config.shares) - 1e-9).astype(int).clip(1)
    best = np.array([1 if name == "regimes" else best_k(of, int(m)) for m in n])
    found = {
        "k": k,
        "best_k": best.astype(float),
        "bsp_theory": theory.bsp_seconds(of, n),
        "bsp_median_theory": np.asarray(of.isf(-np.expm1(np.log(0.5) / n))),
        "asp_theory": theory.asp_seconds(of, n),
        "asp_gradient_speedup": theory.asp_over_bsp_gradient_speedup(of, n),
        "asp_update_speedup": theory.asp_over_bsp_update_speedup(of, n),
        "best_theory": theory.k_bsp_seconds(of, n, best),
        "k_bsp_theory": theory.k_bsp_seconds(of, n[:, None], k),
        "k_asp_theory": theory.exponential_k_asp_seconds(n[:, None], k),
        "k_batch_bsp_theory": theory.exponential_k_batch_bsp_seconds(n[:, None], k),
    }
    silent = () if name == "exponential" else ("k_asp_theory", "k_batch_bsp_theory")
    if name == "regimes":  # what is cancelled changes how long a phase lasts
        silent += ("best_k", "best_theory", "k_bsp_theory")
    found |= {one: np.full(np.shape(found[one]), np.nan) for one in silent}
    dims = {"workers": n, "share": list(config.shares)}
    return xr.Dataset({one: ([*dims][: np.ndim(x)], x) for one, x in found.items()}, dims)


def measure(config: Config, name: str, bar: Any) -> xr.Dataset:
    """Ask theory about one law, and simulate it: a mean a run, NaN where nothing was simulated."""
    import jax

    import dtjax

    of, persistent, whole = law(config, name), name == "regimes", predict(config, name)
    root = jax.random.key(config.seed)  # the same runs for all policies
    keys, pilot = (jax.random.split(jax.random.fold_in(root, i), config.runs) for i in (0, 1))
    few = max(n for n in config.simulated if n <= config.most)
    many = few if persistent else max(config.simulated)
    for one in SIMULATED:
        like = whole.k if one.startswith("k_") else whole.best_k
        whole[one] = like.expand_dims(run=range(config.runs), axis=-1) * np.nan
    found: Any = {one: value.values for one, value in whole.items()}

    def play(n: int, policy: Any, updates: int, room: int, keys: Any = keys) -> tuple[Any, Any]:
        bar.set_postfix_str(f"{name}, {n} workers")
        # Absent workers, spare rows and spare width: one compile for all n and k.
        cluster = dtjax.Cluster(n=room, delay=of, present=np.arange(room) < n)
        size: Any = {"updates": updates, "rows": max(config.updates, 64 * few), "width": room}
        run = dtjax.simulate_runs(keys, cluster, policy, **size, collect="seconds").check()
        return np.asarray(run.dt, np.float64)[:, :updates], run.accounts.utilisation

    def k_bsp(n: int, k: float, keys: Any = keys) -> tuple[Any, Any]:  # k = n is BSP
        return play(n, dtjax.policies.k_bsp(int(k)), config.updates, many, keys)

    def later(n: int, k: int, updates: int) -> Any:  # k-ASP without its start; k = 1 is ASP
        return play(n, dtjax.policies.k_asp(k), updates, few)[0][:, updates // 2 :].mean(-1)

    for n in config.simulated:
        at = config.workers.index(n)
        if n <= many:
            dt, found["bsp_utilisation"][at] = k_bsp(n, n)
            found["bsp"][at], found["bsp_median"][at] = dt.mean(-1), np.median(dt, -1)
            if persistent:  # choose by other runs than those that are reported
                tried = sorted({1, *(-(-n * i // 12) for i in range(1, 13))})
                rates = [k / k_bsp(n, k, pilot)[0].mean() for k in tried]
                found["best_k"][at] = tried[int(np.argmax(rates))]
            found["best"][at] = k_bsp(n, found["best_k"][at])[0].mean(-1)
        if n <= few:
            found["asp"][at] = later(n, 1, max(config.updates, 64 * n))
            for i, k in enumerate(int(k) for k in found["k"][at]):
                found["k_asp"][at, i] = later(n, k, config.updates)
                batches = play(n, dtjax.policies.k_batch_bsp(k), config.updates, few)
                found["k_batch_bsp"][at, i] = batches[0].mean(-1)
                if persistent:
                    found["k_bsp"][at, i] = k_bsp(n, k)[0].mean(-1)
    for one in whole:
        if not str(one).endswith(("k", "speedup")) and "utilisation" not in str(one):
            whole[one].attrs["units"] = "s"
    return whole.assign(finite_variance=bool(np.isfinite(of.variance()))).assign_coords(law=name)


def compare(whole: xr.Dataset) -> xr.Dataset:
    """Add how far Monte Carlo is from theory: Student's t, as a normal number as rare."""
    from scipy import stats

    added, runs = {}, whole.sizes["run"]
    for one in ("bsp", "asp", "best", "k_asp", "k_batch_bsp"):
        error = whole[one].std("run", ddof=1) / np.sqrt(runs)
        t = (whole[one].mean("run") - whole[f"{one}_theory"]) / error
        t = t.where(whole.finite_variance & (error > 0))
        chance = np.maximum(stats.t.sf(abs(t), runs - 1), 1e-300)
        added[f"{one}_z"] = np.sign(t) * stats.norm.isf(chance)
    z = np.concatenate([np.abs(value.values.ravel()) for value in added.values()])
    z = z[~np.isnan(z)]
    return whole.assign(added | {"largest_z": z.max(initial=0.0), "comparisons": z.size})


def estimate(one: xr.Dataset, values: xr.DataArray) -> str:
    """Write the mean of runs with its 95 % interval; a median where the variance is infinite."""
    from dtjax.analysis.bootstrap import mean_interval, median_interval

    if values.isnull().any():
        return "-"
    if not one.finite_variance:
        return str(median_interval(values.values))
    mean, half = mean_interval(values.values)
    return f"{float(mean):.4g} +-{float(half):.2g}"


def outcomes(whole: xr.Dataset) -> str:
    """Lay out theory, and simulation with intervals, for the middle and the largest clusters."""
    from dtjax.core.table import table

    share, rows = float(whole.share[-1]), []
    headers = ["law", "workers", "BSP s", "simulated", "utilisation", "ASP updates/s", "best k/n"]
    headers += ["gradients/s", "worker-s each", "simulated", f"k={share:g}n: k-BSP s", "k-ASP s"]
    sizes = whole.workers.values[whole.bsp.notnull().any(["law", "run"]).values]
    for name in whole.law.values:
        for n in sorted({int(sizes[len(sizes) * i // 6]) for i in (2, 4)} | {int(sizes[-1])}):
            one = whole.sel(law=name, workers=n, share=share)
            kind, each = ("bsp" if one.finite_variance else "bsp_median"), n / one.best_k
            numbers = [one[f"{kind}_theory"], one.asp_update_speedup, 1 / each]
            numbers += [n / each / one.best_theory, each * one.best_theory, one.k_bsp_theory]
            bsp, asp, *best, k_bsp = ("-" if x.isnull() else f"{float(x):.4g}" for x in numbers)
            runs = [one[kind], one.bsp_utilisation, each * one.best, one.k_bsp, one.k_asp]
            cells = [estimate(one, values) for values in (*runs, one.k_batch_bsp)]
            k_bsp = cells[3] if name == "regimes" else k_bsp
            rows.append([name, n, bsp, *cells[:2], f"x {asp}", *best, cells[2], k_bsp, *cells[4:]])
    return table([*headers, "k-batch-BSP s"], rows)


def main(config: Config) -> None:
    """Run the study (laws that are done are read), print, write the file and draw the figure."""
    import xarray as xr
    from tqdm import tqdm

    from dtjax.experiment import study as studies

    studies.prepare()
    config = settle(config)
    parts, path = studies.output_folder(config.out / "parts"), config.out / "stragglers.nc"
    kept = ["stragglers", dataclasses.replace(config, out=Path(), figure=True, laws=())]
    with tqdm(config.laws, unit="law", dynamic_ncols=True) as bar:
        done = [
            studies.part(parts, [*kept, name], lambda name=name: measure(config, name, bar))
            for name in bar
        ]
    whole = xr.concat(done, "law", data_vars="all")
    whole = compare(whole).assign_attrs(studies.provenance(config) | {"study": "stragglers"})
    studies.write(whole, path)
    print(f"{config.runs} runs of {config.updates} updates: means (without variance medians), 95 %")
    print(outcomes(whole))
    z, count = float(whole.largest_z), int(whole.comparisons)
    print(f"Monte Carlo against theory: the largest |z| of {count} is {z:.2f}\nwrote {path}")
    if config.figure:
        script = Path(__file__).parents[1] / "figures" / "stragglers.py"
        studies.draw(script, str(path), "--out", str(path.with_suffix(".png")))
        print(f"wrote {path.with_suffix('.png')}")


if __name__ == "__main__":
    try:
        main(tyro.cli(Config, description=__doc__))
    except (ValueError, RuntimeError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: what is done is kept, the same command goes on from there")
