"""Bad arguments of cluster, laws, policies and clock: function, argument, rule, value received."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dtjax
from clock_cases import WIDTH, N, full, padded, play
from dtjax import delays, policies

EXPONENTIAL = delays.exponential(1.0)
CLUSTER = dtjax.Cluster(3, EXPONENTIAL)
KEY = jax.random.key(0)
ASP = policies.asp()
ANY = cast(Any, dtjax.simulate)  # for arguments that a type checker refuses as well
SLOW = {"period": 1.0, "probability": 0.1, "factor": 2.0}


def simulate(policy: Any = ASP, cluster: Any = CLUSTER, key: Any = KEY, **given: Any) -> Any:
    return ANY(key, cluster, policy, **{"updates": 2, **given})


def check(call: Callable[[], Any], message: str) -> None:
    """Look for "function: argument rule, got value"; `...` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in message.split("..."))
    with pytest.raises(ValueError, match=f"(?s)^{pattern}($|\n---)"):
        call()


POLICIES = [
    (lambda: policies.k_asp(0), "k_asp: k must be an integer 1 or more, got 0"),
    (lambda: policies.k_bsp(-1), "k_bsp: k must be an integer 1 or more, got -1"),
    (lambda: policies.k_batch_asp(2.0), "k_batch_asp: k must be an integer 1 or more, got 2.0"),
    (lambda: policies.k_batch_bsp(True), "k_batch_bsp: k must be an integer 1 or more, got True"),
    (lambda: policies.k_asp(np.array([1, 0])), "k_asp: k must be an integer..., got ...0..."),
    (lambda: policies.k_asp(np.array([1.5])), "k_asp: k must be an integer..., got ...1.5..."),
    (lambda: policies.k_asp(None), "k_asp: k must be an integer 1 or more, got None"),
    (lambda: policies.ssp(-1), "ssp: bound must be an integer 0 or more, got -1"),
    (lambda: policies.ssp(math.inf), "ssp: bound must be an integer 0 or more, got inf"),
    (lambda: policies.asp(-1), "asp: max_staleness must be an integer 0 or more, got -1"),
    (lambda: policies.ssp(1, 0.5), "ssp: max_staleness must be an integer 0 or more, got 0.5"),
    (lambda: policies.k_batch_asp(1, "a"), "k_batch_asp: max_staleness must be ..., got 'a'"),
    (lambda: policies.stack([]), "stack: rules must hold at least one rule, got []"),
]

LAWS = [
    (lambda: delays.exponential(-1.0), "exponential: mean must be positive and finite, got -1.0"),
    (lambda: delays.exponential(math.nan), "exponential: mean must be positive..., got nan"),
    (lambda: delays.exponential(math.inf), "exponential: mean must be positive..., got inf"),
    (lambda: delays.exponential(cast(Any, "a")), "exponential: mean must be numeric, got 'a'"),
    (lambda: delays.exponential(np.ones(2)), "exponential: mean must have 0 axes, got (2,)"),
    (lambda: delays.exponential(1.0, -0.1), "exponential: shift must be non-negative..., got -0.1"),
    (lambda: delays.exponential(1.0, math.nan), "exponential: shift must be ..., got nan"),
    (lambda: delays.deterministic([1.0, 0.0]), "deterministic: seconds must be ..., got 0.0"),
    (lambda: delays.uniform(-1.0, 1.0), "uniform: low must be non-negative ..., got -1.0"),
    (lambda: delays.uniform(2.0, 1.0), "uniform: high must be above low=2.0, got 1.0"),
    (lambda: delays.pareto(0.0, 1.0), "pareto: alpha must be positive and finite, got 0.0"),
    (lambda: delays.pareto(2.0, -1.0), "pareto: minimum must be positive..., got -1.0"),
    (lambda: delays.weibull(-1.0, 1.0), "weibull: shape must be positive and finite, got -1.0"),
    (lambda: delays.log_normal(0.0, 1.0), "log_normal: median must be positive..., got 0.0"),
    (lambda: delays.log_normal(1.0, -1.0), "log_normal: sigma must be positive..., got -1.0"),
    (lambda: delays.gamma(-1.0, 1.0), "gamma: shape must be positive and finite, got -1.0"),
    (lambda: delays.gamma(0.1, 1.0), "gamma: shape must be 0.2 or more ..., got 0.1"),
    (lambda: delays.gamma(math.nan, 1.0), "gamma: shape must be positive..., got nan"),
    (lambda: delays.gamma(1.0, -1.0), "gamma: scale must be positive and finite, got -1.0"),
    (lambda: jax.jit(lambda s: delays.gamma(s, 1.0).mean())(2.0), "gamma: shape must be known..."),
    (lambda: delays.bimodal(0.0, 0.1, 2.0), "bimodal: seconds must be positive..., got 0.0"),
    (lambda: delays.bimodal(1.0, 1.1, 2.0), "bimodal: probability must be ... 0 and 1, got 1.1..."),
    (lambda: delays.bimodal(1.0, 0.1, 0.5), "bimodal: factor must be 1 or more..., got 0.5"),
    (
        lambda: delays.hyper_exponential([0.5, 0.4], [1.0, 2.0]),
        "hyper_exponential: probabilities must add up to 1, got 0...",
    ),
    (
        lambda: delays.hyper_exponential([0.5, 0.5], [1.0]),
        "hyper_exponential: means must have the length of probabilities, 2, got 1",
    ),
    (lambda: delays.hyper_exponential([1.0], [0.0]), "hyper_exponential: means must..., got 0.0"),
    (lambda: delays.hyper_exponential(0.5, [1.0]), "hyper_exponential: probabilities must ... ()"),
]

