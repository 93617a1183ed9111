"""The fast paths against the general kernel: entry for entry, and on random draws in binary64."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dtjax
from clock_cases import KEY, SECONDS
from dtjax import delays, policies
from dtjax.clock.fast.machine import Machine, Number, Rules
from dtjax.clock.status import EXHAUSTED, STUCK
from dtjax.clock.trace import Trace
from path_cases import POLICIES

COUNTS = ("started", "useful_count", "discarded_count", "cancelled_count", "buffered", "updates")


def arrivals(cluster: Any, policy: Any, count: int, key: Any = KEY) -> Any:
    """Return the first arrivals of a stream, without moving the origin of time."""
    rules = Rules(policy.k, policy.bound, jnp.int32(count), jnp.float32(np.inf))
    machine = Machine(key, cluster, rules, policy.form)
    numbers = jnp.arange(count, dtype=jnp.int32)
    k = policy.k
    each = Number(numbers, numbers // k, numbers % k == k - 1)
    step = partial(machine.arrive, horizon=jnp.float32(np.inf))
    _, seen = jax.lax.scan(lambda at, number: step(at, number=number), machine.start(), each)
    return seen


def entries(trace: Trace) -> dict[str, np.ndarray]:
    """Return a trace's entries in order of arrival."""
    times = dtjax.seconds(trace)[:, None] - np.asarray(trace.arrival)
    valid = np.asarray(trace.valid)
    table = {"worker": trace.worker, "step": trace.step, "read": trace.version, "now": times}
    table["seconds"] = trace.compute
    return {name: np.asarray(column)[valid] for name, column in table.items()}


@pytest.mark.parametrize("name", ["asp", "k-batch-asp", "k-asp", "k-batch-bsp", "ssp"])
def test_streams_give_the_rows_of_the_general_kernel(name: str) -> None:
    """Entry for entry, on a table of multiples of 1/64, in which many arrivals tie."""
    rng = np.random.default_rng(3)
    table = rng.integers(1, 100, (7, 400)) / 64
    cluster = dtjax.Cluster(7, delays.recorded(table))
    policy = POLICIES[name]
    count = 120 * policy.k
    seen = jax.jit(lambda: arrivals(cluster, policy, count))()
    run = dtjax.simulate(KEY, cluster, policy, updates=120)
    for field, column in entries(run.trace).items():
        assert np.array_equal(getattr(seen, field), column), field


def compare(a: Any, b: Any, rtol: float) -> None:
    """Hold two summaries of the same runs against each other."""
    assert a.status.tolist() == b.status.tolist()
    for name in COUNTS:
        assert np.array_equal(getattr(a.accounts, name), getattr(b.accounts, name)), name
    for name in (*SECONDS, "elapsed"):
        x, y = np.asarray(getattr(a.accounts, name)), np.asarray(getattr(b.accounts, name))
        scale = np.asarray(b.accounts.elapsed)
        assert np.all(np.abs(x - y).max(axis=-1 if x.ndim > 1 else 0) <= rtol * scale.max()), name
    for name in ("updates", "gradients", "staleness", "staleness_max"):
        assert np.array_equal(getattr(a.statistics, name), getattr(b.statistics, name)), name
    for name in ("dt_mean", "dt_variance", "staleness_mean"):
        x, y = getattr(a.statistics, name), getattr(b.statistics, name)
        np.testing.assert_allclose(x, y, rtol=100 * rtol or 1e-5, atol=rtol, err_msg=name)


@pytest.mark.parametrize("until", [pytest.param(None, marks=pytest.mark.slow), 23.0])
@pytest.mark.parametrize("name", POLICIES)
def test_random_draws_in_binary64(name: str, until: float | None) -> None:
    """Three runs of several chunks, to the end and to an instant in the middle of an update."""
    with jax.enable_x64(True):
        cluster = dtjax.Cluster(6, delays.exponential(1.0, shift=0.1))
        keys = jax.random.split(jax.random.key(5), 3)

        def both(path: str) -> Any:
            return jax.vmap(
                lambda key: dtjax.simulate(
                    key,
                    cluster,
                    POLICIES[name],
                    updates=700,
                    until=until,
                    collect="statistics",
                    path=path,
                )
            )(keys)

        compare(both("fast"), both("general"), 1e-13)


def test_a_law_with_memory_takes_the_stream() -> None:
    law = delays.regimes(delays.exponential(1.0), factor=5.0, enter=0.1, leave=0.2)
    cluster = dtjax.Cluster(5, law)
    with jax.enable_x64(True):
        for name in ("k-batch-bsp", "k-asp"):
            runs = [
                jax.tree.map(
                    lambda leaf: leaf[None],
                    dtjax.simulate(
                        KEY, cluster, POLICIES[name], updates=300, collect="statistics", path=path
                    ),
                )
                for path in ("fast", "general")
            ]
            compare(*runs, 1e-13)


ENDS = {
    "exhausted": ([[1.0, 2.0, 3.0], [1.5, 1.0, np.nan]], EXHAUSTED),
    "stuck": ([[1.0, np.inf, np.nan], [2.0, np.inf, np.nan]], STUCK),
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("end", ENDS)
def test_tables_that_end(name: str, end: str) -> None:
    table, _ = ENDS[end]
    cluster = dtjax.Cluster(2, delays.recorded(table))
    policy = {"k-asp": policies.k_asp(2), "k-bsp": policies.k_bsp(1)}.get(name, POLICIES[name])
    runs = [
        jax.tree.map(
            lambda leaf: leaf[None],
            dtjax.simulate(KEY, cluster, policy, updates=9, collect="statistics", path=path),
        )
        for path in ("fast", "general")
    ]
    compare(*runs, 0.0)
    with pytest.raises(RuntimeError, match="run 0 stopped at update"):
        runs[0].check()


def test_a_straggler_of_a_billion_seconds_arrives() -> None:
    """It would never come nearer if times were only rounded when the origin moves."""
    table = np.full((2, 6000), 1.0)
    table[1] = 4000.0 + 2.0**-10
    cluster = dtjax.Cluster(2, delays.recorded(table))
    run = dtjax.simulate(KEY, cluster, policies.asp(), updates=4100, collect="statistics")
    assert run.accounts.useful_count.tolist() == [4099, 1]
    assert int(run.statistics.staleness_max) == 4000
