"""Which compressor of gradients pays, at which bandwidth, and does it need a memory?

Workers of BSP around one server, whose ingress they share, and from which they pull the dense
model. Every compressor trains the same network with and without error feedback, with the learning
rate that is best for it on validation data and other seeds.

Under BSP the bandwidth changes when an update happens, but not what is in it: update t takes step t
of every worker, read at version t. So each compressor is trained once, and its seconds at any
bandwidth are exact: those of the clock, simulated with its bits and that bandwidth. (With another
policy who contributes depends on the bandwidth: it is refused.)

    python studies/compression.py --help
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

DEFAULT = (
    "top-k:0.1",
    "top-k:0.01",
    "scaled-sign",
    "one-bit",
    "power-sgd:1",
    "random-k:0.6",
    "random-k:0.1",
    "qsgd:4",
    "terngrad",
    "int8",
)
SMOKE = ("top-k:0.1",)
GRID = tuple(10 ** (place / 2) for place in range(-6, 7))
"""Bandwidths between which break-evens are interpolated, as `ratios`."""


@dataclass(frozen=True)
class Config:
    """Compare compressors of gradients by the updates, bytes and seconds to a target accuracy."""

    out: Path = Path("results/compression")
    """Folder of the results; a run that was interrupted goes on from what is there."""
    compressors: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME[:NUMBER] ...")] = DEFAULT
    """Which compressors, beside dense gradients: fp16, bf16, fp8, int8, natural, terngrad, one-bit,
    scaled-sign, majority-sign, top-k:SHARE, random-k:SHARE, qsgd:LEVELS, power-sgd:RANK."""
    memories: tuple[Literal["none", "feedback", "ef21"], ...] = ("none", "feedback")
    """What workers keep of what was not sent; ef21 only of contractive compressors."""
    policy: str = "bsp"
    """How updates are synchronised."""
    ratios: tuple[float, ...] = (0.1, 1.0, 10.0)
    """Bandwidths to report, as seconds of a dense gradient's transfer over a mean compute time."""
    pull: bool = True
    """Whether workers pull the dense model before they compute, at the same bandwidth each."""
    encode: float = 0.0
    """Seconds in which a worker compresses; dense gradients need none."""
    workers: int = 8
    """Number of workers."""
    mean: float = 0.5
    """Mean of the random (exponential) part of a compute time, seconds."""
    shift: float = 0.5
    """Constant part of a compute time, seconds."""
    updates: int = 240
    """Updates that everyone trains for."""
    target: float = 0.94
    """Accuracy to reach."""
    window: int = 80
    """Gradients over which the accuracy is smoothed, and for which it must stay at the target."""
    evaluate_every: int = 32
    """Gradients between two evaluations."""
    dataset: Literal["digits", "mnist-subset"] = "digits"
    """What to learn."""
    hidden: tuple[int, ...] = (32,)
    """Widths of the network's hidden layers."""
    batch: int = 16
    """Examples in a mini-batch."""
    runs: int = 16
    """Runs to report, each with seeds of its own."""
    tuning_runs: int = 4
    """Runs to choose a learning rate by, with other seeds."""
    rates: tuple[float, ...] = (0.2, 0.4, 0.8, 1.6)
    """Learning rates to try; widened by factors of two while the best is at an edge."""
    widenings: int = 3
    """How often to widen at most."""
    seed: int = 0
    """Of everything."""
    block: int = 8
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
    from dtjax import delays
    from dtjax.core import checks
    from studies.compression_runs import DENSE, MEMORIES, compressor_of

    name = "compression"
    if config.policy != "bsp":
        rule = "must be bsp: with another policy the bandwidth decides who is in an update, so that"
        rule += " one training does not do for all bandwidths"
        raise checks.fail(name, "policy", rule, config.policy)
    for field in ("compressors", "memories", "ratios", "rates"):
        if not getattr(config, field):
            raise checks.fail(name, field, "must not be empty", getattr(config, field))
    for memory in config.memories:
        checks.choice(name, "memories", memory, MEMORIES)
    for text in config.compressors:
        compressor_of(name, text)
    for field, low in (("workers", 1), ("runs", 1), ("tuning_runs", 1), ("batch", 1), ("block", 1)):
        checks.integer(name, field, getattr(config, field), low=low)
    for field, low in (("updates", 1), ("evaluate_every", 1), ("window", 0), ("widenings", 0)):
        checks.integer(name, field, getattr(config, field), low=low)
    checks.integer(name, "seed", config.seed, low=0, high=2**31 - 1)
    checks.real(name, "rates", config.rates, checks.POSITIVE, ndim=1)
    checks.real(name, "ratios", config.ratios, checks.POSITIVE, ndim=1)
    checks.real(name, "encode", config.encode, checks.NON_NEGATIVE)
    if not 0 < config.target <= 1:
        raise checks.fail(name, "target", "must be above 0 and at most 1", config.target)
    delays.exponential(config.mean, shift=config.shift)
    own: dict[str, Any] = {}
    if config.smoke:
        most = {"updates": 60, "runs": 4, "tuning_runs": 2, "window": 20, "target": 0.5}
        own |= {field: min(getattr(config, field), most[field]) for field in most}
        own |= {"rates": config.rates[:2], "widenings": 0, "block": 4}
        own |= {"compressors": SMOKE if config.compressors == DEFAULT else config.compressors}
    others = own.get("compressors", config.compressors)
    own["compressors"] = tuple(dict.fromkeys([DENSE, *others]))
    own["memories"] = tuple(dict.fromkeys(config.memories))
    own["rates"] = tuple(sorted(set(own.get("rates", config.rates))))
    own["ratios"] = tuple(sorted(set(config.ratios)))
    return dataclasses.replace(config, **own)


