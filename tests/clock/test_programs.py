"""Public calls compile once for what is static, and programs are let go before there are too many.

What compiles is counted by JAX's own events, and memory maps by the kernel's list of them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax
import jax.monitoring
import numpy as np
import optax
import pytest

import dtjax
from dtjax import data, models, policies
from dtjax.core import programs
from dtjax.montecarlo.sharding import map_runs
from dtjax.training.task import Task, classification

KEY = jax.random.key(0)
SEEN: list[str] = []


def _listen(event: str, duration_secs: float, **about: str | int) -> None:
    if event.endswith("backend_compile_duration"):
        SEEN.append(str(about.get("fun_name")))


jax.monitoring.register_event_duration_secs_listener(_listen)


@contextmanager
def compiles(most: int) -> Generator[None]:
    """Assert that at most so many programs are compiled inside."""
    before = len(SEEN)
    yield
    assert len(SEEN) - before <= most, SEEN[before:]


def cluster(n: int = 4, mean: float = 1.0) -> dtjax.Cluster:
    return dtjax.Cluster(n=n, delay=dtjax.delays.exponential(mean))


@cache
def trace() -> dtjax.Trace:
    return dtjax.simulate(KEY, cluster(), policies.asp(), updates=16).trace


def quadratic(d: int = 2) -> Task:
    return dtjax.task.quadratic(np.linspace(0.1, 1.0, d))


def replay(task: Task, optimizer: Any, **more: Any) -> dtjax.Training:
    return dtjax.replay(KEY, trace(), task, optimizer, evaluate_every=4, **more)


def small() -> Task:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)).astype(np.float32), np.arange(40) % 2
    return classification(models.softmax_regression(2), data.from_arrays(x, y), batch=4)


def same(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_what_compiles_is_counted() -> None:
    with pytest.raises(AssertionError), compiles(0):
        jax.jit(lambda x: x + 1)(np.ones(3))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda: run(17), lambda: run(31)),
        (lambda: run(17), lambda: run(20, until=3.0, mean=2.0)),
        (lambda: run(17, policies.k_asp(3)), lambda: run(30, policies.k_asp(4))),
        (lambda: replay(quadratic(), optax.sgd(0.1)), lambda: replay(quadratic(), optax.sgd(0.1))),
        (
            lambda: replay(quadratic(), optax.sgd, rate=0.1),
            lambda: replay(quadratic(), optax.sgd, rate=0.3),
        ),
        (lambda: mapped(3), lambda: mapped(5)),
        (lambda: many(5, 200), lambda: many(13, 250)),
    ],
    ids=["updates", "numbers", "k", "optimizer made anew", "rate", "map_runs", "simulate_runs"],
)
def test_a_second_call_compiles_no_kernel(
    first: Callable[[], Any], second: Callable[[], Any]
) -> None:
    first()
    before = programs.count()
    start = len(SEEN)
    second()
    assert programs.count() == before
    kernels = {"jit(_alone)", "jit(compute)", "jit(wave)"}
    assert not kernels & set(SEEN[start:])


def run(updates: int, rule: Any = None, mean: float = 1.0, **more: Any) -> Any:
    rule = policies.asp() if rule is None else rule
    return dtjax.simulate(KEY, cluster(mean=mean), rule, updates=updates, **more)


def mapped(runs: int) -> Any:
    return map_runs(lambda x: 2 * x, np.arange(1.0 * runs), block=2)  # a new function each time


def many(runs: int, updates: int) -> Any:
    keys = jax.random.split(KEY, runs)
    return dtjax.simulate_runs(keys, cluster(), policies.asp(), updates=updates)


def test_an_equal_classification_compiles_nothing() -> None:
    replay(small(), optax.sgd(0.1))
    again = small()
    with compiles(0):
        replay(again, optax.sgd(0.1))


@pytest.mark.parametrize("k", [1, 3])
def test_padding_changes_no_bit_and_no_shape(k: int) -> None:
    def one(key: Any) -> Any:
        return dtjax.simulate(key, cluster(), policies.k_asp(k), updates=19)

    same(one(KEY), jax.jit(one)(KEY))


def test_replay_outside_jit_has_the_bits_of_jit() -> None:
    for task in (quadratic(), small()):
        same(
            replay(task, optax.adam(0.1)),
            jax.jit(lambda task: replay(task, optax.adam(0.1)))(task),
        )


def test_a_rate_is_the_optimizer_made_with_it() -> None:
    same(replay(quadratic(), optax.sgd, rate=0.1), replay(quadratic(), optax.sgd(0.1)))


def test_vmap_over_rates_outside_jit() -> None:
    found = jax.vmap(lambda rate: replay(quadratic(), optax.sgd(rate)).loss)(np.array([0.1, 0.2]))
    np.testing.assert_array_equal(found[0], replay(quadratic(), optax.sgd(0.1)).loss)


def test_identity_tells_functions_apart_by_what_they_enclose() -> None:
    table = np.ones(3)

    def scaled(by: Any) -> Any:
        return lambda x: by * x

    assert programs.identity(scaled(table)) == programs.identity(scaled(table))
    for a, b in ((2.0, 3.0), (2, 2.0), (0.0, -0.0), (True, 1), (table, np.ones(3))):
        assert programs.identity(scaled(a)) != programs.identity(scaled(b))
    assert programs.identity(optax.adam(0.1)) == programs.identity(optax.adam(0.1))
    assert programs.identity(optax.adam(0.1)) != programs.identity(optax.adam(0.2))


def maps() -> int:
    return round(programs.used_share() * 65530)


@pytest.mark.skipif(not programs.used_share(), reason="maps are counted on Linux alone")
def test_programs_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MOST", 3)
    seen = []
    for d in range(1, 11):
        replay(quadratic(d), optax.sgd(0.1))
        seen.append(maps())
    assert programs.count() <= 3
    one = 100  # a program keeps more maps than that
    assert seen[-1] - seen[2] < 3 * one


SOAK = """
import sys, jax, numpy as np, optax, dtjax
count, key = int(sys.argv[1]), jax.random.key(0)
for i in range(count):
    cluster = dtjax.Cluster(n=2 + i, delay=dtjax.delays.exponential(1.0))
    run = dtjax.simulate(key, cluster, dtjax.policies.asp(), updates=4)
    task = dtjax.task.quadratic(np.ones(1 + i))
    dtjax.replay(key, run.trace, task, optax.sgd(0.1), evaluate_every=2)
print(sum(1 for _ in open("/proc/self/maps")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not programs.used_share(), reason="maps are counted on Linux alone")
def test_400_shapes_of_simulate_and_of_replay_in_one_process() -> None:
    code = [sys.executable, "-c", SOAK, "400"]
    done = subprocess.run(code, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 0.75 * 65530
