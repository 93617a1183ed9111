"""Traces that the clock did not make: from logs, or with emulated staleness."""

from __future__ import annotations

import heapq
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from dtjax.clock.trace import Trace
from dtjax.core import checks


def allocate(version: np.ndarray, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Find places for the versions that a trace still reads, as few as there can be.

    A version is kept from the update that makes it to the last row that reads it; its place is
    then free for the version which that row makes.

    Args:
        version: i[T, K], the version that each gradient read, at most its row.
        valid: b[T, K], which entries are gradients.

    Returns:
        slot i[T, K] where each entry's version is kept, into i[T] where each row's new version
        goes, and the number of slots.

    Example:
        >>> slot, into, slots = allocate(np.array([[0], [0], [2]]), np.ones((3, 1), bool))
        >>> into.tolist(), slots
        ([1, 0, 0], 2)
    """
    rows = version.shape[0]
    last = np.full(rows + 1, -1)
    np.maximum.at(last, version[valid], np.nonzero(valid)[0])
    places = np.zeros(rows + 1, np.int32)
    free: list[int] = []
    ends: list[tuple[int, int]] = [(int(last[0]), 0)]
    count = 1
    for row in range(rows):
        while ends and ends[0][0] <= row:
            heapq.heappush(free, heapq.heappop(ends)[1])
        if free:
            place = heapq.heappop(free)
        else:
            place, count = count, count + 1
        places[row + 1] = place
        heapq.heappush(ends, (int(last[row + 1]), place))
    slot = np.where(valid, places[np.where(valid, version, 0)], 0).astype(np.int32)
    return slot, places[1:], count


def make_trace(
    *,
    dt: checks.Numbers,
    worker: checks.Numbers,
    version: checks.Numbers,
    examples: checks.Numbers = 1.0,
    step: checks.Numbers | None = None,
) -> Trace:
    """Make a trace of your own: from a real cluster's log, or with a staleness that you choose.

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
    if step is None:
        counted = np.zeros_like(who)
        seen: dict[int, int] = {}
        for place in zip(*np.nonzero(valid), strict=True):
            counted[place] = seen.get(int(who[place]), 0)
            seen[int(who[place])] = int(counted[place]) + 1
    else:
        counted = np.asarray(checks.integer(name, "step", np.asarray(step), low=0), np.int32)
        if counted.shape != who.shape:
            raise checks.fail(name, "step", f"must have shape {who.shape}", counted.shape)
    slot, into, slots = allocate(read, valid)
    nothing = jnp.zeros(who.shape, float)
    return Trace(
        dt=jnp.asarray(seconds, float),
        worker=jnp.asarray(who),
        step=jnp.asarray(counted),
        version=jnp.asarray(read),
        examples=jnp.asarray(sizes, float),
        arrival=nothing,
        compute=nothing,
        slot=jnp.asarray(slot),
        into=jnp.asarray(into),
        start=jnp.int32(0),
        transit=None,
        workers=int(who.max()) + 1,
        slots=slots,
    )


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
