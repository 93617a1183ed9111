"""Traces of logs: one entry a gradient, workers of any name."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dtjax
from dtjax.clock.trace import Trace

LOG = """time,worker,version,update,examples
1700000001.25,gpu-b,0,0,32
1700000001.50,gpu-a,0,0,16
1700000002.75,gpu-c,0,1,32
1700000003.00,gpu-a,1,2,16
1700000003.25,gpu-a,1,2,8
1700000003.25,gpu-b,0,2,32
"""
BEGIN = 1_700_000_000.0


def columns(text: str = LOG) -> Any:
    rows = list(csv.DictReader(io.StringIO(text)))
    names = {"worker": str, "version": int, "update": int}
    return {key: [names.get(key, float)(row[key]) for row in rows] for key in rows[0]}


def leaves(trace: Trace) -> dict[str, Any]:
    names = ("dt", "worker", "step", "version", "examples", "arrival", "compute", "slot", "into")
    return {name: np.asarray(getattr(trace, name)).tolist() for name in names}


def test_a_log_becomes_rows_of_updates() -> None:
    trace = Trace.from_events(**columns(), begin=BEGIN)
    assert leaves(trace) | {"slot": 0, "into": 0} == {
        "dt": [1.5, 1.25, 0.5],
        "worker": [[1, 0, 0], [2, 0, 0], [0, 0, 1]],  # gpu-a, gpu-b, gpu-c
        "step": [[0, 0, 0], [0, 0, 0], [1, 2, 1]],
        "version": [[0, 0, 0], [0, 0, 0], [1, 1, 0]],
        "examples": [[32, 16, 0], [32, 0, 0], [16, 8, 32]],
        "arrival": [[0.25, 0, 0], [0, 0, 0], [0.25, 0, 0]],
        "compute": [[0] * 3] * 3,
        "slot": 0,
        "into": 0,
    }
    assert (trace.workers, int(trace.start), trace.transit) == (3, 0, None)
    assert dtjax.staleness(trace).tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 2]]
    assert dtjax.seconds(trace).tolist() == [1.5, 2.75, 3.25]


def test_the_padded_tables_of_a_log_make_the_same_trace() -> None:
    trace = Trace.from_events(**columns(), begin=BEGIN)
    again = dtjax.make_trace(
        dt=trace.dt, worker=trace.worker, version=trace.version, examples=trace.examples
    )
    assert leaves(again) == leaves(replace(trace, arrival=trace.arrival * 0))
    assert (again.slots, again.workers) == (trace.slots, trace.workers)


def test_the_order_of_the_log_does_not_matter_but_among_equal_times() -> None:
    log = columns()
    whole = leaves(Trace.from_events(**log, begin=BEGIN))
    order = [3, 0, 4, 2, 5, 1]  # the two at one second, 4 and 5, keep theirs
    mixed = {name: [values[i] for i in order] for name, values in log.items()}
    assert leaves(Trace.from_events(**mixed, begin=BEGIN)) == whole


@pytest.mark.parametrize(
    "names",
    [("red", "green", "blue"), (1002, 2001, 1001), (("rack", 2), ("rack", 10), ("rack", 1)),
     tuple(np.array([7.5, 9.0, -1.0]))],
)  # fmt: skip
def test_workers_have_names_of_any_kind(names: tuple[Any, ...]) -> None:
    sent = [names[i] for i in (0, 1, 0, 2)]
    trace = Trace.from_events([1, 2, 3, 4], sent, [0, 0, 1, 0])
    known = sorted(names)
    assert [known[i] for i in trace.worker[:, 0].tolist()] == sent
    assert trace.step[:, 0].tolist() == [0, 0, 1, 0]
    given = Trace.from_events([1, 2, 3, 4], sent, [0, 0, 1, 0], workers=[*names, names[0] * 2])
    assert given.worker[:, 0].tolist() == [0, 1, 0, 2]
    assert given.workers == 4


def test_numbers_from_zero_on_stay_as_they_are() -> None:
    trace = Trace.from_events([1, 2, 3], np.array([2, 0, 1]), [0, 0, 0])
    assert trace.worker[:, 0].tolist() == [2, 0, 1]
    assert Trace.from_events([1], [3], [0], workers=range(5)).worker.tolist() == [[3]]


def test_times_of_arrival_before_the_update_and_what_else_is_known() -> None:
    trace = Trace.from_events(
        time=[4.0, 4.0, 6.5],
        worker=["a", "b", "a"],
        version=[0, 0, 0],
        update=[0, 0, 1],
        arrival=[3.5, 2.0, 6.0],
        step=[7, 3, 9],
        compute=[1.0, 2.0, 3.0],
        begin=1.0,
    )
    assert trace.worker.tolist() == [[1, 0], [0, 0]]  # in order of arrival
    assert trace.arrival.tolist() == [[2.0, 0.5], [0.5, 0.0]]
    assert trace.step.tolist() == [[3, 7], [9, 0]]
    assert trace.compute.tolist() == [[2.0, 1.0], [3.0, 0.0]]
    assert trace.dt.tolist() == [3.0, 2.5]


def test_a_simulated_run_comes_back_from_its_log() -> None:
    import jax

    cluster = dtjax.Cluster(n=4, delay=dtjax.delays.deterministic([1.0, 1.5, 2.25, 5.0]))
    run = dtjax.simulate(jax.random.key(0), cluster, dtjax.policies.k_asp(2), updates=12)
    at = dtjax.seconds(run.trace)[:, None] - np.asarray(run.trace.arrival)
    one: Any = {
        name: np.asarray(getattr(run.trace, name)).ravel() for name in ("worker", "version")
    }
    again = Trace.from_events(
        at.ravel(), update=np.repeat(np.arange(12), 2), compute=np.ravel(run.trace.compute), **one
    )
    names = ("dt", "worker", "step", "version", "examples", "arrival", "compute")
    for name in names:
        np.testing.assert_array_equal(getattr(again, name), getattr(run.trace, name), name)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"worker": []}, r"worker must have a name for each gradient, one or more, got \[\]"),
    ({"time": [1.0, 2.0]}, r"time must have shape \(3,\), got \(2,\)"),
    ({"time": [1.0, np.nan, 2.0]}, r"time must be finite in row 1, got nan"),
    ({"time": ["x", 1, 2]}, r"time must be numeric, got \['x', 1, 2\]"),
    ({"version": [0, 0, 1.5]}, r"version must be an integer 0 or more in row 2, got 1\.5"),
    ({"version": [0, -1, 0]}, r"version must be an integer 0 or more in row 1, got -1"),
    (
        {"version": [0, 2, 0]},
        r"version must be at most 1, the updates before that of worker 'b', in row 1, got 2",
    ),
    ({"update": [0, 2, 2]}, r"update must number the updates 0\.\.T-1: none is 1 in row 1, got 2"),
    (
        {"update": [0, 2, 1], "time": [1.0, 2.0, 2.5]},
        r"time must not be before 2\.5, the update before or `begin`, in row 1, got 2\.0",
    ),
    ({"begin": 1.5}, r"time must not be before 1\.5, .* in row 0, got 1\.0"),
    ({"arrival": [1, 2, 4]}, r"arrival must not be after the update's time in row 2, got 4"),
    ({"examples": [1, 0, 1]}, r"examples must be positive in row 1, got 0"),
    ({"compute": [1, 1, -2]}, r"compute must be non-negative and finite in row 2, got -2"),
    ({"worker": ["a", 1, 2]}, r"worker must be of one kind that can be sorted, or listed in"),
    ({"workers": ["a"]}, r"worker must be one of `workers` in row 1, got 'b'"),
    ({"workers": ["a", "b", "a"]}, r"workers must name each worker once"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD)
def test_bad_logs(wrong: dict[str, Any], message: str) -> None:
    good: Any = {"time": [1.0, 2.0, 3.0], "worker": ["a", "b", "a"], "version": [0, 0, 1]}
    Trace.from_events(**good)
    with pytest.raises(ValueError, match=f"from_events: {message}"):
        Trace.from_events(**(good | wrong))
