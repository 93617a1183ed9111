"""Which kernel a run takes: the general one, or one of the fast paths beside it."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dtjax.clock import statistics
from dtjax.clock.fast import rounds, stream
from dtjax.clock.fast.machine import Rules
from dtjax.clock.results import Summary
from dtjax.clock.statistics import COLLECT
from dtjax.clock.status import DONE, STUCK
from dtjax.cluster.delays.law import alike, clocked
from dtjax.core import checks, random
from dtjax.policies.rule import UNBOUNDED

PATHS = ("auto", "general", "fast")
"""What a user can ask for."""


FRESH = ("rounds", "cancelled")
"""Forms under which every gradient is computed at the newest version."""


class Plan(NamedTuple):
    """How a run is computed; all of it static."""

    collect: str  # one of `COLLECT`
    kernel: str  # "general", "stream", "rounds" or "order"
    form: str | None  # of the policy
    bins: int  # of the histogram of staleness

    @property
    def fresh(self) -> bool:
        """Whether every gradient is computed at the newest version."""
        return self.form in FRESH


def choose(
    name: str, cluster: Any, policy: Any, *, collect: str, bins: int | None, path: str, until: Any
) -> Plan:
    """Choose the kernel, from what is known without tracing.

    Raises:
        ValueError: if an option is none of those there are, or `path` is "fast" and there is none.
    """
    checks.choice(name, "collect", collect, COLLECT)
    checks.choice(name, "path", path, PATHS)
    if bins is not None and collect != "statistics":
        raise checks.fail(name, "bins", 'must be None unless collect is "statistics"', bins)
    width = 8 * cluster.n if bins is None else checks.integer(name, "bins", bins, low=1)
    form = getattr(policy, "form", None)
    against = _against(cluster, form, collect)
    if path == "fast" and against:
        raise checks.fail(name, "path", f'must not be "fast" where {against}', path)
    if path == "general" or against:
        return Plan(collect, "general", form, width)
    if form != "rounds":
        return Plan(collect, "stream", form, width)
    ordered = collect == "seconds" and until is None and cluster.present is None
    kernel = "order" if ordered and alike(cluster.delay) else "rounds"
    return Plan(collect, kernel, form, width)


def _against(cluster: Any, form: str | None, collect: str) -> str | None:
    """Return why there is no fast path; None if there is one."""
    if collect == "trace":
        return "a trace is collected"
    if form is None:
        return "the policy has no form that is known (it discards, is traced, or does not say)"
    if clocked(cluster.delay):
        return "the law looks at the clock"
    if cluster.network is not None:
        return "there is a network"
    if form == "rounds" and _remembers(cluster.delay):
        return "rounds are not independent, because the law has a state"
    return None


def _remembers(law: Any) -> bool:
    one = jax.eval_shape(lambda: random.workers(jax.random.key(0, impl=random.DEFAULT), 1))
    return bool(jax.tree.leaves(jax.eval_shape(jax.vmap(law.init), one)))


@partial(jax.jit, static_argnames=("plan", "width", "rows"))
def run(
    key: jax.Array,
    cluster: Any,
    policy: Any,
    until: jax.Array,
    updates: jax.Array,
    *,
    plan: Plan,
    width: int,
    rows: int,
) -> Summary:
    """Run a fast path."""
    there = cluster.n if cluster.present is None else jnp.sum(cluster.present, dtype=jnp.int32)
    k: Any = None
    if policy.k is not None:
        k = jnp.where(policy.k == UNBOUNDED, there, policy.k).astype(jnp.int32)
    if plan.kernel == "order":
        dt = rounds.order_seconds(key, cluster.delay, cluster.n, k, rows)
        finite = jnp.cumsum(~jnp.isfinite(dt)) == 0  # a round that never ends is the last
        made = finite & (jnp.arange(rows) < updates)
        status = jnp.where(jnp.sum(made) == updates, DONE, STUCK).astype(jnp.int32)
        return Summary(None, status, dt=jnp.where(made, dt, 0.0))
    gathered = statistics.begin(plan.collect, plan.bins, rows)
    if plan.kernel == "rounds":
        accounts, status, *kept = rounds.run(key, cluster, k, updates, until, gathered, rows)
    else:
        k = jnp.int32(there) if k is None else k
        bound = jnp.asarray(policy.bound, jnp.int32) if plan.form == "bounded" else None
        rules = Rules(k, bound, updates * k, until)
        accounts, status, *kept = stream.run(
            key, cluster, rules, gathered, form=plan.form or "", width=width
        )
    return Summary(accounts, status, *kept)
