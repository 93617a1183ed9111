"""What is compared: arms in worlds, each with all that a run of it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from dtjax.clock import inputs
from dtjax.cluster.cluster import Cluster
from dtjax.core import checks
from dtjax.training.task import Task


@dataclass(frozen=True)
class Arm:
    """One way to train: what `dtjax.compare` compares.

    Example:
        >>> from dtjax import compressors, network, policies
        >>> sparse = compressors.error_feedback(compressors.top_k(0.01))
        >>> arm = Arm(policies.asp(), sparse, lambda bits: network.star(payload=bits, bandwidth=1))
        >>> arm.optimizer is None
        True
    """

    policy: Any
    """When the server updates: of `dtjax.policies`."""
    compressor: Any = None
    """What workers send of a gradient: an encoder, as in `replay`; None: all of it."""
    network: Any = None
    """Links and server; or a function that makes them from the bits of a message (32 a parameter
    without a compressor); None: the cluster's own."""
    optimizer: Callable[[Any], Any] | None = None
    """From a learning rate to an optax transformation; None: that of the comparison."""


class Entry(NamedTuple):
    """An arm in a world."""

    world: str
    arm: str
    cluster: Any
    policy: Any
    width: int
    encoder: Any
    optimizer: Callable[[Any], Any]


def entries(arms: Any, cluster: Any, task: Task, optimizer: Any) -> list[list[Entry]]:
    """Return every arm in every world, a row a world.

    Args:
        arms: by name, policies or arms.
        cluster: one, or by name of its world.
        task: what is learned.
        optimizer: of arms that have none.

    Raises:
        ValueError: if there is no arm or no world, one is of another type, or they do not fit.
    """
    name = "compare"
    if not isinstance(arms, Mapping) or not arms:
        raise checks.fail(name, "arms", "must be a mapping of names to arms, not empty", arms)
    worlds = cluster if isinstance(cluster, Mapping) else {"cluster": cluster}
    if not worlds:
        raise checks.fail(name, "cluster", "must not be empty", cluster)
    table = {str(k): v if isinstance(v, Arm) else Arm(v) for k, v in arms.items()}
    params = jax.eval_shape(task.init, task.data, jax.random.key(0))
    return [
        [_entry(str(world), own, arm, machines, params, optimizer) for own, arm in table.items()]
        for world, machines in worlds.items()
    ]


def _entry(world: str, name: str, arm: Arm, cluster: Any, params: Any, optimizer: Any) -> Entry:
    for field in ("n", "delay", "examples", "network"):
        if not hasattr(cluster, field):
            rule = "must be a dtjax.Cluster, or a mapping of names to such"
            raise checks.fail("compare", "cluster", rule, cluster)
    links = arm.network
    if callable(links):
        links = links(_bits(name, arm.compressor, params))
    if links is not None:
        cluster = Cluster(
            n=cluster.n,
            delay=cluster.delay,
            examples=cluster.examples,
            present=cluster.present,
            network=links,
        )
    own = optimizer if arm.optimizer is None else arm.optimizer
    if not callable(own):
        rule = "must be a function from a learning rate to an optax transformation"
        raise checks.fail("compare", f"optimizer of {name!r}", rule, own)
    policy = inputs.canonical("compare", cluster, arm.policy)
    width = inputs.width("compare", cluster, policy, None)
    return Entry(world, name, cluster, policy, width, arm.compressor, own)


def _bits(name: str, compressor: Any, params: Any) -> float:
    """Return the bits of a message."""
    if compressor is None:
        return 32.0 * sum(leaf.size for leaf in jax.tree.leaves(params))
    if not callable(getattr(compressor, "bits", None)):
        rule = "must have `bits`, which the network is made from"
        raise checks.fail("compare", f"compressor of {name!r}", rule, compressor)
    return float(compressor.bits(params))