WRAPPERS = [
    (lambda: delays.scaled(EXPONENTIAL, 0.0), "scaled: by must be positive and finite, got 0.0"),
    (lambda: delays.scaled(7, 1.0), "scaled: law must be a law with init and draw, ..., got 7"),
    (
        lambda: delays.scaled(delays.deterministic([1.0, 2.0]), [1.0, 1.0, 1.0]),
        "scaled: law must be made for n=3 workers, got 2",
    ),
    (
        lambda: delays.batch_cost(EXPONENTIAL, [1, 0], fixed=1.0, per_example=1.0),
        "batch_cost: examples must be positive and finite, got 0.0",
    ),
    (
        lambda: delays.batch_cost(EXPONENTIAL, 1, fixed=0.0, per_example=0.0),
        "batch_cost: fixed and per_example must not both be 0, got 0.0",
    ),
    (
        lambda: delays.batch_cost(EXPONENTIAL, 1, fixed=-1.0, per_example=0.0),
        "batch_cost: fixed must be non-negative and finite, got -1.0",
    ),
    (lambda: delays.per_worker([]), "per_worker: laws must hold one law a worker, got []"),
    (lambda: delays.per_worker([EXPONENTIAL, 1]), "per_worker: laws[1] must be a law..., got 1"),
    (
        lambda: delays.per_worker([EXPONENTIAL, EXPONENTIAL, delays.deterministic([1.0, 2.0])]),
        "per_worker: laws[2] must be made for n=3 workers, got 2",
    ),
    (
        lambda: delays.regimes(EXPONENTIAL, factor=0.5, enter=0.1, leave=0.1),
        "regimes: factor must be 1 or more and finite, got 0.5",
    ),
    (
        lambda: delays.regimes(EXPONENTIAL, factor=2.0, enter=0.0, leave=0.1),
        "regimes: enter must be above 0 and at most 1, got 0.0",
    ),
    (
        lambda: delays.regimes(EXPONENTIAL, factor=2.0, enter=0.1, leave=math.nan),
        "regimes: leave must be above 0 and at most 1, got nan",
    ),
    (
        lambda: delays.regimes(7, factor=2.0, enter=0.1, leave=0.1),
        "regimes: law must be a law ..., got 7",
    ),
    (
        lambda: delays.autoregressive(EXPONENTIAL, 1.0),
        "autoregressive: correlation must be above -1 and below 1, got 1.0",
    ),
    (
        lambda: delays.autoregressive(delays.recorded([[1.0]]), 0.5),
        "autoregressive: law must have isf, got 'Recorded'",
    ),
    (
        lambda: delays.slowdowns(EXPONENTIAL, [0, -1], **SLOW),
        "slowdowns: groups must be an integer 0 or more, got ...",
    ),
    (
        lambda: delays.slowdowns(EXPONENTIAL, [0.0, 1.0], **SLOW),
        "slowdowns: groups must be an integer 0 or more, got ...",
    ),
    (
        lambda: delays.slowdowns(EXPONENTIAL, 0, **SLOW),
        "slowdowns: groups must hold ..., got 0",
    ),
    (
        lambda: delays.slowdowns(EXPONENTIAL, [0], **{**SLOW, "period": 0.0}),
        "slowdowns: period must be positive and finite, got 0.0",
    ),
    (
        lambda: delays.slowdowns(delays.recorded([[1.0], [2.0]]), [0], **SLOW),
        "slowdowns: law must be made for n=1 workers, got 2",
    ),
]

