"""Trainings of many runs: in blocks of a fixed width, on all devices, with progress."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from dtjax.clock.trace import Trace
from dtjax.core import checks, programs, random
from dtjax.core.protocols import Encoder
from dtjax.montecarlo.sharding import count_runs, join, local_mesh, put, real_runs, spread, waves
from dtjax.training.replay import Measured, advance, begin, fits, measure
from dtjax.training.result import Training
from dtjax.training.task import Task
from dtjax.training.update import Rows, TrainState, rows_of


def train_runs(
    keys: jax.Array,
    traces: Trace,
    task: Task,
    optimizer: Any,
    rates: Any = None,
    *,
    evaluate_every: int,
    encoder: Encoder | None = None,
    encoders: Any = None,
    downlink: Encoder | None = None,
    block: int = 32,
    mesh: Mesh | None = None,
    progress: Callable[[int], None] | None = None,
) -> Training:
    """Train many runs, each along its trace with its learning rate. A loop on the host.

    As `replay` for every run, in blocks of `block` lanes on all devices: the bits of a run depend
    on the block alone, not on the number of runs or devices. Compiled programs are kept: rates,
    numbers of encoders, lengths and the number of runs compile nothing anew, as long as `task`,
    `optimizer` and `encoder` are the same objects. Runs that are the same training (equal keys,
    rows, rates and encoders; the seconds may differ) are trained once.

    Evaluations are at equal numbers of gradients for every policy: number m is made after the first
    update that has used m x `evaluate_every` gradients or more, whatever the size of the updates.

    Args:
        keys: key[R], of initial parameters and mini-batches.
        traces: of R runs, as of `simulate` under `vmap`.
        task: what is learned.
        optimizer: as in `replay`: an optax transformation, or beside `rates` a function from the
            learning rate, f[], to one.
        rates: f[R], learning rates; None: `optimizer` is a transformation already.
        evaluate_every: gradients between two evaluations, 1 or more.
        encoder: what all workers do to their gradients, as in `replay`.
        encoders: an encoder for each run instead, a pytree whose leaves have a leading axis R.
        downlink: as in `replay`.
        block: lanes a device, 1 or more.
        mesh: of devices, in any shape; None: all the local ones. It need not divide the runs.
        progress: called after each chunk with the gradients that it used, all runs together.

    Returns:
        As `replay`, on the host, with a leading axis of runs.

    Raises:
        ValueError: as in `replay`, if the numbers of runs differ, or both encoders are given.

    Example:
        >>> import dtjax, optax
        >>> cluster = dtjax.Cluster(n=4, delay=dtjax.delays.exponential(1.0))
        >>> keys = jax.random.split(jax.random.key(0), 3)
        >>> clock = lambda key: dtjax.simulate(key, cluster, dtjax.policies.asp(), updates=100)
        >>> traces = jax.vmap(clock)(keys).trace
        >>> task = dtjax.task.quadratic([1.0, 0.3])
        >>> result = train_runs(keys, traces, task, optax.sgd, [0.1, 0.2, 0.4], evaluate_every=50)
        >>> result.measures["loss"].shape, result.seconds.shape
        ((3, 3), (3, 3))
    """
    name = "train_runs"
    every = checks.integer(name, "evaluate_every", evaluate_every, low=1)
    block = checks.integer(name, "block", block, low=1)
    if encoder is not None and encoders is not None:
        raise checks.fail(name, "encoders", "must not be given beside encoder", encoders)
    if rates is None:
        optimizer, rates = partial(_made, optimizer), np.zeros(np.shape(keys)[:1])
    elif not callable(optimizer):
        rule = "must be a function from a learning rate to an optax transformation, beside `rates`"
        raise checks.fail(name, "optimizer", rule, type(optimizer).__name__)
    rates = np.asarray(rates, float)
    count_runs(name, (keys, traces, rates, encoders))
    fits(name, task, traces)
    mesh = local_mesh() if mesh is None else mesh
    rows = jax.tree.map(np.asarray, rows_of(traces))
    first, kind = distinct(keys, rows, rates, encoders)
    keys, rows, rates, encoders = take((keys, rows, rates, encoders), first)
    shared, fixed = zip(_split(encoder), _split(downlink), strict=True)
    place, length = _chunks(rows, every), rows.examples.shape[1]
    copies = np.bincount(kind, minlength=len(first))
    parts = []
    sizes = traces.workers, traces.slots
    for index, real in waves(len(first), block, mesh.size):
        key, rate, own = put((keys, rates, encoders), index, mesh)
        form = (task, shared, key, rate, own, rows.examples[:1, :1])
        start, turn = _programs(form, optimizer, fixed, mesh, sizes)
        with jax.set_mesh(mesh):  # the user's may be another
            state, now = start(task, shared, key, rate, own)
        measured, losses = [now], []
        for chunk in range(place.shape[1]):
            if (place[index, chunk:] == length).all():
                break
            mine = _rows_at(rows, index, place[index, chunk])
            everyone = put(mine, np.arange(len(index)), mesh)
            with jax.set_mesh(mesh):
                state, (loss, now) = turn(task, shared, state, key, rate, own, everyone)
            measured.append(now)
            losses.append(loss)
            if progress is not None:
                jax.block_until_ready(now)
                used = (mine.examples[:real] > 0).sum((1, 2))
                progress(int(used @ copies[index[:real]]))
        parts.append(real_runs(_wave(state, measured, losses, place[index], length), real))
    found: dict[str, Any] = take(join(parts), kind) | {"dt": np.asarray(traces.dt)}
    return Training(**found)


def _made(optimizer: Any, rate: Any) -> Any:
    """Return a transformation that needs no rate."""
    del rate
    return optimizer


def _start(
    task: Task,
    shared: Any,
    key: Any,
    rate: Any,
    own: Any,
    *,
    optimizer: Any,
    fixed: Any,
    workers: int,
    slots: int,
) -> Any:
    """Start a run, and measure version 0."""
    coders = _encoders(shared, fixed, own)
    state = begin(key, task, optimizer(rate), workers, slots, *coders)
    return state, measure(task, state)


def _turn(
    task: Task,
    shared: Any,
    state: TrainState,
    key: Any,
    rate: Any,
    own: Any,
    rows: Rows,
    *,
    optimizer: Any,
    fixed: Any,
) -> Any:
    """Make the updates of some rows, and measure."""
    return advance(key, state, rows, task, optimizer(rate), *_encoders(shared, fixed, own))


def _programs(args: Any, optimizer: Any, fixed: Any, mesh: Mesh, sizes: tuple[int, int]) -> Any:
    """Compile the start of a run and the updates of some rows, for waves of runs like `args`."""
    common = programs.identity((optimizer, *fixed)), mesh, sizes, programs.signature(args)
    own: dict[str, Any] = {"optimizer": optimizer, "fixed": fixed}
    start = partial(_start, **own, workers=sizes[0], slots=sizes[1])
    return (
        programs.compiled((_start, *common), lambda: spread(start, shared=2, mesh=mesh)),
        programs.compiled(
            (_turn, *common), lambda: spread(partial(_turn, **own), shared=2, donate=2, mesh=mesh)
        ),
    )


def _split(encoder: Any) -> tuple[Any, Any]:
    """Return (encoder whose numbers are traced, encoder without any that can): one is None."""
    return (encoder, None) if programs.is_arrays(encoder) else (None, encoder)


def _encoders(shared: Any, fixed: Any, own: Any) -> tuple[Any, Any]:
    """Return the encoder and the downlink of a run."""
    encoder, downlink = (a if b is None else b for a, b in zip(shared, fixed, strict=True))
    return encoder if own is None else own, downlink


def take(tree: Any, index: np.ndarray) -> Any:
    """Take some runs of a batch; what is a key stays one, the rest is on the host."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return leaf[index]
        return np.asarray(leaf)[index]

    return jax.tree.map(one, tree)


