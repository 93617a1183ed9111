"""The clock gives the same bits however it is run, and does not drift."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dtjax
from clock_cases import KEY, N, full, padded, play
from dtjax import delays, policies
from dtjax.clock.status import UNTIL
from dtjax.core import random
from dtjax.policies import Rule
from law_samples import examples

LANES = jax.random.split(jax.random.key(1), 64)


def same(a: Any, b: Any) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)


def lane(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


@pytest.mark.bits
def test_every_law_draws_the_same_bits_in_any_number_of_lanes() -> None:
    laws = {name: make() for name, make in examples().items()}

    def draws(key: jax.Array) -> dict[str, jax.Array]:
        """Draw six steps of worker 1, without a `vmap` over workers, as the clock does."""
        worker = lane(random.workers(key, 2), 1)
        steps = jnp.arange(6, dtype=jnp.int32)

        def times(law: Any) -> jax.Array:
            turn = lambda state, step: law.draw(state, worker, step, 0.5 * step)  # noqa: E731
            return jax.lax.scan(turn, law.init(worker), steps)[1]

        return {name: times(law) for name, law in laws.items()}

    many, single = jax.jit(jax.vmap(draws))(LANES), jax.jit(draws)
    for index in range(7):
        alone = single(LANES[index])
        for name in laws:
            assert same(alone[name], many[name][index]), name


# A law with memory and transcendental functions, and a rule that does all there is.
LAW = delays.autoregressive(delays.exponential(1.0), 0.7)
RULE = Rule(k=2, distinct=True, cancel=True, bound=3, max_staleness=2)
ROWS = 400
cluster = dtjax.Cluster(4, LAW)


def simulate(key: jax.Array, updates: Any = ROWS) -> dtjax.Run:
    return dtjax.simulate(key, cluster, RULE, updates=updates, rows=ROWS)


@pytest.mark.bits
def test_the_clock_has_the_same_bits_in_any_number_of_lanes() -> None:
    many, few, one = (jax.vmap(simulate)(LANES[:count]) for count in (64, 7, 1))
    single = simulate(LANES[0])
    assert same(few, lane(many, np.arange(7)))
    assert same(lane(one, 0), single)
    assert same(lane(many, 0), single)


@pytest.mark.bits
def test_parts_of_a_run_have_the_bits_of_the_whole() -> None:
    whole, made, clock = simulate(LANES[0]), 0, None
    for updates in (1, 63, 64, 200, ROWS - 328):
        if clock is None:
            part = simulate(LANES[0], updates)
        else:
            part = dtjax.resume(clock, cluster, RULE, updates=updates, rows=ROWS)
        clock = part.clock
        for name in ("dt", "worker", "step", "version", "arrival", "compute", "slot", "into"):
            rows = getattr(whole.trace, name)[made : made + updates]
            assert same(getattr(part.trace, name)[:updates], rows), name
        assert int(part.trace.start) == made
        made += updates
    assert same(part.clock, whole.clock)
    assert same(part.accounts, whole.accounts)


def test_a_run_can_be_looked_at_in_between_and_not_turned_back() -> None:
    """Times to stop at change nothing; an `until` that is over leaves the clock where it is."""
    table = padded([[1.0, 1.5, 2.0] * 5, [2.5, 0.5] * 6])
    given = (full(policies.asp()), 20, np.inf, np.arange(N) < 2)
    whole = play(table, *given)
    here = play(table, given[0], 20, 4.25, given[3])
    assert int(here.status) == UNTIL
    there = dtjax.Cluster(N, delays.recorded(table), present=given[3])
    go_on = partial(dtjax.resume, cluster=there, policy=given[0], updates=20, rows=40)
    back = go_on(here.clock, until=3.0)
    assert float(back.accounts.elapsed) == 4.25
    assert same(back.accounts, here.accounts)
    rest = go_on(back.clock, updates=20 - int(here.accounts.updates), until=np.inf)
    assert same(rest.accounts, whole.accounts)
    assert same(rest.clock, whole.clock)


# A long run: 200,000 arrivals of one worker beside stragglers, in binary32.

LONG = 200_000
DUE = 60_000.37


@pytest.fixture(scope="module")
def long_table() -> np.ndarray:
    table = np.full((3, LONG + 1), np.nan, np.float32)
    table[0] = np.random.default_rng(0).uniform(0.1, 0.9, LONG + 1)
    table[1, :2] = DUE, 1e6
    table[2, 0] = np.inf
    return table


@jax.jit
def long_run(table: Any, rule: Rule, updates: Any) -> dtjax.Run:
    cluster = dtjax.Cluster(3, delays.recorded(table))
    return dtjax.simulate(KEY, cluster, rule, updates=updates, rows=LONG, width=1)


def test_a_long_run_does_not_drift(long_table: np.ndarray) -> None:
    run = long_run(long_table, full(policies.asp()), LONG)
    table = long_table.astype(np.float64)
    arrivals = np.sort(np.append(np.cumsum(table[0])[: LONG - 1], table[1, 0]))
    times = dtjax.seconds(run.trace)
    assert np.abs(times / arrivals - 1).max() < 1e-6
    place = int(np.searchsorted(arrivals, table[1, 0]))
    assert np.asarray(run.trace.worker)[place, 0] == 1
    assert abs(times[place] - table[1, 0]) < 1e-6 * table[1, 0]
    assert (np.asarray(run.trace.worker)[:, 0] == 1).sum() == 1
    accounts = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), run.accounts)
    assert accounts.elapsed == pytest.approx(arrivals[-1], rel=1e-7)
    assert accounts.useful == pytest.approx(
        [np.sum(table[0, : LONG - 1]), table[1, 0], 0], rel=1e-6
    )
    assert accounts.in_flight == pytest.approx(
        [0, arrivals[-1] - table[1, 0], arrivals[-1]], rel=1e-6
    )


def test_what_is_stopped_of_long_computations_adds_up(long_table: np.ndarray) -> None:
    """The straggler's 10^6 seconds are stopped after less than one, thousands of times."""
    table, updates = long_table.copy(), 5000
    table[1:, :] = 1e6
    run = long_run(table, full(policies.k_bsp(1)), updates)
    elapsed = np.cumsum(table[0].astype(np.float64))[updates - 1]
    accounts = jax.tree.map(np.asarray, run.accounts)
    assert accounts.elapsed == pytest.approx(elapsed, rel=1e-6)
    assert accounts.cancelled == pytest.approx([0, elapsed, elapsed], rel=1e-6)
    assert accounts.cancelled_count.tolist() == [0, updates, updates]
    assert float(run.accounts.total) == pytest.approx(3 * elapsed, rel=1e-6)
