"""Cycles under way on a network: what they have computed and communicated; their end."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dtjax.clock.links import Links, moving, own_link, send
from dtjax.core import branches, compensated
from dtjax.core.protocols import COMPUTING


class Spent(NamedTuple):
    """The seconds of the cycles under way up to some time, f[n] each."""

    computed: jax.Array
    talked: jax.Array


def spent(network: Any, clock: Any, stop: jax.Array) -> Spent:
    """Divide the cycles under way: what was computed and communicated until `stop`.

    Gradients that got ready before, but whose turn has not come, are put on the ingresses: a loop
    of as many turns as there are such.
    """
    links, at, of = clock.links, clock.at, clock.of
    n = clock.readers.shape[0]
    busy = of.phase == COMPUTING
    ready, (wire, shards) = clock.due[:n], links.parts(n)
    step, origin = of.step - 1, clock.origin[0] + clock.origin[1]
    workers = jnp.arange(n, dtype=jnp.int32)
    link = jax.vmap(own_link, in_axes=(None, 0, 0, 0))(network, workers, step, ready)
    begin = end = jnp.full((network.servers, n), jnp.inf, ready.dtype)
    if shards is not None:
        begin, end = shards.begin, shards.end
    sending = jnp.isfinite(begin[0])  # its event of being ready has been

    def late(left: jax.Array) -> jax.Array:
        return branches.any_lane(jnp.min(left) <= stop)

    def one(state: Any) -> Any:
        left, free, begin, end = state
        first = jnp.min(left)
        worker = jnp.argmax(left == first).astype(jnp.int32)
        there = first <= stop
        sent = send(network, free, worker, step[worker], first, origin)
        here = (workers == worker) & there
        begin = jnp.where(here[None], sent.begin[:, None], begin)
        end = jnp.where(here[None], sent.end[:, None], end)
        return jnp.where(here, jnp.inf, left), jnp.where(there, sent.free, free), begin, end

    # Minus infinity is a time that a table does not hold: the run is over before it would matter.
    left = jnp.where(busy & ~sending & (ready > -jnp.inf), ready, jnp.inf)
    seconds = jnp.where(at.seconds > -jnp.inf, at.seconds, jnp.inf)
    state = lax.while_loop(lambda s: late(s[0]), one, (left, links.free, begin, end))
    _, _, begin, end = state
    done = busy & jnp.isfinite(begin[0])
    begun = (stop - at.since) - at.since_low
    pulled = jnp.where(done, wire.pull, jnp.minimum(begun, wire.pull))
    computed = jnp.where(done, seconds, jnp.clip(begun - wire.pull, 0.0, seconds))
    own = jnp.maximum(begun - wire.pull - seconds, 0.0)
    own = jnp.where(done, link, jnp.minimum(own, link))
    way = jnp.where(done, moving(begin, end, stop), 0.0)
    return Spent(*(jnp.where(busy, x, 0.0) for x in (computed, pulled + own + way)))


def drop(network: Any, clock: Any, cancel: jax.Array, others: jax.Array) -> tuple[jax.Array, Links]:
    """Stop some cycles, b[n]: account them, and free the links if none of the `others` go on.

    Returns:
        The seconds that the cycles under way had computed, f[n], and the queues.
    """
    links, now = clock.links, clock.now
    part = spent(network, clock, now)
    wire, shards = links.parts(cancel.shape[0])
    talked = compensated.two_sum(wire.talked, wire.talked_low, jnp.where(cancel, part.talked, 0.0))
    wire = wire._replace(talked=talked[0], talked_low=talked[1])
    idle = jnp.any(cancel) & ~jnp.any(others & ~cancel)
    links = links._replace(
        free=jnp.where(idle, jnp.minimum(links.free, now), links.free),
        egress=jnp.where(idle, jnp.minimum(links.egress, now), links.egress),
    )
    if shards is not None:
        begin, end = (jnp.where(cancel[None], jnp.inf, x) for x in (shards.begin, shards.end))
        shards = shards._replace(begin=begin, end=end)
    return part.computed, links.put(wire, shards)
