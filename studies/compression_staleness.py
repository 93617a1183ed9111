"""Do staleness and sparsity add, multiply or mask each other?

One gradient an update, of workers in turn, each computed at the version so many updates ago:
staleness is emulated exactly, and is the same for every gradient. Each worker sends the largest
share of the entries of its gradient, with a memory of what it did not send and without one. The
learning rate is the best of each cell, by the validation loss of other seeds.

    python studies/compression_staleness.py --help
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import tyro

if TYPE_CHECKING:
    import xarray as xr

MEMORIES = ("feedback", "none")


@dataclass(frozen=True)
class Config:
    """Map the final loss over staleness and the share of entries that is sent."""

    out: Path = Path("results/compression_staleness")
    """Folder of the results; a run that was interrupted goes on from what is there."""
    memories: tuple[Literal["feedback", "none"], ...] = MEMORIES
    """What workers keep of what was not sent."""
    staleness: tuple[int, ...] = (0, 1, 2, 4, 8, 16)
    """Updates between reading a version and using its gradient; 0 is always among them."""
    shares: tuple[float, ...] = (1.0, 0.3, 0.1, 0.03, 0.01)
    """Shares of the entries that are sent; 1 is always among them."""
    workers: int = 8
    """Number of workers, each with a memory of its own."""
    updates: int = 640
    """Updates that everyone trains for, one gradient each."""
    dataset: Literal["digits", "mnist-subset"] = "digits"
    """What to learn."""
    hidden: tuple[int, ...] = (32,)
    """Widths of the network's hidden layers."""
    batch: int = 16
    """Examples in a mini-batch."""
    runs: int = 12
    """Runs to report, each with seeds of its own."""
    tuning_runs: int = 3
    """Runs to choose a learning rate by, with other seeds."""
    rates: tuple[float, ...] = (0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4)
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
    from dtjax.core import checks

    name = "compression_staleness"
    for field in ("memories", "staleness", "shares", "rates"):
        if not getattr(config, field):
            raise checks.fail(name, field, "must not be empty", getattr(config, field))
    for memory in config.memories:
        checks.choice(name, "memories", memory, MEMORIES)
    for tau in config.staleness:
        checks.integer(name, "staleness", tau, low=0, high=256)
    share: checks.Rule = ("must be above 0 and at most 1", lambda x: (x > 0) & (x <= 1))
    checks.real(name, "shares", config.shares, share, ndim=1)
    checks.real(name, "rates", config.rates, checks.POSITIVE, ndim=1)
    for field in ("workers", "runs", "tuning_runs", "batch", "block"):
        checks.integer(name, field, getattr(config, field), low=1)
    checks.integer(name, "updates", config.updates, low=2)
    checks.integer(name, "widenings", config.widenings, low=0)
    checks.integer(name, "seed", config.seed, low=0, high=2**31 - 1)
    own: dict[str, Any] = {}
    if config.smoke:
        most = {"updates": 96, "runs": 4, "tuning_runs": 2, "block": 4}
        own |= {field: min(getattr(config, field), most[field]) for field in most}
        own |= {"rates": config.rates[1:3] or config.rates, "widenings": 0}
        own |= {"staleness": (0, max(config.staleness)), "shares": (1.0, min(config.shares))}
    own["staleness"] = tuple(sorted({0, *own.get("staleness", config.staleness)}))
    own["shares"] = tuple(sorted({1.0, *own.get("shares", config.shares)}, reverse=True))
    own["rates"] = tuple(sorted(set(own.get("rates", config.rates))))
    own["memories"] = tuple(dict.fromkeys(config.memories))
    return dataclasses.replace(config, **own)


def trace_of(config: Config, tau: int) -> Any:
    """Return the trace in which every gradient was read `tau` updates ago, or at version 0."""
    import numpy as np

    import dtjax

    t = np.arange(config.updates)
    trace = dtjax.make_trace(
        dt=np.ones(len(t)),
        worker=(t % config.workers)[:, None],
        version=np.maximum(0, t - tau)[:, None],
        examples=config.batch,
    )
    # As many slots and workers for all, so that one program does for every staleness.
    return dataclasses.replace(trace, slots=max(config.staleness) + 1, workers=config.workers)


class Lane(NamedTuple):
    """One training."""

    share: float
    rate: float
    run: int


