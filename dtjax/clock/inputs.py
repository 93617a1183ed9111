"""What `simulate` and `resume` are given: checked, and brought to the types that arrays have."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dtjax.clock.state import Clock
from dtjax.core import checks, random
from dtjax.policies.rule import UNBOUNDED, Rule

MOST = 2**31 - 2**16
"""Gradients in one run, at most: they are counted in 32 bits."""


def one_key(name: str, key: Any) -> None:
    """Raise unless this is one random key."""
    if not random.is_key(key):
        raise checks.fail(name, "key", "must be one JAX random key (use vmap for many)", key)


def one_run(name: str, cluster: Any, clock: Any) -> None:
    """Raise unless this is the clock of one run of as many workers."""
    if not isinstance(clock, Clock):
        raise checks.fail(name, "clock", "must be the clock of a run", type(clock).__name__)
    shape = clock.readers.shape
    if len(shape) != 1:
        raise checks.fail(name, "clock", "must be of one run (use vmap for many)", shape)
    if shape[0] != cluster.n:
        raise checks.fail(name, "clock", f"must be of a run with n={cluster.n} workers", shape[0])


def same_run(name: str, clock: Clock, fresh: Clock) -> None:
    """Raise unless the states of law and policy have the form that a fresh clock's have."""
    for part, field in (("delay", "delay"), ("policy", "policy"), ("network", "links")):
        new, old = (
            jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), getattr(state, field))
            for state in (fresh, clock)
        )
        if new != old:
            raise checks.fail(name, "clock", f"must be of a run with this {part}", old)


def ends(
    name: str, rows: int | None, updates: Any, until: ArrayLike | None, width: int
) -> tuple[int, Any, jax.Array]:
    """Check where a run ends. Its gradients must be a number that 32 bits hold."""
    if rows is not None:
        rows = checks.integer(name, "rows", rows, low=1)
        updates = checks.integer(name, "updates", updates, low=1, high=rows, high_name="rows=")
    elif checks.is_concrete(updates):
        rows = updates = checks.integer(name, "updates", updates, low=1)
    else:
        raise checks.fail(name, "rows", "must be given where updates is traced", rows)
    if rows * width > MOST:
        raise checks.fail(name, "updates", f"must be at most {MOST // width} of {width}", rows)
    until = np.inf if until is None else until
    seconds = checks.real(name, "until", until, checks.NOT_NAN_POSITIVE, ndim=0)
    if checks.is_concrete(updates):  # on the host: nothing is compiled
        return rows, np.minimum(np.asarray(updates, np.int32), np.int32(rows)), seconds
    return rows, jnp.minimum(jnp.asarray(updates, jnp.int32), rows), seconds


def canonical(name: str, cluster: Any, policy: Any) -> Any:
    """Give Python numbers the types that arrays have, so that changing one compiles nothing."""
    for method in ("n", "delay", "examples"):
        if not hasattr(cluster, method):
            raise checks.fail(name, "cluster", "must be a dtjax.Cluster", cluster)
    for method in ("init", "width", "decide", "sweep"):
        if not callable(getattr(policy, method, None)):
            rule = f"must be a policy (it has no {method}), as those of dtjax.policies"
            raise checks.fail(name, "policy", rule, policy)
    if isinstance(policy, Rule):
        _one_rule(name, policy)
    if cluster.network is not None and cluster.network.collective:
        _all_together(name, cluster, policy)

    def array(leaf: Any) -> Any:
        if isinstance(leaf, (bool, np.bool_)):
            return np.bool_(leaf)
        if isinstance(leaf, (int, np.integer)):
            return np.int32(leaf)
        return jnp.asarray(leaf, float) if isinstance(leaf, float) else leaf

    return jax.tree.map(array, policy)


def width(name: str, cluster: Any, policy: Any, given: int | None) -> int:
    """Return K, and hold the rule against the number of workers, where both are known."""
    if given is None:
        given = policy.width(cluster.n)
    widest = checks.integer(name, "width", given, low=1)
    if not hasattr(policy, "k") or not checks.is_concrete(policy.k):
        return widest
    many = UNBOUNDED if policy.k is None else int(policy.k)
    known = cluster.present is not None and checks.is_concrete(cluster.present)
    there = int(np.sum(np.asarray(cluster.present))) if known else cluster.n
    needed = there if many == UNBOUNDED else many
    if needed > widest:
        raise checks.fail(name, "width", f"must be at least k={needed}", widest)
    distinct = getattr(policy, "distinct", False)
    if checks.is_concrete((distinct, cluster.present)) and bool(distinct) and needed > there:
        rule = f"must be at most the number of workers, n={there}, to come from distinct ones"
        raise checks.fail(name, "k", rule, needed)
    return widest


def _all_together(name: str, cluster: Any, policy: Any) -> None:
    """Raise unless every update takes the gradient of every worker, as an all-reduce does."""
    k = getattr(policy, "k", 1)
    everyone = k is None or (checks.is_concrete(k) and int(k) in (cluster.n, UNBOUNDED))
    if everyone and getattr(policy, "form", None) in ("rounds", "held"):
        return
    rule = "must be bsp where the network is an all-reduce: it takes a gradient of every worker"
    raise checks.fail(name, "policy", rule, policy)


def _one_rule(name: str, rule: Rule) -> None:
    """Raise unless a rule's fields are one number each, as `Rule` says."""
    for field, low in (("k", 1), ("bound", 0), ("max_staleness", 0)):
        value = getattr(rule, field)
        if value is None:
            continue
        if np.ndim(value):
            rule_ = f"must have one {field} (use vmap for many policies)"
            raise checks.fail(name, "policy", rule_, f"shape {np.shape(value)}")
        if checks.is_concrete(value):
            checks.integer(name, f"policy.{field}", value, low=low)
    for field in ("distinct", "cancel"):
        value = getattr(rule, field)
        if np.ndim(value):
            rule_ = f"must have one {field} (use vmap for many policies)"
            raise checks.fail(name, "policy", rule_, f"shape {np.shape(value)}")
        if checks.is_concrete(value) and np.asarray(value).dtype != bool:
            raise checks.fail(name, f"policy.{field}", "must be True or False", value)
