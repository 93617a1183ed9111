"""Links and server by their seconds."""

from __future__ import annotations

import jax.numpy as jnp

from dtjax.cluster.network.network import Network, in_order, per_worker
from dtjax.core import checks


def fixed(
    *,
    push: checks.Numbers = 0.0,
    pull: checks.Numbers | None = None,
    latency: checks.Numbers = 0.0,
    fold: checks.Numbers = 0.0,
    apply: checks.Numbers = 0.0,
    encode: checks.Numbers = 0.0,
) -> Network:
    """Describe links and server by their seconds.

    A finished gradient waits at each server's ingress for its turn, first in, first out by
    readiness, is sent for `push` seconds and is `latency` seconds in the air; it has arrived when
    its last shard has. The server takes one at a time, `fold` seconds each, `apply` seconds more
    for the one that makes it update.

    Args:
        push: f[], the same for all workers and one server; f[n], one server; or f[n, S].
        pull: f[] or f[n], seconds before a worker computes, on a link of its own; None: none.
        latency: f[] or f[n].
        fold: f[].
        apply: f[].
        encode: f[], seconds in which a worker compresses; they count as computing.

    Raises:
        ValueError: if a number is negative or not finite, or a shape is none of these.

    Example:
        >>> import dtjax, jax
        >>> cluster = dtjax.Cluster(
        ...     n=2, delay=dtjax.delays.deterministic(1.0), network=fixed(push=0.5, pull=0.25)
        ... )
        >>> run = dtjax.simulate(jax.random.key(0), cluster, dtjax.policies.bsp(), updates=2)
        >>> dtjax.seconds(run.trace).tolist()
        [2.25, 4.5]
    """
    name = "fixed"
    shards = checks.real(name, "push", push, checks.NON_NEGATIVE)
    if shards.ndim > 2 or (shards.ndim and 0 in shards.shape):
        raise checks.fail(name, "push", "must have shape (), (n,) or (n, S)", shards.shape)
    air = per_worker(name, "latency", latency, checks.NON_NEGATIVE)
    table = shards[None] if not shards.ndim else shards.reshape(shards.shape[0], -1)
    return Network(
        push=table,
        payload=None,
        private=None,
        latency=air,
        pull=None if pull is None else per_worker(name, "pull", pull, checks.NON_NEGATIVE),
        pull_latency=jnp.zeros((), float),
        change=None,
        encode=checks.real(name, "encode", encode, checks.NON_NEGATIVE, ndim=0),
        fold=checks.real(name, "fold", fold, checks.NON_NEGATIVE, ndim=0),
        apply=checks.real(name, "apply", apply, checks.NON_NEGATIVE, ndim=0),
        profile=None,
        ordered=in_order(table, air),
    ).checked(name)
