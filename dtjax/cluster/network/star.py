"""Workers around servers with shared ingresses: payload bits over bandwidth."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from dtjax.cluster.network.network import Network, in_order, per_worker
from dtjax.cluster.network.profile import make_profile
from dtjax.core import checks

RATE = ("must be positive", lambda x: x > 0)  # an infinite bandwidth costs nothing


def star(
    *,
    payload: checks.Numbers,
    bandwidth: checks.Numbers,
    latency: checks.Numbers = 0.0,
    servers: int = 1,
    shares: checks.Numbers | None = None,
    worker_bandwidth: checks.Numbers | None = None,
    pull: checks.Numbers | None = None,
    pull_bandwidth: checks.Numbers | None = None,
    pull_change: checks.Numbers | None = None,
    shared_egress: bool = False,
    overhead: checks.Numbers = 0.0,
    encode: checks.Numbers = 0.0,
    fold: checks.Numbers = 0.0,
    apply: checks.Numbers = 0.0,
    profile: tuple[Sequence[float], Sequence[float]] | None = None,
    period: checks.Numbers | None = None,
) -> Network:
    """Describe workers around servers: payload bits over bandwidth, through shared ingresses.

    Args:
        payload: bits of a gradient as it is sent: f[], or f[P] by the worker's step (the last one
            stays), as of `compressor.bits(params, step)`.
        bandwidth: of a server's ingress, bits a second, f[] or f[S]; may be infinite.
        latency: seconds in the air, f[] or f[n], of a push, and of a pull that is not free.
        servers: S, each with an ingress of its own; static.
        shares: f[S], each server's part of the model, summing to 1; None: equal parts.
        worker_bandwidth: of a link of the worker's own before the ingress, f[] or f[n]; the whole
            gradient passes it first. None: none.
        pull: bits of the model, as they are pulled; None: pulls are free.
        pull_bandwidth: bits a second; None: the sum of the servers' `bandwidth`.
        pull_change: bits of what one update changes: a pull then transfers only the changes that
            the worker has missed, if that is less than the model. A pull that an update stops
            counts as received.
        shared_egress: whether pulls wait for each other; a worker's wait counts as pulling.
        overhead: of the protocol, a share of all bits (0.05: 5 % more).
        encode: seconds in which a worker compresses; they count as computing.
        fold: seconds of the server for each gradient, decompressing included.
        apply: seconds of the server for each update.
        profile: (seconds, factors): from each second on the ingresses have `bandwidth` times this
            factor; the first second is 0. A factor may be 0, but not the last.
        period: seconds after which the profile begins anew; None: its last factor stays.

    Raises:
        ValueError: if a number is out of its range or a shape is none of these.

    Example:
        >>> dense = star(payload=3.2e9, bandwidth=10e9)
        >>> round(float(dense.push_seconds(0, 0, jnp.zeros(1))[0]), 3)
        0.32

    Reference:
        Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014.
    """
    name = "star"
    S = checks.integer(name, "servers", servers, low=1)
    bits = checks.real(name, "payload", payload, checks.NON_NEGATIVE)
    if bits.ndim > 1 or not bits.size:
        raise checks.fail(name, "payload", "must have shape () or (P,)", bits.shape)
    rate = checks.real(name, "bandwidth", bandwidth, RATE)
    if rate.shape not in ((), (S,)):
        raise checks.fail(name, "bandwidth", f"must have shape () or ({S},)", rate.shape)
    parts = jnp.full(S, 1.0 / S) if shares is None else _shares(name, shares, S)
    more = 1.0 + checks.real(name, "overhead", overhead, checks.NON_NEGATIVE, ndim=0)
    air = per_worker(name, "latency", latency, checks.NON_NEGATIVE)
    own = None
    if worker_bandwidth is not None:
        own = more / per_worker(name, "worker_bandwidth", worker_bandwidth, RATE)
    down = jnp.sum(jnp.broadcast_to(rate, (S,)))
    seconds, change = _pulls(name, more, down, pull, pull_bandwidth, pull_change, shared_egress)
    return Network(
        push=parts * more / rate,
        payload=bits.reshape(-1),
        private=own,
        latency=air,
        pull=seconds,
        pull_latency=jnp.zeros((), float) if seconds is None else air,
        change=change,
        encode=checks.real(name, "encode", encode, checks.NON_NEGATIVE, ndim=0),
        fold=checks.real(name, "fold", fold, checks.NON_NEGATIVE, ndim=0),
        apply=checks.real(name, "apply", apply, checks.NON_NEGATIVE, ndim=0),
        profile=make_profile(name, profile, period),
        ordered=in_order(parts * more / rate, air, bits.reshape(-1)),
        shared_egress=bool(shared_egress),
    ).checked(name)


def _pulls(
    name: str,
    more: jax.Array,
    down: jax.Array,
    pull: checks.Numbers | None,
    bandwidth: checks.Numbers | None,
    change: checks.Numbers | None,
    shared_egress: bool,
) -> tuple[jax.Array | None, jax.Array | None]:
    """Return the seconds of a pull of the model, and of one update's change; None: none."""
    if pull is None:
        for argument, value in (("pull_bandwidth", bandwidth), ("pull_change", change)):
            if value is not None:
                raise checks.fail(name, argument, "must not be given without `pull`", value)
        if shared_egress:
            raise checks.fail(name, "shared_egress", "must not be set without `pull`", True)
        return None, None
    whole = checks.real(name, "pull", pull, checks.NON_NEGATIVE, ndim=0)
    if bandwidth is not None:
        down = per_worker(name, "pull_bandwidth", bandwidth, RATE)
    seconds = whole * more / down
    if change is None:
        return seconds, None
    part = checks.real(name, "pull_change", change, checks.NON_NEGATIVE, ndim=0)
    return seconds, part * more / down


def _shares(name: str, shares: checks.Numbers, servers: int) -> jax.Array:
    parts = checks.real(name, "shares", shares, checks.NON_NEGATIVE, ndim=1)
    if parts.shape != (servers,):
        raise checks.fail(name, "shares", f"must have shape ({servers},)", parts.shape)
    if checks.is_concrete(parts) and abs(float(jnp.sum(parts)) - 1.0) > 1e-4:
        raise checks.fail(name, "shares", "must sum to 1", float(jnp.sum(parts)))
    return parts