def row(config: Config, memory: str, tau: int, train_all: Any, bar: Any) -> xr.Dataset:
    """Tune and report all shares of one staleness and memory.

    Returns:
        Raw arrays with dimensions share, run, evaluation, candidate, tuning_run.
    """
    import jax
    import numpy as np
    import xarray as xr

    from dtjax import compressors
    from dtjax.analysis.dataset import join

    trace = trace_of(config, tau)
    keys = jax.random.split(jax.random.key(config.seed), config.tuning_runs + config.runs)
    encoder = compressors.error_feedback(compressors.top_k(1.0), decay=float(memory == "feedback"))

    def train(lanes: list[Lane]) -> Any:
        shares, rates, index = (np.array(x) for x in zip(*lanes, strict=True))
        many = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], len(index), 0), trace)
        decay = np.repeat(np.asarray(encoder.decay), len(index))
        kept = dataclasses.replace(encoder.compressor, ratio=shares.astype(decay.dtype))
        encoders = dataclasses.replace(encoder, compressor=kept, decay=decay)
        bar.set_postfix_str(f"{memory}, staleness {tau}, {len(index)} runs")
        return train_all(keys[index], many, rates=rates, progress=bar.update, encoders=encoders)

    choices = tuned(config, train)
    reported = config.tuning_runs + np.arange(config.runs)
    lanes = [
        Lane(share, choice.rate, int(run))
        for share, choice in zip(config.shares, choices, strict=True)
        for run in reported
    ]
    result = train(lanes)
    shape = (len(config.shares), config.runs)
    names = ("test_loss", "test_accuracy", "validation_loss", "validation_accuracy")
    each = ("share", "run", "evaluation")
    values: dict[str, Any] = {
        name: (each, result.measures[name].reshape(*shape, -1)) for name in names
    }
    values["updates"] = (each, result.updates.reshape(*shape, -1))
    values["diverged"] = (("share", "run"), result.diverged.reshape(shape))
    whole = xr.Dataset(values)
    tries = [
        xr.Dataset(
            {
                "rate": choice.rate,
                "rate_warning": choice.warning,
                "tried": ("candidate", choice.tried),
            }
        )
        for choice in choices
    ]
    return whole.merge(join([tries], "only", "share").isel(only=0, drop=True))


def tuned(config: Config, train: Any) -> list[Any]:
    """Choose the rate of every share by the final loss, training what all of them want together."""
    import numpy as np

    from dtjax.training.rate_search import RateSearch

    search = RateSearch(dict.fromkeys(config.shares, config.rates), widenings=config.widenings)
    while wanted := search.ask():
        result = train([Lane(*cell, run) for cell in wanted for run in range(config.tuning_runs)])
        loss = result.measures["validation_loss"][:, -1].reshape(len(wanted), -1)
        for cell, quality in zip(wanted, -np.nan_to_num(loss, nan=np.inf), strict=True):
            search.tell(*cell, np.full(quality.shape, np.inf), quality)
    choices = search.choices()
    return [choices[share] for share in config.shares]


def study(config: Config) -> xr.Dataset:
    """Run the whole study; parts that an earlier run finished are read.

    Args:
        config: settled.

    Returns:
        Raw arrays with dimensions memory, staleness, share, run, evaluation, candidate.
    """
    import optax
    from tqdm import tqdm

    from dtjax import data, models
    from dtjax.analysis.dataset import join
    from dtjax.experiment import study as studies
    from dtjax.training.many_runs import train_runs
    from dtjax.training.task import classification

    parts = studies.output_folder(config.out / "parts")
    sets = data.LOADERS[config.dataset]()
    task = classification(models.mlp(config.hidden, sets.classes), sets, batch=config.batch)
    every = max(1, config.updates // 8)
    train = partial(
        train_runs,
        task=task,
        optimizer=optax.sgd,
        evaluate_every=every,
        block=config.block,
    )
    kept = dataclasses.replace(config, out=Path(), figure=True, memories=(), staleness=())
    lanes = len(config.shares) * (config.tuning_runs * len(config.rates) + config.runs)
    one, done = lanes * config.updates, 0
    total = one * len(config.memories) * len(config.staleness)
    rows: list[list[Any]] = []
    with tqdm(
        unit="gradient", unit_scale=True, dynamic_ncols=True, total=total, leave=False
    ) as bar:
        for memory in config.memories:
            rows.append([])
            for tau in config.staleness:
                make = lambda m=memory, tau=tau: row(config, m, tau, train, bar)  # noqa: E731
                rows[-1].append(studies.part(parts, [kept, memory, tau], make))
                done += one
                bar.n = max(bar.n, done)
    whole = join(rows, "memory", "staleness").assign_coords(
        memory=list(config.memories),
        staleness=list(config.staleness),
        share=list(config.shares),
        run=range(config.runs),
    )
    return whole.assign_attrs(studies.provenance(config) | {"study": "compression_staleness"})


def main(config: Config) -> None:
    """Run the study, print its tables, write its file and draw its figure."""
    from dtjax.experiment import study as studies

    studies.prepare()
    from studies.compression_interaction import tables

    config = settle(config)
    out = studies.output_folder(config.out)
    whole = study(config)
    studies.write(whole, out / "compression_staleness.nc")
    print(tables(whole))
    print(f"\nwrote {out / 'compression_staleness.nc'}")
    if config.figure:
        script = Path(__file__).parents[1] / "figures" / "compression_staleness.py"
        picture = out / "compression_staleness.png"
        studies.draw(script, str(out / "compression_staleness.nc"), "--out", str(picture))
        print(f"wrote {picture}")


if __name__ == "__main__":
    try:
        main(tyro.cli(Config, description=__doc__))
    except (ValueError, RuntimeError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: what is done is kept, the same command goes on from there")