def distinct(keys: jax.Array, *trees: Any) -> tuple[np.ndarray, np.ndarray]:
    """Find which runs differ: (the first run of each kind, which of them each run is).

    Args:
        keys: key[R].
        trees: what else a run depends on, leaves with a leading axis R.

    Example:
        >>> keys = jax.random.split(jax.random.key(0), 2)
        >>> first, place = distinct(keys[np.array([0, 1, 0])], np.array([0.1, 0.1, 0.1]))
        >>> first.tolist(), place.tolist()
        ([0, 1], [0, 1, 0])
    """
    data = jax.random.key_data(random.typed(keys))
    leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves((data, trees))]
    seen: dict[bytes, int] = {}
    first, place = [], []
    for run in range(len(leaves[0])):
        text = hashlib.blake2b(digest_size=16)
        for leaf in leaves:
            text.update(leaf[run].tobytes())
        name = text.digest()
        if name not in seen:
            seen[name] = len(first)
            first.append(run)
        place.append(seen[name])
    return np.array(first), np.array(place)


def _chunks(rows: Rows, every: int) -> np.ndarray:
    """Find the rows between two evaluations, i[R, C, B]: places in `rows`, or one behind the last.

    Chunk m ends with the first row by which m x `every` gradients are used.
    """
    valid = rows.examples > 0
    total, length, width = valid.shape
    chunks = -(-length * width // every)
    used = np.cumsum(valid.sum(-1), axis=-1)
    made = valid.any(-1).sum(-1)
    last = np.stack([np.searchsorted(one, every * np.arange(1, chunks + 1)) + 1 for one in used])
    ends = np.minimum(last, made[:, None])
    starts = np.pad(ends, [(0, 0), (1, 0)])[:, :-1]
    size = max(-(-every // width), int((ends - starts).max(initial=1)))
    place = starts[..., None] + np.arange(size)
    return np.where(place < ends[..., None], place, length)


def _rows_at(rows: Rows, runs: np.ndarray, place: np.ndarray) -> Rows:
    """Take rows of some runs, zeros where the place is behind the last row."""
    there = place < rows.examples.shape[1]
    inside = np.where(there, place, 0)

    def one(leaf: np.ndarray) -> np.ndarray:
        found = leaf[runs[:, None], inside]
        return np.where(there.reshape(*there.shape, *[1] * (found.ndim - 2)), found, 0)

    return jax.tree.map(lambda leaf: one(leaf).astype(leaf.dtype), rows)


def _wave(
    state: TrainState, measured: list[Measured], losses: list[Any], place: np.ndarray, length: int
) -> dict[str, Any]:
    """Put the chunks of a wave together; chunks in which no run had an update repeat the last."""
    measured = measured + [measured[-1]] * (place.shape[1] + 1 - len(measured))
    stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(x) for x in leaves], 1), *measured)
    runs = np.arange(len(place))[:, None]
    loss = np.full((len(place), length + 1), np.nan, jnp.zeros((), float).dtype)
    for chunk, one in enumerate(losses):
        loss[runs, place[:, chunk]] = np.asarray(one)
    return {
        "loss": loss[:, :length],
        "measures": stacked.measures,
        "updates": stacked.updates,
        "gradients": stacked.gradients,
        "diverged": state.diverged,
        "params": state.params,
    }
