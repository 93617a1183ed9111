"""Places for old versions: as few as can be, and none is overwritten while it is read.

A version is alive from the update that makes it to the last row that reads it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dtjax
from dtjax.clock.events import allocate
from dtjax.clock.from_events import full_history, make_trace
from dtjax.policies.rule import UNBOUNDED, Rule


def assert_kept(
    version: np.ndarray, valid: np.ndarray, slot: np.ndarray, into: np.ndarray, slots: int
) -> None:
    """Play the trainer's reads and writes: every read must find the version that it wants."""
    held = np.full(slots, -1)
    held[0] = 0  # `begin` puts version 0 everywhere; here only where a read may count on it
    for t in range(len(version)):
        assert (held[slot[t][valid[t]]] == version[t][valid[t]]).all(), t
        if valid[t].any():
            assert 0 <= into[t] < slots
            held[into[t]] = t + 1


def most_alive(version: np.ndarray, valid: np.ndarray) -> int:
    """Count the versions that must be kept at once: those read later, and the newest."""
    rows = len(version)
    last = [
        max((t for t in range(rows) if v in version[t][valid[t]]), default=-1)
        for v in range(rows + 1)
    ]
    return max(sum(v == t or last[v] >= t for v in range(t + 1)) for t in range(rows + 1))


@st.composite
def tables(draw: Any, rows: int | None = None, width: int | None = None) -> Any:
    """Draw the versions that rows read, i[T, K], and which of them count; the last rows may not."""
    rows = draw(st.integers(1, 12)) if rows is None else rows
    width = draw(st.integers(1, 3)) if width is None else width
    late = st.lists(st.integers(0, 20), min_size=width, max_size=width)
    version = np.array([np.maximum(t - np.array(draw(late)), 0) for t in range(rows)], np.int32)
    some = st.lists(st.booleans(), min_size=width, max_size=width).filter(any)
    valid = np.array([draw(some) for _ in range(rows)])
    valid[draw(st.integers(0, rows)) :] = False
    return version, valid


@given(tables())
def test_allocate_keeps_what_is_read_in_as_few_slots_as_there_can_be(
    table: tuple[np.ndarray, np.ndarray],
) -> None:
    version, valid = table
    slot, into, slots = allocate(version, valid)
    assert slot.shape == version.shape and into.shape == (len(version),)
    assert_kept(version, valid, slot, into, slots)
    assert slots == most_alive(version, valid)
    assert (slot[~valid] == 0).all()


@given(tables(rows=9, width=2))  # one shape: one compile
def test_make_trace_holds_what_it_is_given(table: tuple[np.ndarray, np.ndarray]) -> None:
    version, valid = table
    rows = len(version)
    worker = (version + np.arange(version.shape[1])) % 3
    trace = make_trace(
        dt=np.ones(rows), worker=worker, version=version, examples=np.where(valid, 2.0, 0.0)
    )
    assert np.asarray(trace.valid).tolist() == valid.tolist()
    assert (np.asarray(trace.made) == valid.any(-1)).all()
    stale = np.arange(rows)[:, None] - version
    assert np.asarray(dtjax.staleness(trace)).tolist() == np.where(valid, stale, 0).tolist()
    assert dtjax.seconds(trace).tolist() == list(range(1, rows + 1))
    seen: dict[int, int] = {}
    for t, j in zip(*np.nonzero(valid), strict=True):
        mine = int(worker[t, j])
        assert trace.step[t, j] == seen.get(mine, 0)
        seen[mine] = seen.get(mine, 0) + 1
    whole = full_history(trace)
    assert_kept(version, valid, np.asarray(whole.slot), np.asarray(whole.into), rows + 1)


N, ROWS = 5, 40


