"""The fast paths against the shared vectors; what is collected; what cannot be fast."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dtjax
from clock_cases import KEY, SECONDS, STEPS, cases, ends, padded, rule
from dtjax import delays, policies
from dtjax.clock import statistics
from dtjax.clock.fast import stream
from dtjax.clock.fast.machine import Rules
from dtjax.clock.status import DONE, UNTIL
from path_cases import POLICIES


@cache
def fast(rows: int, collect: str, structure: Any) -> Any:
    """Return a compiled fast run; the policy's static switches are part of its structure."""
    switches = dict(structure)

    simulate: Any = dtjax.simulate

    def one(table: Any, numbers: Any, updates: Any, until: Any, present: Any) -> Any:
        cluster = dtjax.Cluster(len(table), delays.recorded(table), present=present)
        return simulate(
            KEY,
            cluster,
            policies.Rule(**numbers, **switches),
            updates=updates,
            until=until,
            rows=rows,
            width=10,
            collect=collect,
            path="fast",
        )

    return jax.jit(one)


def play(table: Any, given: policies.Rule, updates: int, until: float, collect: str) -> Any:
    fields = {"k": given.k, "bound": given.bound}
    numbers = {name: np.int32(x) for name, x in fields.items() if x is not None}
    switches = tuple({"distinct": given.distinct, "cancel": given.cancel}.items())
    rows = 40
    present = np.arange(8) < len(table)
    compiled = fast(rows, collect, switches)
    return compiled(padded(table, 8, STEPS), numbers, updates, until, present)


FORMED = [(8 + i, case) for i, case in enumerate(cases()) if rule(case).form is not None]


def test_most_vectors_have_a_fast_path() -> None:
    forms = {rule(case).form for _, case in FORMED}
    assert len(FORMED) >= 100
    assert forms == {"free", "held", "cancelled", "bounded", "rounds"}


@pytest.mark.parametrize(
    "case", [c for _, c in FORMED], ids=[f"{i}-{c['policy']}" for i, c in FORMED]
)
def test_vectors(case: dict[str, Any]) -> None:
    """Every number that a summary holds is the vector's, exactly."""
    updates, until = ends(case)
    run = play(case["durations"], rule(case), updates, until, "statistics")
    seconds = play(case["durations"], rule(case), updates, until, "seconds")
    n, made = len(case["durations"]), case["updates"]
    assert np.cumsum(seconds.dt).tolist()[: len(made)] == [row["time"] for row in made]
    assert not seconds.dt[len(made) :].any()
    stale = [s for row in made for s in row["staleness"]]
    assert run.statistics.staleness.tolist() == np.bincount(stale or [], minlength=64).tolist()
    assert int(run.statistics.updates) == len(made)
    assert int(run.statistics.gradients) == len(stale)
    for name in SECONDS:
        assert getattr(run.accounts, name)[:n].tolist() == case[name], name
    assert run.accounts.started[:n].tolist() == case["started"]
    assert (float(run.accounts.elapsed), int(run.accounts.buffered)) == (
        case["end"],
        case["buffered"],
    )
    assert int(run.status) == (DONE if case["until"] is None else UNTIL)


def test_the_unit_of_the_histogram_and_its_last_bin() -> None:
    cluster = dtjax.Cluster(8, delays.exponential(1.0))
    few = dtjax.simulate(
        KEY, cluster, policies.asp(), updates=2000, collect="statistics", bins=3
    ).statistics
    many = dtjax.simulate(KEY, cluster, policies.asp(), updates=2000, collect="statistics")
    full = np.asarray(many.statistics.staleness)
    assert few.staleness.tolist() == [*full[:2], full[2:].sum()]
    assert few.staleness_mean == many.statistics.staleness_mean


def test_order_statistics_have_the_law_of_the_rounds() -> None:
    """Means and variances of 200,000 rounds: |z| < 5 each, so a failure is one in 10^6."""
    rows, n = 200_000, 20
    law = delays.exponential(1.0, shift=0.5)
    cluster = dtjax.Cluster(n, law)
    for policy, k in ((policies.bsp(), n), (policies.k_bsp(7), 7), (policies.k_bsp(n), n)):
        run = dtjax.simulate(KEY, cluster, policy, updates=rows, collect="seconds")
        assert run.accounts is None and run.check() is run
        dt = np.asarray(run.dt, np.float64)
        mean = float(dtjax.theory.exponential_order_statistic_mean(n, k)) + 0.5
        variance = float(dtjax.theory.exponential_order_statistic_variance(n, k))
        assert abs(dt.mean() - mean) < 5 * np.sqrt(variance / rows)
        error = np.sqrt(np.mean((dt - mean) ** 4) - variance**2) / np.sqrt(rows)
        assert abs(dt.var() - variance) < 5 * error


def test_seconds_are_those_of_the_trace() -> None:
    cluster = dtjax.Cluster(
        4, delays.recorded(np.random.default_rng(0).integers(1, 65, (4, 300)) / 64)
    )
    for policy in (POLICIES[name] for name in ("k-batch-asp", "ssp", "k-bsp")):
        trace = dtjax.simulate(KEY, cluster, policy, updates=50).trace
        for path in ("fast", "general"):
            run = dtjax.simulate(
                KEY, cluster, policy, updates=50, rows=60, collect="seconds", path=path
            )
            assert np.array_equal(run.dt[:50], trace.dt)
            assert not run.dt[50:].any()
            assert run.statistics is None


