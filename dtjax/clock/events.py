"""The columns of a trace, made of a log of gradients."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.core import checks

Names = Sequence[Any] | np.ndarray | jax.Array
"""Names or numbers of workers."""

_NAME = "from_events"


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


def count_steps(worker: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Count each worker's gradients in order of arrival, i[T, K]; 0 in padding."""
    counted = np.zeros_like(worker)
    seen: dict[int, int] = {}
    for place in zip(*np.nonzero(valid), strict=True):
        counted[place] = seen.get(int(worker[place]), 0)
        seen[int(worker[place])] = int(counted[place]) + 1
    return counted


def assemble(
    dt: np.ndarray,
    worker: np.ndarray,
    version: np.ndarray,
    examples: np.ndarray,
    step: np.ndarray | None,
    workers: int,
    arrival: np.ndarray | None = None,
    compute: np.ndarray | None = None,
) -> dict[str, Any]:
    """Return the fields of a trace that starts at version 0, from padded tables [T, K].

    Args:
        dt: f[T], seconds since the previous update.
        worker: i[T, K].
        version: i[T, K].
        examples: f[T, K], 0 in padding.
        step: i[T, K]; None: counted.
        workers: how many there are.
        arrival: f[T, K], seconds before the update; None: 0.
        compute: f[T, K], seconds; None: 0.
    """
    valid = examples > 0
    slot, into, slots = allocate(version, valid)
    nothing = np.zeros(worker.shape)
    return {
        "dt": jnp.asarray(dt, float),
        "worker": jnp.asarray(worker, jnp.int32),
        "step": jnp.asarray(count_steps(worker, valid) if step is None else step, jnp.int32),
        "version": jnp.asarray(version, jnp.int32),
        "examples": jnp.asarray(examples, float),
        "arrival": jnp.asarray(nothing if arrival is None else arrival, float),
        "compute": jnp.asarray(nothing if compute is None else compute, float),
        "slot": jnp.asarray(slot),
        "into": jnp.asarray(into),
        "start": jnp.int32(0),
        "transit": None,
        "workers": workers,
        "slots": slots,
    }


class Log(NamedTuple):
    """A log of N gradients, as `Trace.from_events` gets it."""

    time: checks.Numbers
    worker: Names
    version: checks.Numbers
    update: checks.Numbers | None
    examples: checks.Numbers
    step: checks.Numbers | None
    arrival: checks.Numbers | None
    compute: checks.Numbers | None


def fields_of(log: Log, begin: float, workers: Names | None) -> dict[str, Any]:
    """Return the fields of the trace of a log: see `Trace.from_events`.

    Args:
        log: one entry a gradient.
        begin: second at which the training began.
        workers: names of all the workers; None: those of the log.
    """
    count = len(log.worker)
    if not count:
        raise checks.fail(_NAME, "worker", "must have a name for each gradient, one or more", [])
    time = _column("time", log.time, count)
    came = time if log.arrival is None else _column("arrival", log.arrival, count)
    who, names = _numbered(log.worker, workers)
    read = _column("version", log.version, count, whole=True)
    given = None if log.update is None else _column("update", log.update, count, whole=True)
    # Stable: what came at one time stays in the order of the log.
    order = np.lexsort((came,) if given is None else (came, given))
    update = np.arange(count)[np.argsort(order)] if given is None else given
    _check_order(time, came, read, update, order, log.worker, begin)

    place = np.arange(count) - np.searchsorted(update[order], update[order])
    at = update[order], place
    rows, width = int(update.max()) + 1, int(place.max()) + 1

    def table(values: np.ndarray) -> np.ndarray:
        padded = np.zeros((rows, width), values.dtype)
        padded[at] = values[order]
        return padded

    made = np.full(rows, -np.inf)
    np.maximum.at(made, update, time)
    sizes = _column("examples", np.broadcast_to(np.asarray(log.examples), (count,)), count)
    if not (sizes > 0).all():
        raise _wrong("examples", "must be positive", sizes, int(np.argmin(sizes > 0)))
    step = None if log.step is None else table(_column("step", log.step, count, whole=True))
    compute = None if log.compute is None else table(_column("compute", log.compute, count))
    return assemble(
        dt=np.diff(made, prepend=begin),
        worker=table(who),
        version=table(read),
        examples=table(sizes),
        step=step,
        workers=names,
        arrival=table(made[update] - came),
        compute=compute,
    )


