"""Traces that the clock did not make: from logs, or with emulated staleness."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from dtjax.clock.events import assemble
from dtjax.clock.trace import Trace
from dtjax.core import checks


def make_trace(
    *,
    dt: checks.Numbers,
    worker: checks.Numbers,
    version: checks.Numbers,
    examples: checks.Numbers = 1.0,
    step: checks.Numbers | None = None,
) -> Trace:
    """Make a trace of padded tables, with a staleness that you choose.

    `Trace.from_events` makes one of a log with one entry a gradient.

    Args:
        dt: f[T], seconds since the previous update.
        worker: i[T, K], who delivered, in order of arrival.
        version: i[T, K], the version each had read: 0 at first, t after t updates.
        examples: f[] or f[T, K], sizes of the mini-batches; 0 marks padding.
        step: i[T, K], the worker's own counter; None: counted in order of arrival.

    Returns:
        A trace to `replay`. The arrivals within a row are not known: they are put at its update.

    Raises:
        ValueError: if shapes differ, a number is negative, a gradient reads a version that its row
            has not yet, or a row holds no gradient before one that does.

    Example:
        >>> trace = make_trace(dt=[1.0, 1.0], worker=[[0], [1]], version=[[0], [0]])
        >>> trace.slots, trace.slot[:, 0].tolist(), trace.into.tolist()
        (2, [0, 0], [1, 0])
    """
    name = "make_trace"
    seconds = np.asarray(checks.real(name, "dt", dt, checks.NON_NEGATIVE, ndim=1), np.float64)
    who = np.asarray(checks.integer(name, "worker", np.asarray(worker), low=0), np.int32)
    read = np.asarray(checks.integer(name, "version", np.asarray(version), low=0), np.int32)
    if who.ndim != 2 or len(who) != len(seconds) or not who.size:
        raise checks.fail(name, "worker", f"must have shape [{len(seconds)}, K]", who.shape)
    if read.shape != who.shape:
        raise checks.fail(name, "version", f"must have shape {who.shape}", read.shape)
    sizes = np.asarray(checks.real(name, "examples", examples, checks.NON_NEGATIVE))
    if sizes.ndim and sizes.shape != who.shape:
        raise checks.fail(name, "examples", f"must have shape () or {who.shape}", sizes.shape)
    sizes = np.broadcast_to(sizes, who.shape)
    valid = np.asarray(sizes > 0)
    rows = np.arange(len(who))[:, None]
    early = np.argwhere(valid & (read > rows))
    if len(early):
        row = int(early[0, 0])
        raise checks.fail(name, "version", f"must be at most {row} in row {row}", read[row].max())
    made = np.asarray(valid.any(axis=1))
    if not made[: int(made.sum())].all():
        raise checks.fail(name, "examples", "must not be 0 in a whole row but at the end", 0)
    counted = None
    if step is not None:
        counted = np.asarray(checks.integer(name, "step", np.asarray(step), low=0), np.int32)
        if counted.shape != who.shape:
            raise checks.fail(name, "step", f"must have shape {who.shape}", counted.shape)
    return Trace(**assemble(seconds, who, read, sizes, counted, int(who.max()) + 1))


def full_history(trace: Trace) -> Trace:
    """Keep every version in a slot of its own: the same training with T + 1 models in memory.

    Args:
        trace: one run.

    Example:
        >>> trace = make_trace(dt=[1.0, 1.0], worker=[[0], [1]], version=[[0], [0]])
        >>> full_history(trace).into.tolist()
        [1, 2]
    """
    rows = trace.dt.shape[0]
    into = jnp.arange(1, rows + 1, dtype=trace.into.dtype)
    return replace(trace, slot=trace.version - trace.start, into=into, slots=rows + 1)
