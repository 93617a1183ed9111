"""Cycles under way on a network: what they have computed and communicated; their end."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dtjax.clock.state import COUNTS, Clock, Pair
from dtjax.clock.transport.links import moving, own_links, send
from dtjax.core import branches, compensated
from dtjax.core.protocols import ABSENT


class Sending(NamedTuple):
    """When the shards of the cycles under way begin and end to be sent; infinite: unknown yet."""

    begin: jax.Array  # f[S, n]
    end: jax.Array  # f[S, n]


class Spent(NamedTuple):
    """The seconds of the cycles under way up to some time, f[n] each."""

    computed: jax.Array
    talked: jax.Array


def spent(network: Any, clock: Clock, pull: jax.Array, sending: Sending) -> Spent:
    """Divide the cycles under way: what was computed and communicated until now.

    Args:
        network: the links.
        clock: the state.
        pull: f[n], how long the pull of each cycle takes.
        sending: the shards whose turn is known.
    """
    at, stop, busy = clock.at, clock.now, clock.busy
    step, n = COUNTS.column(clock.counts, "step") - 1, clock.readers.shape[0]
    link = own_links(network, jnp.arange(n, dtype=jnp.int32), step, clock.due[:n])
    begin, end = _all_sent(network, clock, step, sending)
    seconds = jnp.where(at.seconds > -jnp.inf, at.seconds, jnp.inf)
    done = busy & jnp.isfinite(begin[0])
    begun = (stop - at.since) - at.since_low
    pulled = jnp.where(done, pull, jnp.minimum(begun, pull))
    computed = jnp.where(done, seconds, jnp.clip(begun - pull, 0.0, seconds))
    own = jnp.maximum(begun - pull - seconds, 0.0)
    own = jnp.where(done, link, jnp.minimum(own, link))
    way = jnp.where(done, moving(begin, end, stop), 0.0)
    return Spent(*(jnp.where(busy, x, 0.0) for x in (computed, pulled + own + way)))


def _all_sent(network: Any, clock: Clock, step: jax.Array, sending: Sending) -> Sending:
    """Put gradients on the ingresses that got ready by now, but whose turn has not come.

    A loop of as many turns as there are such.
    """
    n, stop = clock.readers.shape[0], clock.now
    ready, origin = clock.due[:n], clock.origin[0] + clock.origin[1]
    workers = jnp.arange(n, dtype=jnp.int32)

    def late(state: tuple[jax.Array, jax.Array, Sending]) -> jax.Array:
        return branches.any_lane(jnp.min(state[0]) <= stop)

    def one(state: tuple[jax.Array, jax.Array, Sending]) -> Any:
        left, free, (begin, end) = state
        first = jnp.min(left)
        worker = jnp.argmax(left == first).astype(jnp.int32)
        there = first <= stop
        sent = send(network, free, worker, step[worker], first, origin)
        here = (workers == worker) & there
        begin = jnp.where(here[None], sent.begin[:, None], begin)
        end = jnp.where(here[None], sent.end[:, None], end)
        free = jnp.where(there, sent.free, free)
        return jnp.where(here, jnp.inf, left), free, Sending(begin, end)

    # Minus infinity is a missing duration: the run is over before it would matter.
    waits = clock.busy & ~jnp.isfinite(sending.begin[0]) & (ready > -jnp.inf)
    state = jnp.where(waits, ready, jnp.inf), clock.links.free, sending
    return lax.while_loop(late, one, state)[2]


def rest(clock: Clock, waited: Pair, talked: Pair, computed: jax.Array) -> jax.Array:
    """Return the seconds that nothing else accounts for, f[n]: those of queueing."""
    at, tally = clock.at, clock.tally
    left = compensated.two_sum(*clock.origin, clock.now)
    left = (
        jnp.broadcast_to(left[0], computed.shape),
        jnp.broadcast_to(left[1], computed.shape),
    )
    delivered = (at.computed, at.computed_low)
    for seconds in (*delivered, *tally.cancelled, *waited, *talked, computed):
        left = compensated.two_sum(*left, -seconds)
    return jnp.where(clock.phase == ABSENT, 0.0, jnp.maximum(left[0], 0.0))