BAD: list[tuple[dict[str, Any], str]] = [
    ({"collect": "all"}, "simulate: collect must be one of"),
    ({"path": "quick"}, "simulate: path must be one of"),
    ({"bins": 4}, 'simulate: bins must be None unless collect is "statistics"'),
    ({"collect": "statistics", "bins": 0}, "simulate: bins must be"),
    ({"path": "fast"}, 'path must not be "fast" where a trace is collected'),
    ({"updates": None}, "simulate: updates must be given, unless"),
    ({"updates": 2**31}, "simulate: updates must be at most"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD)
def test_bad_input(wrong: dict[str, Any], message: str) -> None:
    cluster = dtjax.Cluster(2, delays.exponential(1.0))
    simulate: Any = dtjax.simulate
    with pytest.raises(ValueError, match=message):
        simulate(KEY, cluster, policies.asp(), **({"updates": 3} | wrong))


def test_why_there_is_no_fast_path() -> None:
    ask = partial(dtjax.simulate, KEY, updates=3, collect="statistics", path="fast")
    plain = dtjax.Cluster(2, delays.exponential(1.0))
    memory = dtjax.Cluster(
        2, delays.regimes(delays.exponential(1.0), factor=2.0, enter=0.1, leave=0.1)
    )
    with pytest.raises(ValueError, match="it discards"):
        ask(plain, policies.asp(max_staleness=3))
    with pytest.raises(ValueError, match="the law has a state"):
        ask(memory, policies.bsp())
    with pytest.raises(ValueError, match="it discards, is traced"):
        jax.vmap(lambda c: ask(plain, policies.Rule(k=1, cancel=c)))(np.array([True, False]))


def test_a_number_compiles_nothing_anew() -> None:
    """k, bounds, laws' numbers, updates and ends are traced, in the fast paths too."""
    from dtjax.clock import dispatch

    before, compiled = None, cast(Any, dispatch.run)
    for k, mean, updates, until in ((3, 1.0, 9, None), (4, 2.0, 16, 9.0), (3, 0.5, 13, 3.0)):
        cluster = dtjax.Cluster(4, delays.exponential(mean))
        for policy in (policies.k_asp(k), policies.k_batch_bsp(k), policies.k_bsp(k)):
            dtjax.simulate(
                KEY,
                cluster,
                policy,
                updates=updates,
                until=until,
                collect="statistics",
            )
        now = compiled._cache_size()
        assert before in (None, now)
        before = now


def memory(policy: policies.Rule, updates: int, collect: str) -> tuple[int, int]:
    """Return the bytes of the results of 16 runs of 16 workers, and of all besides the inputs."""
    cluster = dtjax.Cluster(16, delays.exponential(1.0))
    simulate: Any = dtjax.simulate
    run = jax.jit(
        jax.vmap(lambda key: simulate(key, cluster, policy, updates=updates, collect=collect))
    )
    used: Any = run.lower(jax.random.split(KEY, 16)).compile().memory_analysis()
    return used.output_size_in_bytes, used.output_size_in_bytes + used.temp_size_in_bytes


def test_the_state_does_not_grow_with_the_updates() -> None:
    """The statistics of 100 times as many updates need no more memory."""
    asp = POLICIES["asp"]
    assert memory(asp, 100_000, "statistics") == memory(asp, 1_000, "statistics")


def test_a_trace_takes_at_most_twice_its_memory() -> None:
    for name in ("asp", "k-asp"):
        results, peak = memory(POLICIES[name], 8_192, "trace")
        assert peak <= 2 * results


def test_chunks_are_not_seen() -> None:
    """Where the origin moves shows in rounding only: the same counts for another chunk."""
    table = np.random.default_rng(1).integers(1, 65, (5, 900)) / 64
    cluster, k = dtjax.Cluster(5, delays.recorded(table)), jnp.int32(3)
    runs = []
    for chunk in (5, 32, 256):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stream, "CHUNK", chunk)

            def play() -> Any:
                rules = Rules(k, None, 200 * k, jnp.float32(np.inf))
                kept = statistics.begin("statistics", 40, 0)
                return stream.run(KEY, cluster, rules, kept, form="held", width=4)

            runs.append(jax.tree.map(np.asarray, jax.jit(play)()))
    for other in runs[1:]:
        for a, b in zip(jax.tree.leaves(runs[0]), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_until_alone_says_when_statistics_end() -> None:
    cluster = dtjax.Cluster(3, delays.deterministic([2.0, 5.0, 7.0]))
    run = dtjax.simulate(KEY, cluster, policies.asp(), until=15.0, collect="statistics")
    assert (int(run.statistics.updates), int(run.status)) == (12, UNTIL)
    same = dtjax.simulate(
        KEY, cluster, policies.asp(), until=15.0, collect="statistics", path="general"
    )
    assert int(same.statistics.updates) == 12
