"""Clocks and trainings of studies/regimes.py: many lanes, few compiles, nothing trained twice.

What is learned depends on who contributed what to each update and on nothing else of the clock. So
each cell has a clock of its own, and lanes whose rows are the same are trained once. Under BSP and
k-BSP all rows of a run are the same whatever links, encoders and server cost, as long as workers
are alike: all begin together, so that the order of their arrivals is that of their compute times.
Under ASP the seconds decide who is stale.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from dtjax.core.pytree import pytree

COMPRESSORS = ("none", "sparse", "quantised")
SIDE_BY_SIDE = 64
"""Clocks on a device."""


class Cell(NamedTuple):
    """One setting of links and server."""

    compressor: int  # of COMPRESSORS
    bandwidth: float  # bits a second
    encode_rate: float  # bits of the dense gradient a second; infinite without a compressor
    apply: float  # seconds


class Trained(NamedTuple):
    """What came of some lanes, evaluation by evaluation."""

    seconds: np.ndarray  # f[L, E]
    gradients: np.ndarray  # i[L, E]
    updates: np.ndarray  # i[L, E]
    measures: dict[str, np.ndarray]  # f[L, E]


@pytree
@dataclass(frozen=True)
class Choice:
    """An encoder that is one of several, by a number: one compile for all of them."""

    which: Any  # i[]
    encoders: tuple[Any, ...]

    def memory(self, params: Any) -> tuple[Any, ...]:
        """Return the memories of all."""
        return tuple(encoder.memory(params) for encoder in self.encoders)

    def encode(self, memory: tuple[Any, ...], gradient: Any, extras: Any) -> tuple[Any, Any]:
        """Encode by all, and send what the chosen one says."""
        both = zip(self.encoders, memory, strict=True)
        results = [encoder.encode(mine, gradient, extras) for encoder, mine in both]
        messages = [message for _, message in results]
        sent = jax.tree.map(lambda *each: jax.lax.select_n(self.which, *each), *messages)
        return tuple(kept for kept, _ in results), sent


def encoders(config: Any) -> tuple[Any, ...]:
    """Return the encoders, by the order of COMPRESSORS."""
    from dtjax import compressors

    sparse = compressors.error_feedback(compressors.top_k(config.ratio, "packed"))
    quantised = compressors.int8(stochastic=False)
    if config.levels is not None:
        quantised = compressors.qsgd(config.levels)
    return compressors.identity(), compressors.whole(sparse), quantised


def gradients_an_update(config: Any, policy: str, n: int) -> int:
    """Return how many gradients an update of a policy has."""
    if policy == "asp":
        return 1
    return n if policy == "bsp" else max(1, round(config.kept * n))


class Lab:
    """Compiled clocks and trainings, shared by all parts of the study."""

    def __init__(self, config: Any, advance: Any) -> None:
        """Prepare; `advance(more, done)` is told the gradients to be trained and those trained."""
        import optax

        from dtjax import data, models
        from dtjax.montecarlo.sharding import spread
        from dtjax.training.many_runs import train_runs
        from dtjax.training.task import classification

        self.config, self.advance = config, advance
        model = models.mlp(config.hidden, 10)
        task = classification(model, data.digits(), batch=config.batch)
        task = dataclasses.replace(task, evaluate=partial(_accuracies, model))
        params = jax.eval_shape(task.init, task.data, jax.random.key(0))
        self.encoders = encoders(config)
        self.bits = [float(encoder.bits(params)) for encoder in self.encoders]
        self.train_all = partial(
            train_runs,
            task=task,
            optimizer=optax.sgd,
            evaluate_every=config.evaluate_every,
            block=config.block,
        )
        self._clocks = {
            sync: spread(lambda *lane, sync=sync: self._clock(sync, *lane))
            for sync in (True, False)
        }
        most = 2 * config.tuning_runs
        root, count = jax.random.key(config.seed), most + config.runs
        split = [jax.random.split(jax.random.fold_in(root, use), count) for use in range(2)]
        self.schedule_keys, self.training_keys = split
        self.tuning, self.reported = np.arange(most), most + np.arange(config.runs)
        self.trained = self.asked = 0

    def _clock(
        self, sync: bool, key: Any, n: Any, k: Any, updates: Any, links: dict[str, Any]
    ) -> Any:
        """Simulate one run, absent workers beyond `n`."""
        import jax.numpy as jnp

        import dtjax
        from dtjax import delays, network, policies

        config = self.config
        most = max(config.workers)
        cluster = dtjax.Cluster(
            n=most,
            delay=delays.exponential(config.mean, shift=config.shift),
            examples=config.batch,
            present=jnp.arange(most) < n,
            network=network.star(**links),
        )
        policy = policies.k_bsp(k) if sync else policies.asp()
        width = most if sync else 1
        rows = max(
            config.gradients // gradients_an_update(config, policy, n)
            for n in config.workers
            for policy in (("bsp", "k-bsp") if sync else ("asp",))
        )
        run = dtjax.simulate(key, cluster, policy, updates=updates, rows=rows, width=width)
        trace = dataclasses.replace(run.trace, transit=None)
        return trace, run.accounts, run.status

    def clocks(self, policy: str, n: int, cells: list[Cell], runs: np.ndarray) -> tuple[Any, Any]:
        """Simulate every cell with every run: (trace, accounts), lanes in this order."""
        from dtjax.clock.status import DONE
        from dtjax.clock.trace import trim
        from dtjax.montecarlo.sharding import in_waves

        config, lanes = self.config, len(cells) * len(runs)
        k = gradients_an_update(config, policy, n)
        dense = self.bits[0]
        table = {
            "payload": [self.bits[cell.compressor] for cell in cells],
            "bandwidth": [cell.bandwidth for cell in cells],
            "pull": [dense if config.pull else 0.0 for _ in cells],
            "encode": [dense / cell.encode_rate for cell in cells],
            "apply": [cell.apply for cell in cells],
        }
        links = {name: np.repeat(np.asarray(v, float), len(runs)) for name, v in table.items()}
        numbers = (np.full(lanes, x, np.int32) for x in (n, k, config.gradients // k))
        keys = self.schedule_keys[np.tile(runs, len(cells))]
        trace, accounts, status = in_waves(
            self._clocks[policy != "asp"],
            (),
            (keys, *numbers, links),
            lanes,
            SIDE_BY_SIDE,
            None,
            None,
        )
        if (status != DONE).any():
            raise RuntimeError(f"regimes: a clock of {policy} with {n} workers did not end")
        return trim(trace, width=1 if policy == "asp" else n), accounts

    def train(self, traces: Any, lanes: np.ndarray, runs: Any, which: Any, rates: Any) -> Trained:
        """Train along traces; what would be the same training is done once.

        Args:
            traces: a batch.
            lanes: i[L], of this batch.
            runs: i[L], whose keys.
            which: i[L], of COMPRESSORS.
            rates: f[L].
        """
        from dtjax.training.result import seconds_at
        from dtjax.training.update import rows_of

        columns = [np.asarray(x) for x in (runs, which, rates)]
        first, place = distinct(rows_of(traces), lanes, columns)
        self.asked, self.trained = self.asked + len(lanes), self.trained + len(first)
        mine = jax.tree.map(lambda leaf: np.asarray(leaf)[lanes[first]], traces)
        self.advance(int((mine.examples > 0).sum()), 0)
        own = jax.tree.map(
            lambda leaf: np.broadcast_to(leaf, (len(first), *np.shape(leaf))), self.encoders
        )
        choice = Choice(columns[1][first].astype(np.int32), own)
        result = self.train_all(
            self.training_keys[columns[0][first]],
            mine,
            rates=columns[2][first],
            progress=lambda done: self.advance(0, done),
            encoders=choice,
        )
        updates = np.asarray(result.updates)[place]
        every = jax.tree.map(lambda leaf: np.asarray(leaf)[lanes], traces)
        names = ("validation_accuracy", "test_accuracy")
        measures = {name: np.nan_to_num(result.measures[name][place], nan=0.0) for name in names}
        gradients = np.asarray(result.gradients)[place]
        return Trained(seconds_at(every.dt, updates), gradients, updates, measures)

    def reached(self, trained: Trained, against: str, measure: str) -> np.ndarray:
        """Return seconds, gradients or updates to the target, f[L]; infinite: not reached."""
        from dtjax.analysis.time_to_target import time_to_target

        return time_to_target(
            np.asarray(getattr(trained, against), np.float64),
            trained.gradients,
            trained.measures[measure],
            self.config.target,
            window=self.config.window,
        )

    def report(
        self, policy: str, n: int, cells: list[Cell], rates: list[float]
    ) -> dict[str, np.ndarray]:
        """Train every cell with its rate along the reported runs: arrays [cell, run, ...]."""
        from dtjax.clock.accounting import FATES
        from dtjax.clock.trace import staleness

        shape = (len(cells), len(self.reported))
        traces, accounts = self.clocks(policy, n, cells, self.reported)
        trained = self.train(
            traces,
            np.arange(shape[0] * shape[1]),
            np.tile(self.reported, len(cells)),
            np.repeat([cell.compressor for cell in cells], shape[1]),
            np.repeat(rates, shape[1]),
        )
        valid = np.asarray(traces.examples) > 0
        stale = (np.asarray(staleness(traces)) * valid).sum((1, 2)) / valid.sum((1, 2))
        found = {
            "target_seconds": self.reached(trained, "seconds", "test_accuracy"),
            "target_gradients": self.reached(trained, "gradients", "test_accuracy"),
            "target_updates": self.reached(trained, "updates", "test_accuracy"),
            "accuracy": trained.measures["test_accuracy"][:, -1],
            "seconds_an_update": np.asarray(accounts.elapsed / accounts.updates, float),
            "staleness": stale,
            "share": np.stack([np.asarray(accounts.share(fate)) for fate in FATES], axis=-1),
        }
        return {name: value.reshape(*shape, *value.shape[1:]) for name, value in found.items()}


def _accuracies(model: Any, arrays: Any, params: Any) -> dict[str, jax.Array]:
    """Measure no more than is reported: a third of the time would go into other measures."""
    import jax.numpy as jnp

    def accuracy(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean((jnp.argmax(model.apply(params, x), axis=-1) == y).astype(x.dtype))

    sets = arrays[0]
    return {
        "validation_accuracy": accuracy(sets.x_validation, sets.y_validation),
        "test_accuracy": accuracy(sets.x_test, sets.y_test),
    }


def distinct(rows: Any, lanes: np.ndarray, columns: list[np.ndarray]) -> tuple[Any, np.ndarray]:
    """Find which trainings differ: (the first lane of each, which of them each lane is).

    Args:
        rows: a batch, as the trainer reads them.
        lanes: i[L], of this batch.
        columns: what else a training depends on, [L] each.
    """
    leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(rows)]
    names: dict[int, bytes] = {}
    for lane in np.unique(lanes):
        text = hashlib.sha256()
        for leaf in leaves:
            text.update(leaf[lane].tobytes())
        names[int(lane)] = text.digest()
    seen: dict[Any, int] = {}
    first, place = [], []
    for index, lane in enumerate(lanes):
        key = (names[int(lane)], *(column[index].item() for column in columns))
        if key not in seen:
            seen[key] = len(first)
            first.append(index)
        place.append(seen[key])
    return np.array(first), np.array(place)
