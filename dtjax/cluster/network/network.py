"""What a network says to the clock: how long pulls, shards and the server's own work last."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from dtjax.cluster.network.profile import Profile
from dtjax.core import checks
from dtjax.core.protocols import NEVER
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class Network:
    """What links and server cost: made by `fixed`, `star` and `all_reduce`.

    Every number is a traced leaf, seconds unless `payload` is given. A field that is None is
    compiled out. Any pytree with these properties and methods can take its place.
    """

    push: jax.Array  # f[S] or f[n, S]: service on each ingress; a bit's, if there is a payload
    payload: jax.Array | None  # f[P] bits of a worker's gradient by its step; the last one stays
    private: jax.Array | None  # f[] or f[n]: the worker's own link before the ingress; as `push`
    latency: jax.Array  # f[] or f[n]
    pull: jax.Array | None  # f[] or f[n]: the transfer of the whole model; None: free
    pull_latency: jax.Array  # f[] or f[n]
    change: jax.Array | None  # f[] or f[n]: the pull of one update's change
    encode: jax.Array  # f[] of the worker, after computing
    fold: jax.Array  # f[] of the server, each gradient
    apply: jax.Array  # f[] of the server, each update
    profile: Profile | None  # of the ingresses
    ordered: bool = field(metadata={"static": True})
    """Whether gradients arrive in the order in which they got ready: one event is then enough."""
    shared_egress: bool = field(default=False, metadata={"static": True})
    """Whether pulls wait for each other at the server."""
    collective: bool = field(default=False, metadata={"static": True})
    """Whether `apply` is an all-reduce, in which all the workers communicate."""

    @property
    def servers(self) -> int:
        """How many ingresses there are, S."""
        return self.push.shape[-1]

    @property
    def workers(self) -> int | None:
        """For how many workers it is made; None: for any number."""
        found = self._lengths
        return next(iter(found.values()), None)

    @property
    def _lengths(self) -> dict[str, int]:
        """For how many workers each field is made that is made for some."""
        found = {"push": self.push.shape[0]} if self.push.ndim == 2 else {}
        for name in ("private", "latency", "pull", "pull_latency", "change"):
            value = getattr(self, name)
            if value is not None and value.ndim:
                found[name] = value.shape[0]
        return found

    def checked(self, function: str) -> Network:
        """Return the network; raise if its fields are made for different numbers of workers."""
        found = self._lengths
        if len(set(found.values())) > 1:
            rule = "must be for one number of workers"
            raise checks.fail(function, " and ".join(found), rule, found)
        return self

    def push_seconds(self, worker: jax.Array, step: jax.Array, begin: jax.Array) -> jax.Array:
        """Return how long each shard occupies its ingress, f[S], if it begins at f[S] seconds."""
        own = self.push[worker] if self.push.ndim == 2 else self.push
        seconds = self._sized(own, step)
        return seconds if self.profile is None else self.profile.lasting(begin, seconds)

    def private_seconds(self, worker: jax.Array, step: jax.Array) -> jax.Array | None:
        """Return how long the worker's own link takes, f[]; None if there is none."""
        if self.private is None:
            return None
        return self._sized(_of(self.private, worker), step)

    def latency_seconds(self, worker: jax.Array) -> jax.Array:
        """Return how long a shard is in the air after it was sent, f[]."""
        return _of(self.latency, worker)

    def pull_seconds(self, worker: jax.Array, missed: jax.Array) -> jax.Array | None:
        """Return how long the transfer of a pull takes that `missed` so many updates, f[]."""
        if self.pull is None:
            return None
        whole = _of(self.pull, worker)
        if self.change is None:
            return whole
        part = jnp.minimum(whole, missed * _of(self.change, worker))
        return jnp.where(missed < NEVER, part, whole)

    def pull_latency_seconds(self, worker: jax.Array) -> jax.Array:
        """Return how long a pull takes besides its transfer, f[]."""
        return _of(self.pull_latency, worker)

    def _sized(self, seconds: jax.Array, step: jax.Array) -> jax.Array:
        if self.payload is None:
            return seconds
        return seconds * self.payload[jnp.minimum(step, self.payload.shape[0] - 1)]


def _of(values: jax.Array, worker: jax.Array) -> jax.Array:
    return values[worker] if values.ndim else values


def per_worker(name: str, argument: str, value: checks.Numbers, rule: checks.Rule) -> jax.Array:
    """Return f[] or f[n]."""
    numbers = checks.real(name, argument, value, rule)
    if numbers.ndim > 1 or not numbers.size:
        raise checks.fail(name, argument, "must have shape () or (n,)", numbers.shape)
    return numbers


def in_order(push: jax.Array, latency: jax.Array, payload: jax.Array | None = None) -> bool:
    """Whether arrivals follow readiness, as far as that is known without tracing.

    Each ingress keeps the order in which gradients got ready, so the last shards of them do. Only
    where the latencies differ may one overtake another; and where a push may take no time, it can
    arrive together with the one before it, which the lower worker must then be before.
    """
    known = checks.is_concrete(latency)
    if latency.ndim and not (known and bool((latency == latency[:1]).all())):
        return False
    sizes = jnp.ones(1) if payload is None else payload
    concrete = checks.is_concrete((push, sizes))
    if concrete and bool((push > 0).all()) and bool((sizes > 0).all()):
        return True
    # Where all send alike, pushes of no time are never queued behind others.
    alike = push.ndim < 2 or (checks.is_concrete(push) and bool((push == push[:1]).all()))
    if sizes.size > 1 and not (checks.is_concrete(sizes) and bool((sizes > 0).all())):
        return False
    return alike
