"""What the tests of the trainer share: every policy as a lane of one batch, in binary64."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dtjax
from dtjax import policies
from dtjax.training.task import Task, quadratic

N, D, ROWS = 5, 4, 48
CURVE = np.array([1.0, 0.5, 0.25, 0.05])
START = np.array([1.0, -2.0, 0.5, 3.0])
KEY = jax.random.PRNGKey(7)
RULES = {
    "bsp": policies.bsp(),
    "asp": policies.asp(),
    "ssp": policies.ssp(1),
    "k-bsp": policies.k_bsp(2),
    "k-batch-bsp": policies.k_batch_bsp(3),
    "k-asp": policies.k_asp(2),
    "k-batch-asp": policies.k_batch_asp(3),
    "asp, cut-off": policies.asp(max_staleness=6),
    "k-asp, cut-off": policies.k_asp(3, max_staleness=1),
    "k-bsp, not pre-empted": policies.k_bsp(3, preempt=False),
    "asp, until": policies.asp(),
    "k-asp, until": policies.k_asp(3),
}
UNTIL = [8.0 if "until" in name else np.inf for name in RULES]


@cache
def runs() -> Any:
    """Simulate all the rules: unequal workers, unequal mini-batches, two lanes that end early."""
    with jax.enable_x64(True):
        law = dtjax.delays.scaled(dtjax.delays.exponential(0.8, shift=0.2), [1, 1, 1, 2, 5.0])
        cluster = dtjax.Cluster(n=N, delay=law, examples=[1.0, 2.0, 3.0, 4.0, 5.0])

        def one(rule: Any, until: Any) -> Any:
            key = jax.random.key(3)
            return dtjax.simulate(key, cluster, rule, updates=ROWS, until=until, width=N)

        run = jax.vmap(one)(policies.stack(list(RULES.values())), jnp.array(UNTIL))
        return jax.tree.map(np.asarray, run.check())


def traces() -> Any:
    return runs().trace


def lane(i: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[i], traces())


def task() -> Task:
    return quadratic(CURVE, noise=[0.5, 0.1, 1.0, 0.2], start=START)


@cache
def pulls() -> Callable[[int, int, float], np.ndarray]:
    """Return the noise of (worker, step), as the trainer's virtual table has it."""
    with jax.enable_x64(True):
        problem, batches = task(), jax.random.split(jax.random.wrap_key_data(KEY))[1]
        worker, step = (i.ravel() for i in np.mgrid[:N, : 4 * ROWS])
        draw = jax.vmap(lambda w, s: problem.batch(problem.data, batches, w, s, 1.0)[1])
        table = np.asarray(jax.jit(draw)(worker, step)).reshape(N, -1, D)
    return lambda w, s, examples: table[w, s] / np.sqrt(examples)