def settings(config: Config) -> list[tuple[str, str]]:
    """Return which compressors are trained with which memories; dense gradients come first."""
    from studies.compression_runs import DENSE, NONE, allowed, compressor_of

    pairs = [
        (text, memory)
        for text in config.compressors
        for memory in config.memories
        if text != DENSE and allowed(compressor_of("compression", text), memory)
    ]
    return [(DENSE, NONE), *pairs]


def learning_task(config: Config) -> Any:
    """Return the task: a network of dense layers on the chosen data."""
    from dtjax import data, models
    from dtjax.training.task import classification
    from studies.compression_runs import probed

    sets = data.LOADERS[config.dataset]()
    return probed(classification(models.mlp(config.hidden, sets.classes), sets, batch=config.batch))


def run_keys(config: Config, use: Literal["schedule", "training"]) -> Any:
    """Return one key a run: the same for all, so that differences are the compressors'."""
    import jax

    root = jax.random.fold_in(jax.random.key(config.seed), ["schedule", "training"].index(use))
    return jax.random.split(root, config.tuning_runs + config.runs)


def trained(config: Config, text: str, memory: str, train_all: Any, params: Any, bar: Any) -> Any:
    """Tune and report one compressor with one memory.

    Args:
        config: of the study.
        text: the compressor.
        memory: of what was not sent.
        train_all: trains many runs.
        params: shapes of the model.
        bar: progress.

    Returns:
        One dataset of raw arrays, none of which depends on a bandwidth.
    """
    import jax
    import numpy as np
    import xarray as xr

    from dtjax.analysis.time_to_target import time_to_target
    from dtjax.training.rate_search import choose_rate
    from studies import compression_runs as runs

    compressor = runs.compressor_of("compression", text)
    encoder = runs.encoder_of(compressor, memory)
    keys = run_keys(config, "training")
    trace = runs.bsp_trace(config.workers, config.updates, config.batch)
    tuning, reported = np.arange(config.tuning_runs), config.tuning_runs + np.arange(config.runs)

    def train(index: np.ndarray, rates: np.ndarray) -> Any:
        bar.set_postfix_str(f"{text}, {memory}, {len(index)} runs")
        many = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], len(index), 0), trace)
        encoders = runs.lanes(encoder, len(index))
        return train_all(keys[index], many, rates=rates, progress=bar.update, encoders=encoders)

    def target(result: Any, measure: str) -> np.ndarray:
        return time_to_target(
            result.updates.astype(float),
            result.gradients,
            np.nan_to_num(result.measures[measure], nan=0.0),
            config.target,
            window=config.window,
        )

    def try_rates(rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shape = (len(rates), len(tuning))
        result = train(np.tile(tuning, len(rates)), np.repeat(rates, len(tuning)))
        accuracy = np.nan_to_num(result.measures["validation_accuracy"][:, -1], nan=0.0)
        return target(result, "validation_accuracy").reshape(shape), accuracy.reshape(shape)

    choice = choose_rate(config.rates, try_rates, widenings=config.widenings)
    result = train(reported, np.full(len(reported), choice.rate))
    each = ("run", "evaluation")
    sums = {"error": "error_sum", "carried": "carried_sum"}
    values = {
        name: (each, result.measures[name])
        for name in ("test_loss", "test_accuracy", "validation_loss", "validation_accuracy")
    }
    values |= {name: (each, result.measures[source]) for name, source in sums.items()}
    whole = xr.Dataset(values).assign(
        updates=(each, result.updates),
        gradients=(each, result.gradients),
        diverged=("run", result.diverged),
        target_updates=("run", target(result, "test_accuracy")),
        bits=float(compressor.bits(params)),
        family=compressor.family,
        declared=runs.declared(compressor, params),
        rate=choice.rate,
        rate_warning=choice.warning,
        tried=("candidate", choice.tried),
        tuning_updates=(("candidate", "tuning_run"), choice.seconds),
    )
    whole.error.attrs["long_name"] = "sum over updates of the workers' mean |C(x) - x|^2 / |x|^2"
    whole.carried.attrs["long_name"] = "sum over updates of the workers' mean |x| / |gradient|"
    whole.target_updates.attrs["note"] = "infinite: not reached"
    whole.bits.attrs["units"] = "bit"
    return whole


def bandwidths(config: Config, dense: float) -> np.ndarray:
    """Return the bandwidths, rising, bits a second: the reported ones, the grid and infinity."""
    import numpy as np

    ratios = np.unique(np.round([*config.ratios, *GRID], 12))
    return np.append(np.sort(dense / (ratios * (config.mean + config.shift))), np.inf)


def clock(config: Config, payloads: Any, dense: float, parts: Path) -> Any:
    """Simulate the seconds of each update for every payload and bandwidth.

    Returns:
        Dataset of `seconds` with dimensions payload, bandwidth, run, update.
    """
    import numpy as np
    import xarray as xr

    from dtjax import delays
    from dtjax.experiment import study as studies
    from studies.compression_runs import Links, update_seconds

    rates = bandwidths(config, dense)

    def compute() -> xr.Dataset:
        bits, speed = (x.reshape(-1) for x in np.meshgrid(payloads, rates, indexing="ij"))
        links = Links(
            bits, speed, np.where(bits == dense, 0.0, config.encode), 0 * bits + config.pull * dense
        )
        law = delays.exponential(config.mean, shift=config.shift)
        keys = run_keys(config, "schedule")[config.tuning_runs :]
        seconds = update_seconds(links, keys, law, config.workers, config.updates)
        seconds = seconds.reshape(len(payloads), len(rates), config.runs, config.updates)
        return xr.Dataset({"seconds": (("payload", "bandwidth", "run", "update"), seconds)})

    fields = ("workers", "mean", "shift", "pull", "encode", "updates", "runs", "tuning_runs")
    own = [getattr(config, field) for field in (*fields, "seed")]
    return studies.part(parts, ["clock", own, payloads, rates], compute)


def timed(config: Config, whole: xr.Dataset, parts: Path) -> xr.Dataset:
    """Add what depends on the bandwidth: seconds of the evaluations, and to the target."""
    import numpy as np

    from dtjax.analysis.time_to_target import time_to_target

    bits = whole.bits.values
    payloads = np.unique(bits)
    found = clock(config, payloads, float(bits[0]), parts).seconds.values
    padded = np.pad(found, [(0, 0)] * 3 + [(1, 0)])
    place = np.searchsorted(payloads, bits)
    updates = whole.updates.transpose("setting", "run", "evaluation").values.astype(int)
    seconds = np.take_along_axis(padded[place], updates[:, None], axis=-1)  # [setting, bandwidth..]
    accuracy = np.nan_to_num(whole.test_accuracy.transpose("setting", "run", "evaluation").values)
    gradients = whole.gradients.transpose("setting", "run", "evaluation").values
    reached = time_to_target(
        seconds,
        np.broadcast_to(gradients[:, None], seconds.shape),
        np.broadcast_to(accuracy[:, None], seconds.shape),
        config.target,
        window=config.window,
    )
    rates = bandwidths(config, float(bits[0]))
    sent = whole.target_updates * config.workers * whole.bits / 8
    dims = ("setting", "bandwidth", "run")
    return whole.assign(
        seconds=((*dims, "evaluation"), seconds, {"units": "s"}),
        target_seconds=(dims, reached, {"units": "s", "note": "infinite: not reached"}),
        target_bytes=sent.assign_attrs(units="B", note="of gradients, all workers together"),
    ).assign_coords(
        bandwidth=("bandwidth", rates, {"units": "bit s-1"}),
        ratio=("bandwidth", bits[0] / rates / (config.mean + config.shift)),
    )


def study(config: Config) -> xr.Dataset:
    """Run the whole study; parts that an earlier run finished are read.

    Args:
        config: settled.

    Returns:
        Raw arrays with dimensions setting, bandwidth, run, evaluation, candidate.
    """
    import jax
    from tqdm import tqdm

    from dtjax.analysis.dataset import join
    from dtjax.experiment import study as studies
    from dtjax.training.many_runs import train_runs
    from studies.compression_runs import optimizer

    parts = studies.output_folder(config.out / "parts")
    task = learning_task(config)
    params = jax.eval_shape(task.init, task.data, jax.random.key(0))["model"]
    train = partial(
        train_runs,
        task=task,
        optimizer=optimizer,
        evaluate_every=config.evaluate_every,
        block=config.block,
    )
    free: dict[str, Any] = {"out": Path(), "figure": True, "compressors": (), "memories": ()}
    free |= {"ratios": (), "pull": True, "encode": 0.0, "mean": 0.0, "shift": 0.0}
    kept = dataclasses.replace(config, **free)  # what a training does not depend on is left out
    pairs, lanes = settings(config), config.tuning_runs * len(config.rates) + config.runs
    one = lanes * config.updates * config.workers
    row = []
    with tqdm(unit="gradient", unit_scale=True, dynamic_ncols=True, total=one * len(pairs)) as bar:
        for place, (text, memory) in enumerate(pairs):
            make = lambda t=text, m=memory: trained(config, t, m, train, params, bar)  # noqa: E731
            row.append(studies.part(parts, [kept, text, memory], make))
            bar.n = max(bar.n, one * (place + 1))
            bar.refresh()
        bar.set_postfix_str("seconds")
        whole = join([row], "only", "setting").isel(only=0, drop=True)
        texts, memories = zip(*pairs, strict=True)
        whole = whole.assign_coords(
            setting=[_name(*pair) for pair in pairs],
            compressor=("setting", list(texts)),
            memory=("setting", list(memories)),
            run=range(config.runs),
        )
        whole = timed(config, whole, parts)
    return whole.assign_attrs(studies.provenance(config) | {"study": "compression"})


def _name(text: str, memory: str) -> str:
    return text if memory == "none" else f"{text} + {memory}"


def main(config: Config) -> None:
    """Run the study, print its tables, write its file and draw its figure."""
    from dtjax.experiment import study as studies

    studies.prepare()
    from studies.compression_report import judged, tables

    config = settle(config)
    out = studies.output_folder(config.out)
    whole = judged(study(config))
    studies.write(whole, out / "compression.nc")
    print(tables(config, whole))
    print(f"\nwrote {out / 'compression.nc'}")
    if config.figure:
        script = Path(__file__).parents[1] / "figures" / "compression.py"
        studies.draw(script, str(out / "compression.nc"), "--out", str(out / "compression.png"))
        print(f"wrote {out / 'compression.png'}")


if __name__ == "__main__":
    try:
        main(tyro.cli(Config, description=__doc__))
    except (ValueError, RuntimeError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: what is done is kept, the same command goes on from there")
