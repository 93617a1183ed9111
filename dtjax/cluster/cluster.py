"""The machines: how many workers, how fast, how much each computes, what links them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import jax
import jax.numpy as jnp

from dtjax.cluster.delays.law import check_law
from dtjax.core import checks
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True, init=False)
class Cluster:
    """The workers of one run, and what links them to the server.

    Constructing a cluster checks its arguments; rebuilding one as a pytree does not, so that leaves
    may be tracers, shapes or anything else that JAX puts in their place.

    Args:
        n: workers, 1 or more; static.
        delay: a law of computation times (`dtjax.delays`, or any object with the protocol
            `dtjax.protocols.Delay`), seconds.
        examples: f[] or f[n], the size of a mini-batch: the weight of a gradient in its update,
            and how many examples the trainer draws. Set it to the task's batch when you train on
            mini-batches.
        present: b[n], which workers take part; None: all. Traced, so that numbers of workers
            sweep under `vmap` in one compile.
        network: links and server (`dtjax.network`, or any pytree with the protocol
            `dtjax.protocols.Network`); None: communication takes no time.

    Raises:
        ValueError: if `n` is not an integer of 1 or more, `delay` is not a law, `network` is not a
            network, either is made for another number of workers, `examples` is not positive, or
            no worker is present.

    Example:
        >>> from dtjax import delays
        >>> cluster = Cluster(n=4, delay=delays.exponential(1.0), examples=32)
        >>> isinstance(cluster, Cluster), cluster.replace(n=8, examples=16).n
        (True, 8)
    """

    n: int = field(metadata={"static": True})
    delay: Any
    examples: jax.Array  # f[n]
    present: jax.Array | None  # b[n]
    network: Any

    def __init__(
        self,
        n: int,
        delay: Any,
        *,
        examples: checks.Numbers = 1.0,
        present: checks.Numbers | None = None,
        network: Any = None,
    ) -> None:
        n = checks.integer("Cluster", "n", n, low=1)
        check_law("Cluster", "delay", delay, n)
        sizes = checks.real("Cluster", "examples", examples, checks.POSITIVE)
        if sizes.ndim and sizes.shape != (n,):
            raise checks.fail("Cluster", "examples", f"must have shape () or ({n},)", sizes.shape)
        if present is not None:
            present = jnp.asarray(present, bool)
            if present.shape != (n,):
                raise checks.fail("Cluster", "present", f"must have shape ({n},)", present.shape)
            if checks.is_concrete(present) and not bool(present.any()):
                raise checks.fail("Cluster", "present", "must hold at least one worker", 0)
        if network is not None:
            _check_network(network, n)
        values = (n, delay, jnp.broadcast_to(sizes, (n,)), present, network)
        for part, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, part.name, value)  # frozen: the only way in

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other arguments, checked as a new cluster's are.

        Args:
            changes: arguments of `Cluster`. With another `n`, the per-worker fields must be given
                too; `examples` may be one number.
        """
        return replace(self, **changes)


def _check_network(network: Any, n: int) -> None:
    methods = ("push_seconds", "private_seconds", "latency_seconds", "pull_seconds")
    for method in (*methods, "pull_latency_seconds"):
        if not callable(getattr(network, method, None)):
            rule = f"must be a network with {method}, as those of dtjax.network"
            raise checks.fail("Cluster", "network", rule, network)
    made_for = getattr(network, "workers", None)
    if made_for not in (None, n):
        raise checks.fail("Cluster", "network", f"must be made for n={n} workers", made_for)
