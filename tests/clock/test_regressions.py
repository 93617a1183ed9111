"""What once went wrong in runs without a trace and around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dtjax
from dtjax import data, delays, models, policies, theory
from dtjax.clock.status import STUCK, UNTIL
from dtjax.core.pytree import pytree

KEY = jax.random.key(0)
FOUR = dtjax.Cluster(4, delays.exponential(1.0))
simulate: Any = dtjax.simulate


@pytree
@dataclass(frozen=True)
class Lame(delays.Memoryless):
    """Worker 0 is a hundred times slower than `isf` says."""

    scale: Any

    def isf(self, q: Any) -> Any:
        return -self.scale * jnp.log(q)

    def draw(self, state: Any, worker: Any, step: Any, now: Any) -> Any:
        state, seconds = super().draw(state, worker, step, now)
        return state, seconds * jnp.where(worker.index == 0, 100.0, 1.0)


@pytree
@dataclass(frozen=True)
class Lost(delays.Memoryless):
    """One computation in five never ends."""

    scale: Any

    def isf(self, q: Any) -> Any:
        return jnp.where(q < 0.2, jnp.inf, self.scale * q)


@pytest.mark.parametrize(
    "rule", [policies.bsp(), policies.Rule(k=policies.UNBOUNDED, distinct=True)]
)
def test_an_update_too_wide_for_its_row_is_an_error(rule: policies.Rule) -> None:
    with pytest.raises(ValueError, match="simulate: width must be at least k=4, got 2"):
        simulate(KEY, FOUR, rule, updates=3, width=2)


def test_order_statistics_are_drawn_only_where_the_draws_are_isf() -> None:
    lame = dtjax.Cluster(4, Lame(jnp.float32(1.0)))
    runs = [
        simulate(KEY, lame, policies.bsp(), updates=400, collect="seconds", path=path)
        for path in ("auto", "general")
    ]
    np.testing.assert_allclose(runs[0].dt, runs[1].dt, rtol=1e-4)


def test_a_round_that_never_ends() -> None:
    lost = dtjax.Cluster(4, Lost(jnp.float32(1.0)))
    run = simulate(KEY, lost, policies.bsp(), updates=50, collect="seconds")
    assert int(run.status) == STUCK
    assert np.isfinite(run.dt).all() and not run.dt[-1]
    with pytest.raises(RuntimeError, match="run 0 stopped at update"):
        run.check()


def test_more_gradients_than_workers_make_no_update_on_any_path() -> None:
    def play(present: Any, path: str) -> Any:
        cluster = dtjax.Cluster(4, delays.exponential(1.0), present=present)
        return simulate(
            KEY,
            cluster,
            policies.k_bsp(3),
            updates=5,
            until=20.0,
            collect="statistics",
            path=path,
        )

    two = jnp.array([True, True, False, False])
    for path in ("fast", "general"):
        run = jax.jit(lambda present, path=path: play(present, path))(two)
        assert (int(run.status), int(run.accounts.updates)) == (UNTIL, 0)


@pytest.mark.parametrize("rule", [policies.k_asp(2)])
def test_training_can_be_differentiated_in_its_rate(rule: policies.Rule) -> None:
    """Reverse mode, against a central difference."""
    with jax.enable_x64(True):
        problem = dtjax.task.quadratic([1.0, 0.3])
        cluster = dtjax.Cluster(4, delays.exponential(1.0))
        trace = simulate(KEY, cluster, rule, updates=6).trace

        def loss(rate: Any) -> Any:
            trained = dtjax.replay(KEY, trace, problem, optax.sgd(rate), evaluate_every=4)
            return trained.measures["loss"][-1]

        slope = jax.grad(loss)(0.1)
        apart = float(loss(0.1 + 1e-5) - loss(0.1 - 1e-5))
        assert float(slope) == pytest.approx(apart / 2e-5, rel=1e-6)


@pytest.mark.parametrize(("start", "diverged"), [(0.0, -1), (-65_000.0, 0)])
def test_half_precision_diverges_where_it_overflows(start: float, diverged: int) -> None:
    """Not by the square of a change of 300, but by parameters that become infinite."""
    trace = dtjax.make_trace(dt=[1.0], worker=[[0]], version=[[0]])
    problem = dtjax.Task(
        data=(),
        init=lambda data, key: jnp.full(2, start, jnp.float16),
        loss=lambda params, batch: jnp.sum(params.astype(float)),
        batch=lambda data, key, worker, step, examples: (),
        evaluate=lambda data, params: {"loss": jnp.sum(params.astype(float))},
    )
    trained = dtjax.replay(KEY, trace, problem, optax.sgd(900.0), evaluate_every=1)
    assert int(trained.diverged) == diverged
    assert trained.params.tolist() == 2 * [np.float16(start) if diverged >= 0 else -900.0]


def test_who_never_delivers_has_no_useful_second() -> None:
    """Long after, too: where the start was is kept with what rounding takes from it."""
    cluster = dtjax.Cluster(2, delays.deterministic([0.1, 1e9]))
    run = simulate(KEY, cluster, policies.asp(), updates=1_000_000, collect="statistics")
    assert run.accounts.useful[1] == 0
    assert run.accounts.in_flight[1] == run.accounts.elapsed


def test_wide_integers_in_a_rule() -> None:
    with jax.enable_x64(True):
        cluster = dtjax.Cluster(4, delays.exponential(1.0))
        wide = simulate(KEY, cluster, policies.Rule(k=np.array(2)), updates=5, collect="statistics")
        assert int(wide.accounts.useful_count.sum()) == 10


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (policies.Rule(k=2.0), "policy.k must be an integer 1 or more, got 2.0"),
        (policies.Rule(k=0), "policy.k must be an integer 1 or more, got 0"),
        (policies.Rule(k=1, bound=-1), "policy.bound must be an integer 0 or more, got -1"),
        (policies.Rule(k=1, distinct=1), "policy.distinct must be True or False, got 1"),
        (policies.stack([policies.asp(), policies.bsp()]), "policy must have one k"),
    ],
)
def test_rules_that_are_none(rule: policies.Rule, message: str) -> None:
    for collect in ("trace", "statistics"):
        with pytest.raises(ValueError, match=message):
            simulate(KEY, FOUR, rule, updates=3, collect=collect)


def test_theory_at_absurd_numbers() -> None:
    law = delays.exponential(1.0)
    wild = theory.frontier("asp", law, 4, rate=1e200, eigenvalues=[1.0], updates=1)
    assert wild.floor == np.inf
    for wrong, message in (
        ({"policies": "asp", "workers": [8]}, "policies must be a list of names"),
        ({"policies": ["asp"], "workers": 8}, "workers must be a list of numbers"),
        ({"policies": ["k-asp"], "workers": [8, 9], "k": [1, 2, 3]}, "k must be one number, or"),
    ):
        stability_map: Any = theory.stability_map
        with pytest.raises(ValueError, match=f"stability_map: {message}"):
            stability_map(**wrong)
    with pytest.raises(ValueError, match="k_bsp: preempt must be True or False"):
        policies.k_bsp(2, preempt="no")  # ty: ignore[invalid-argument-type]


def test_mini_batches_larger_than_the_task_are_an_error() -> None:
    problem = dtjax.task.classification(models.mlp([4], 10), data.digits(), batch=8)
    cluster = dtjax.Cluster(2, delays.exponential(1.0), examples=9)
    trace = simulate(KEY, cluster, policies.asp(), updates=4).trace
    with pytest.raises(ValueError, match="replay: trace must have at most the task's batch=8"):
        dtjax.replay(KEY, trace, problem, optax.sgd(0.1), evaluate_every=4)


def test_another_quadratic_compiles_nothing_anew() -> None:
    one, two = dtjax.task.quadratic([1.0, 0.3]), dtjax.task.quadratic([2.0, 0.1], noise=0.5)
    assert jax.tree.structure(one) == jax.tree.structure(two)