TABLES = [
    (lambda: delays.recorded([[1.0, 0.0]]), "recorded: table[0, 1] must be positive, got 0.0"),
    (lambda: delays.recorded([[1.0], [-2.0]]), "recorded: table[1, 0] must be positive, got -2.0"),
    (
        lambda: delays.recorded([[1.0, math.nan, 2.0]]),
        "recorded: table[0, 1] must not have a gap, got nan",
    ),
    (
        lambda: delays.recorded([1.0, 2.0]),
        "recorded: table must have shape [workers, ...(2,)",
    ),
    (lambda: delays.recorded(np.ones((2, 0))), "recorded: table must have shape ..., got (2, 0)"),
    (lambda: delays.recorded([[1.0], [1.0, 2.0]]), "recorded: table must be a table ..."),
]

CLUSTERS = [
    (lambda: dtjax.Cluster(0, EXPONENTIAL), "Cluster: n must be an integer 1 or more, got 0"),
    (lambda: dtjax.Cluster(cast(Any, 2.0), EXPONENTIAL), "Cluster: n must be ..., got 2.0"),
    (lambda: dtjax.Cluster(True, EXPONENTIAL), "Cluster: n must be an integer ..., got True"),
    (lambda: dtjax.Cluster(3, 1.0), "Cluster: delay must be a law with init and draw..., got 1.0"),
    (
        lambda: dtjax.Cluster(3, delays.recorded([[1.0], [2.0]])),
        "Cluster: delay must be made for n=3 workers, got 2",
    ),
    (
        lambda: dtjax.Cluster(3, delays.scaled(EXPONENTIAL, [1.0, 2.0])),
        "Cluster: delay must be made for n=3 workers, got 2",
    ),
    (
        lambda: dtjax.Cluster(3, EXPONENTIAL, examples=0),
        "Cluster: examples must be positive and finite, got 0.0",
    ),
    (
        lambda: dtjax.Cluster(3, EXPONENTIAL, examples=[1, 2]),
        "Cluster: examples must have shape () or (3,), got (2,)",
    ),
    (
        lambda: dtjax.Cluster(3, EXPONENTIAL, present=[True]),
        "Cluster: present must have shape (3,), got (1,)",
    ),
    (
        lambda: dtjax.Cluster(3, EXPONENTIAL, present=[False] * 3),
        "Cluster: present must hold at least one worker, got 0",
    ),
]