def _wrong(argument: str, rule: str, values: Any, row: int) -> ValueError:
    value = values[row]
    told = value.item() if isinstance(value, np.generic) else value
    return checks.fail(_NAME, argument, f"{rule} in row {row}", told)


def _column(argument: str, values: Any, count: int, *, whole: bool = False) -> np.ndarray:
    """Check one number a gradient: finite, binary64; or whole, and not negative."""
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise checks.fail(_NAME, argument, "must be numeric", values) from None
    if numbers.shape != (count,):
        raise checks.fail(_NAME, argument, f"must have shape ({count},)", numbers.shape)
    good = np.isfinite(numbers)
    rule = "must be finite"
    if whole or argument == "compute":
        good, rule = good & (numbers >= 0), "must be non-negative and finite"
    if whole:
        good, rule = good & (numbers == np.floor(numbers)), "must be an integer 0 or more"
    if not good.all():
        raise _wrong(argument, rule, np.asarray(values), int(np.argmin(good)))
    return numbers.astype(np.int64) if whole else numbers


def _names(names: Any) -> list[Any]:
    """Return plain names: NumPy's 3 is Python's, and an array's row no list."""
    if isinstance(names, (np.ndarray, jax.Array)):
        return np.asarray(names).tolist()
    return [name.item() if isinstance(name, np.generic) else name for name in names]


def _numbered(worker: Names, workers: Names | None) -> tuple[np.ndarray, int]:
    """Number the workers by the place of their names, and count them."""
    named = _names(worker)
    if workers is not None:
        names = _names(workers)
    else:
        try:
            names = sorted(set(named))
        except TypeError as error:
            rule = f"must be of one kind that can be sorted, or listed in `workers` ({error})"
            raise checks.fail(_NAME, "worker", rule, named[:3]) from error
    number = {name: place for place, name in enumerate(names)}
    if len(number) < len(names):
        raise checks.fail(_NAME, "workers", "must name each worker once", names)
    for row, name in enumerate(named):
        if name not in number:
            raise _wrong("worker", "must be one of `workers`", named, row)
    return np.array([number[name] for name in named]), len(names)


def _check_order(
    time: np.ndarray,
    came: np.ndarray,
    read: np.ndarray,
    update: np.ndarray,
    order: np.ndarray,
    worker: Names,
    begin: float,
) -> None:
    """Check that updates are numbered without gaps, follow each other and read what was there."""
    present = np.bincount(update)
    if not present.all():
        gap = int(np.argmin(present))
        rule = f"must number the updates 0..T-1: none is {gap}"
        raise _wrong("update", rule, update, int(np.argmax(update > gap)))
    if (read > update).any():
        row = int(order[np.argmax((read > update)[order])])
        rule = f"must be at most {update[row]}, the updates before that of worker {worker[row]!r},"
        raise _wrong("version", rule, read, row)
    if (came > time).any():
        rule = "must not be after the update's time"
        raise _wrong("arrival", rule, came, int(np.argmax(came > time)))
    made = np.full(len(present), -np.inf)
    np.maximum.at(made, update, time)
    falls = np.diff(made, prepend=begin) < 0
    if falls.any():
        late = int(np.argmax(falls))
        before = float(made[late - 1]) if late else begin
        rule = f"must not be before {before}, the update before or `begin`,"
        raise _wrong("time", rule, time, int(np.flatnonzero(update == late)[0]))
