"""The trace: who contributed what to each update, the data between clock and trainer.

Sizes: `n` workers, `K` widest update (static), `T` updates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.clock.events import Log, Names, fields_of
from dtjax.core import checks
from dtjax.core.pytree import pytree


class Transit(NamedTuple):
    """How gradients came to the server, seconds, f[T, K] each; 0 in padding.

    A cycle is: pull, compute (`Trace.compute`), its own link if it has one, `ready`; then it
    queues and moves until `Trace.arrival`, and the server is done with it at `effect`.
    """

    ready: jax.Array  # before the update: when it was put in the ingresses' queues
    effect: jax.Array  # before the update: when the server had folded it
    moving: jax.Array  # for how long at least one of its shards was on its way in between
    pull: jax.Array | None  # how long the pull took; None: pulls are free
    private: jax.Array | None  # how long the worker's own link took; None: there is none


@pytree
@dataclass(frozen=True)
class Trace:
    """Who contributed what to each update: the data between clock and trainer.

    Entries with `examples` 0 are padding; a row of padding is an update that was not made.
    """

    dt: jax.Array  # f[T] seconds since the previous update
    worker: jax.Array  # i[T, K] in order of arrival
    step: jax.Array  # i[T, K] the worker's own counter: (worker, step) names the computation
    version: jax.Array  # i[T, K] the version read
    examples: jax.Array  # f[T, K] size of the mini-batch, 0 = padding
    arrival: jax.Array  # f[T, K] seconds before the update
    compute: jax.Array  # f[T, K] seconds that the computation took
    slot: jax.Array  # i[T, K] where the version read is kept
    into: jax.Array  # i[T] where the version that this update makes is kept
    start: jax.Array  # i[] version before the first row
    transit: Transit | None  # how each gradient came to the server; None: without a network
    workers: int = field(metadata={"static": True})  # n
    slots: int = field(metadata={"static": True})  # how many versions are kept at once

    @staticmethod
    def from_events(
        time: checks.Numbers,
        worker: Names,
        version: checks.Numbers,
        *,
        update: checks.Numbers | None = None,
        examples: checks.Numbers = 1.0,
        step: checks.Numbers | None = None,
        arrival: checks.Numbers | None = None,
        compute: checks.Numbers | None = None,
        begin: float = 0.0,
        workers: Names | None = None,
    ) -> Trace:
        """Make a trace of a cluster's log, one entry a gradient that was used, in any order.

        An update is made when its last gradient has come, at the largest `time` of its gradients.
        Worker i is the i-th of `workers`, or else of the sorted names, `sorted(set(worker))`.

        Args:
            time: f[N], the second at which the gradient reached the server; or, if `arrival` is
                given, at which it was applied.
            worker: [N], who sent it: names or numbers of any kind that can be sorted.
            version: i[N], the version read: how many updates had been made.
            update: i[N], the update that used it, 0..T-1; None: each gradient is an update, in
                order of time.
            examples: f[] or f[N], sizes of the mini-batches, positive.
            step: i[N], the worker's own counter; None: counted in order of arrival.
            arrival: f[N], the second at which it reached the server, at most `time`; None: `time`.
            compute: f[N], how many seconds its computation took; None: not known, 0.
            begin: the second at which training began, before the first update.
            workers: the names of all the workers, also of those that sent nothing, in the order in
                which they are numbered.

        Raises:
            ValueError: if shapes differ, a number is out of its range, a name is not in `workers`,
                an update number is missing, updates go back in time, or a gradient reads a version
                that its update has not yet. The error names the row of the log.

        Example:
            >>> trace = Trace.from_events(
            ...     time=[1.5, 2.0, 2.5], worker=["red", "blue", "red"], version=[0, 0, 1]
            ... )
            >>> trace.worker[:, 0].tolist(), staleness(trace)[:, 0].tolist()
            ([1, 0, 1], [0, 1, 1])
        """
        log = Log(time, worker, version, update, examples, step, arrival, compute)
        return Trace(**fields_of(log, begin, workers))

    @property
    def valid(self) -> Any:
        """b[T, K]: which entries are gradients and not padding."""
        return self.examples > 0

    @property
    def made(self) -> Any:
        """b[T]: which rows are updates that were made."""
        return (self.examples > 0).any(-1)


def staleness(trace: Trace) -> jax.Array:
    """Count the updates applied between reading and using each gradient.

    staleness[t, j] = start + t - version[t, j]; 0 in padding.

    Args:
        trace: one run, or a batch of runs with leading axes.

    Returns:
        i[..., T, K], in updates.

    Example:
        >>> import jax, dtjax
        >>> cluster = dtjax.Cluster(n=3, delay=dtjax.delays.deterministic([2.0, 5.0, 7.0]))
        >>> run = dtjax.simulate(jax.random.key(0), cluster, dtjax.policies.asp(), updates=5)
        >>> dtjax.staleness(run.trace)[:, 0].tolist()
        [0, 0, 2, 1, 4]
    """
    # On the host with numpy: a study looks at many shapes, and each would be compiled.
    xp: Any = np if isinstance(trace.version, np.ndarray) else jnp
    start = xp.asarray(trace.start)
    row = xp.arange(trace.version.shape[-2], dtype=trace.version.dtype)
    now = start[..., None, None] + row.reshape(*[1] * start.ndim, -1, 1)
    return xp.where(trace.examples > 0, now - trace.version, 0)


def seconds(trace: Trace) -> np.ndarray:
    """Sum the time steps in binary64 on the host: the second of each update.

    Args:
        trace: one run, or a batch of runs with leading axes; concrete.

    Returns:
        float64 [..., T] since the trace began; rows that were not made repeat the last time.
    """
    return np.cumsum(np.asarray(trace.dt, dtype=np.float64), axis=-1)


def trim(traces: Trace, rows: int | None = None, width: int | None = None) -> Trace:
    """Cut padding off a batch of traces: rows and entries that no run uses.

    Args:
        traces: of R runs.
        rows: how many rows to keep; None: as many as the longest run made.
        width: how many entries a row to keep; None: as many as the widest row has.

    Returns:
        Traces on the host.
    """
    used = np.asarray(traces.examples) > 0
    rows = max(1, int(used.any(-1).sum(-1).max())) if rows is None else rows
    width = max(1, int(used.sum(-1).max())) if width is None else width

    def cut(leaf: Any) -> np.ndarray:
        host = np.asarray(leaf)
        if host.ndim == 3:
            return host[:, :rows, :width]
        return host[:, :rows] if host.ndim == 2 else host

    return jax.tree.map(cut, traces)