DISTINCT = "must be at most the number of workers, n={}, to come from distinct ones, got {}"
RUNS = [
    (lambda: simulate(policies.k_asp(4)), "simulate: k " + DISTINCT.format(3, 4)),
    (lambda: simulate(policies.k_bsp(4, preempt=False)), "simulate: k " + DISTINCT.format(3, 4)),
    (
        lambda: simulate(
            policies.k_bsp(3), dtjax.Cluster(3, EXPONENTIAL, present=[True, True, False])
        ),
        "simulate: k " + DISTINCT.format(2, 3),
    ),
    (lambda: simulate(updates=0), "simulate: updates must be an integer 1 or more, got 0"),
    (lambda: simulate(updates=2.0), "simulate: updates must be an integer 1 or more, got 2.0"),
    (lambda: simulate(updates=True), "simulate: updates must be an integer 1 or more, got True"),
    (
        lambda: simulate(updates=5, rows=4),
        "simulate: updates must be an integer between 1 and rows=4, got 5",
    ),
    (lambda: simulate(rows=0), "simulate: rows must be an integer 1 or more, got 0"),
    (lambda: simulate(until=0.0), "simulate: until must be positive, got 0.0"),
    (lambda: simulate(until=-1.0), "simulate: until must be positive, got -1.0"),
    (lambda: simulate(until=math.nan), "simulate: until must be positive, got nan"),
    (lambda: simulate(until="late"), "simulate: until must be numeric, got 'late'"),
    (lambda: simulate(width=0), "simulate: width must be an integer 1 or more, got 0"),
    (lambda: simulate(policies.k_asp(2), width=1), "simulate: width must be at least k=2, got 1"),
    (lambda: simulate("asp"), "simulate: policy must be a policy (it has no init)..., got 'asp'"),
    (lambda: simulate(cluster=3), "simulate: cluster must be a dtjax.Cluster, got 3"),
    (lambda: simulate(key=7), "simulate: key must be one JAX random key (use vmap for ...), got 7"),
    (
        lambda: simulate(key=jax.random.split(KEY)),
        "simulate: key must be one JAX random key (use vmap for many), got ...",
    ),
    (
        lambda: jax.jit(lambda k: simulate(policies.k_asp(k)).status)(2),
        "Rule.width: k must be known to size the trace, got a tracer: pass width=...",
    ),
    (
        lambda: jax.jit(lambda updates: simulate(updates=updates).status)(2),
        "simulate: rows must be given where updates is traced, got None",
    ),
]


def every(cases: list[tuple[Callable[[], Any], str]]) -> Any:
    return pytest.mark.parametrize(
        ("call", "message"), cases, ids=[message[:40] for _, message in cases]
    )


@every([*POLICIES, *LAWS, *WRAPPERS, *TABLES, *CLUSTERS, *RUNS])
def test_message(call: Callable[[], Any], message: str) -> None:
    check(call, message)


def small(policy: Any = ASP, updates: int = 2, until: float = math.inf) -> dtjax.Run:
    """Play a run in the shapes that the tests of the clock share."""
    table = padded([[1.0, 1.0, 1.0], [2.0, 2.0], [4.0]])
    return play(table, full(policy), updates, until, np.arange(N) < 3)


def test_resume_wants_the_clock_of_such_a_run() -> None:
    clock = small().clock
    many = jax.tree.map(lambda leaf: leaf[None], clock)
    cluster = dtjax.Cluster(N, delays.recorded(padded([])))
    slow = dtjax.Cluster(N, delays.regimes(EXPONENTIAL, factor=2.0, enter=0.1, leave=0.1))

    def resume(clock: Any = clock, cluster: Any = cluster, policy: Any = ASP, **given: Any) -> Any:
        return dtjax.resume(clock, cluster, policy, **{"updates": 1, **given})

    wide = policies.k_batch_asp(WIDTH + 1)
    bad = [
        ({"cluster": CLUSTER}, f"resume: clock must be of a run with n=3 workers, got {N}"),
        ({"policy": wide}, f"resume: width must be at least k={WIDTH + 1}, got {WIDTH}"),
        ({"clock": many}, f"resume: clock must be of one run (use vmap for many), got (1, {N})"),
        ({"clock": small()}, "resume: clock must be the clock of a run, got 'Run'"),
        ({"cluster": slow}, "resume: clock must be of a run with this delay, got ()"),
        ({"updates": 0}, "resume: updates must be an integer 1 or more, got 0"),
        ({"until": -1.0}, "resume: until must be positive, got -1.0"),
    ]
    for given, message in bad:
        check(lambda given=given: resume(**given), message)


def test_a_run_says_why_it_stopped() -> None:
    with pytest.raises(RuntimeError, match=r"^run 0 stopped at update 4: .* recorded table$"):
        small(updates=9).check()
    runs = jax.tree.map(lambda *leaves: jnp.stack(leaves), small(), small(updates=9, until=0.5))
    assert runs.check() is runs
    with pytest.raises(RuntimeError, match="^run 1 stopped at update 0: reached `until`$"):
        runs.check(complete=True)


def test_shares_have_names() -> None:
    check(lambda: small().accounts.share("wating"), "share: fate ... 'waiting'?), got 'wating'")
