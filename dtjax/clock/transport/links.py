"""The queues of a network: pulls, shards on the servers' ingresses, and the line at the server."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dtjax.core import compensated
from dtjax.core.worker_table import Layout


class Wire(NamedTuple):
    """The times of a worker besides `Spans`, in the order of their fields in `Links.wire`."""

    pull: jax.Array  # seconds of this cycle's pull
    talked: jax.Array  # seconds of communicating in delivered and stopped cycles
    talked_low: jax.Array  # what `talked` loses by rounding


class Shards(NamedTuple):
    """As `Wire`, and the times of what is on its way, where arriving is an event of its own."""

    pull: jax.Array
    talked: jax.Array
    talked_low: jax.Array
    begin: jax.Array  # f[S, ...] when a shard's turn begins; infinite: it is not ready yet
    end: jax.Array  # f[S, ...] when it arrives
    low: jax.Array  # f[...] what the arrival's `due` lost by rounding when the origin moved


class Links(NamedTuple):
    """Who is busy until when, relative to the clock's origin."""

    free: jax.Array  # f[S] the ingresses
    egress: jax.Array  # f[]
    server: jax.Array  # f[]
    wire: jax.Array  # f[3 n] the workers' `Wire`; f[(4 + 2 S) n] their `Shards`


def idle(servers: int, layout: Layout, times: Any) -> Links:
    """Return links of which none is busy, with these times of the workers."""
    zero = jnp.zeros((), times.pull.dtype)
    return Links(jnp.zeros(servers, zero.dtype), zero, zero, layout.join(times))


class Sent(NamedTuple):
    """What becomes of a gradient that gets ready."""

    free: jax.Array  # f[S] the ingresses after it
    begin: jax.Array  # f[S]
    end: jax.Array  # f[S]


def own_link(network: Any, worker: jax.Array, step: jax.Array, like: jax.Array) -> jax.Array:
    """Return the seconds of a worker's own link, 0 if there is none."""
    seconds = network.private_seconds(worker, step)
    return jnp.zeros_like(like) if seconds is None else compensated.rounded(seconds)


def send(
    network: Any,
    free: jax.Array,
    worker: jax.Array,
    step: jax.Array,
    ready: jax.Array,
    origin: jax.Array,
) -> Sent:
    """Put a gradient's shards on the ingresses, in their turn."""
    start = jnp.maximum(ready, free)
    sent = start + compensated.rounded(network.push_seconds(worker, step, origin + start))
    return Sent(sent, start, sent + network.latency_seconds(worker))


def moving(begin: jax.Array, end: jax.Array, stop: jax.Array) -> jax.Array:
    """Return for how long at least one of the shards [S, ...] is on its way before `stop`.

    The union of the intervals: each counts from where those before it, by their begin, have ended.
    """
    end = jnp.minimum(end, stop)
    servers = begin.shape[0]
    if servers == 1:
        return jnp.maximum(end - begin, 0.0)[0]
    place = lax.broadcasted_iota(jnp.int32, begin.shape, 0)
    covered = jnp.full_like(begin, -jnp.inf)
    for other in range(servers):
        own_begin, own_end = (x[other][None] for x in (begin, end))
        before = (own_begin < begin) | ((own_begin == begin) & (other < place))
        covered = jnp.where(before, jnp.maximum(covered, own_end), covered)
    return jnp.sum(jnp.maximum(end - jnp.maximum(begin, covered), 0.0), axis=0)


def stages(network: Any) -> tuple[bool, bool]:
    """Say whether a cycle has a pull, and a link of the worker's own."""
    worker = jnp.int32(0)
    found = (network.pull_seconds, network.private_seconds)
    pull, private = (jax.eval_shape(seconds, worker, worker) for seconds in found)
    return pull is not None, private is not None


def pulls(
    network: Any,
    links: Links,
    seconds: jax.Array,
    late: jax.Array,
    starts: jax.Array,
    now: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Let some workers pull from now on, in the order of their numbers.

    Args:
        network: the links.
        links: their state.
        seconds: f[m], how long each transfer takes.
        late: f[m], and the pull besides.
        starts: b[m], who pulls.
        now: f[].

    Returns:
        When the egress is free, and how long each pull takes, f[m].
    """
    if not network.shared_egress:
        return links.egress, seconds + late
    first = jnp.maximum(now, links.egress)
    done = first + jnp.cumsum(jnp.where(starts, seconds, 0.0))
    egress = jnp.where(starts.any(), done[-1], links.egress)
    return egress, (done - now) + late


def own_links(network: Any, workers: jax.Array, step: jax.Array, like: jax.Array) -> jax.Array:
    """Return `own_link` of several workers, f[m]."""
    return jax.vmap(own_link, in_axes=(None, 0, 0, 0))(network, workers, step, like)