@cache
def scheduled() -> Any:
    """Simulate random rules on random times, also with ties: lanes of one compile."""
    rng = np.random.default_rng(0)
    lanes = 96
    rules = Rule(
        k=rng.integers(1, N + 1, lanes).astype(np.int32),
        distinct=rng.random(lanes) < 0.5,
        cancel=rng.random(lanes) < 0.4,
        bound=np.where(rng.random(lanes) < 0.6, UNBOUNDED, rng.integers(0, 4, lanes)),
        max_staleness=np.where(rng.random(lanes) < 0.6, UNBOUNDED, rng.integers(0, 5, lanes)),
    )
    rules.k[:N] = np.arange(1, N + 1)
    rules.bound[np.asarray(rules.distinct)] = UNBOUNDED  # k distinct ones under a bound can stick
    speed = rng.choice([1, 1, 2, 8], (lanes, N, 1))
    tables = speed * rng.integers(1, 9, (lanes, N, 40 * ROWS)) / 4

    @jax.jit
    @jax.vmap
    def one(rule: Any, table: Any, key: Any) -> Any:
        cluster = dtjax.Cluster(n=N, delay=dtjax.delays.recorded(table))
        return dtjax.simulate(key, cluster, rule, updates=ROWS, width=N)

    keys = jax.random.split(jax.random.key(0), lanes)
    run = one(rules, tables.astype(np.float32), keys).check(complete=True)
    return jax.tree.map(np.asarray, run.trace)


def test_the_clock_keeps_what_is_read_in_n_slots() -> None:
    trace = scheduled()
    assert trace.slots == N
    for i in range(len(trace.dt)):
        mine = jax.tree.map(lambda leaf, i=i: leaf[i], trace)
        assert mine.made.all()
        assert_kept(mine.version, mine.valid, mine.slot, mine.into, N)
        _, _, fewest = allocate(mine.version, mine.valid)
        assert fewest <= N


def test_the_clock_and_make_trace_agree_on_a_schedule() -> None:
    i = 0
    mine = jax.tree.map(lambda leaf: leaf[i], scheduled())
    again = make_trace(
        dt=mine.dt,
        worker=mine.worker,
        version=mine.version,
        examples=mine.examples,
        step=mine.step,
    )
    for name in ("dt", "worker", "step", "version", "examples", "start"):
        assert (np.asarray(getattr(again, name)) == getattr(mine, name)).all(), name


def test_emulated_staleness_may_need_more_slots_than_workers() -> None:
    t = np.arange(30)[:, None]
    trace = make_trace(dt=np.ones(30), worker=0 * t, version=np.maximum(t - 9, 0))
    assert trace.workers == 1
    assert trace.slots == 10


BAD: list[tuple[dict[str, Any], str]] = [
    ({"dt": [1.0, -1.0]}, r"dt must be non-negative and finite, got -1\.0"),
    ({"dt": [1.0, np.nan]}, r"dt must be non-negative and finite, got nan"),
    ({"dt": [[1.0, 1.0]]}, r"dt must have 1 axes"),
    ({"dt": [1.0]}, r"worker must have shape \[1, K\], got \(2, 1\)"),
    ({"worker": [0, 1]}, r"worker must have shape \[2, K\], got \(2,\)"),
    ({"worker": [[0], [-1]]}, r"worker must be an integer 0 or more"),
    ({"worker": [[0.0], [1.0]]}, r"worker must be an integer 0 or more"),
    ({"worker": np.zeros((2, 0), int)}, r"worker must have shape \[2, K\]"),
    ({"version": [[0]]}, r"version must have shape \(2, 1\), got \(1, 1\)"),
    ({"version": [[0], [2]]}, r"version must be at most 1 in row 1, got .*2"),
    ({"version": [[0], [-1]]}, r"version must be an integer 0 or more"),
    ({"examples": -1.0}, r"examples must be non-negative and finite, got -1\.0"),
    ({"examples": [1.0, 1.0]}, r"examples must have shape \(\) or \(2, 1\), got \(2,\)"),
    ({"examples": [[0.0], [1.0]]}, r"examples must not be 0 in a whole row but at the end"),
    ({"step": [[0]]}, r"step must have shape \(2, 1\), got \(1, 1\)"),
    ({"step": [[0], [-2]]}, r"step must be an integer 0 or more"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD)
def test_bad_input(wrong: dict[str, Any], message: str) -> None:
    good = {"dt": [1.0, 1.0], "worker": [[0], [1]], "version": [[0], [1]]}
    make_trace(**good)
    with pytest.raises(ValueError, match=f"make_trace: {message}"):
        make_trace(**(good | wrong))


def test_a_version_that_padding_names_may_be_anything() -> None:
    trace = make_trace(
        dt=[1.0, 1.0], worker=[[0, 1], [1, 0]], version=[[0, 9], [0, 0]], examples=[[1, 0], [1, 1]]
    )
    assert np.asarray(dtjax.staleness(trace)).tolist() == [[0, 0], [1, 1]]
