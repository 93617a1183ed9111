"""Whether a run's time is a continuous function of the numbers of its delay law."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.cluster.delays.law import clocked, count, declared, has_density
from dtjax.policies.rule import UNBOUNDED, Rule

PATHWISE, DIFFERENCES, FIXED = "pathwise", "differences", "fixed"


def continuous(cluster: Any, policy: Any) -> bool:
    """Whether pathwise derivatives are unbiased under this policy: see `sensitivity`.

    Args:
        cluster: one cluster, concrete.
        policy: one policy, concrete.

    Returns:
        False also where it is not known.

    Example:
        >>> from dtjax import Cluster, delays, policies
        >>> alike = Cluster(n=3, delay=delays.exponential(1.0))
        >>> unlike = Cluster(n=3, delay=delays.scaled(delays.exponential(1.0), [1.0, 1.0, 4.0]))
        >>> [continuous(c, policies.k_asp(2)) for c in (alike, unlike)]
        [True, False]
    """
    law = cluster.delay
    if not isinstance(policy, Rule) or clocked(law):
        return False
    if cluster.network is not None:  # where two gradients swap on a link, other workers go on
        return False
    if policy.max_staleness is not None and int(policy.max_staleness) != UNBOUNDED:
        return False
    there = cluster.n if cluster.present is None else int(np.sum(np.asarray(cluster.present)))
    k = there if policy.k is None or int(policy.k) == UNBOUNDED else int(policy.k)
    distinct, cancel = bool(policy.distinct), bool(policy.cancel)
    bounded = policy.bound is not None and int(policy.bound) != UNBOUNDED
    if cancel and bounded:  # a cancelled worker has completed one computation less
        return False
    if k == 1 or (distinct and k == there) or distinct == cancel:
        return True
    # Where arrivals swap at an update, another worker starts (k-ASP), or another worker's
    # computation is cancelled as soon as it begins (k-batch-BSP).
    return has_density(law) and (cancel or (count(law) is None and not bounded))


def kinds_of(law: Any) -> Any:
    """Return how each leaf can be estimated under a policy that is continuous, by structure."""

    def other(leaf: Any) -> str:
        return DIFFERENCES if floating(leaf) else FIXED

    if isinstance(law, tuple):
        return tuple(kinds_of(own) for own in law)
    jumps, tables = declared(law, "jumps"), declared(law, "tables") or ()
    if jumps is None:
        return jax.tree.map(other, law)
    each, tree = [], jax.tree.structure(law)
    for part in fields(law):
        if part.metadata.get("static"):
            continue
        value = getattr(law, part.name)
        if part.name in jumps:
            found = jax.tree.map(other, value)
        elif part.name in tables:
            found = FIXED
        elif isinstance(value, tuple) or jax.tree.structure(value) != jax.tree.structure(0):
            found = kinds_of(value)
        else:
            found = PATHWISE if floating(value) else FIXED
        each += jax.tree.leaves(found)
    return jax.tree.unflatten(tree, each)


def floating(leaf: Any) -> bool:
    """Whether a leaf holds floating numbers."""
    return jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.floating)
