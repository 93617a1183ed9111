"""Queues of a schedule: pulls, shards on the servers' ingresses, and the line at the server.

Where gradients arrive in the order in which they got ready, one event a gradient is enough: its
whole way through the ingress and the server is known when it gets ready, because whoever is before
it has been. Otherwise being ready and arriving are two events of their own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dtjax.core import compensated, worker_table


class Wire(NamedTuple):
    """The times of a worker besides `Spans`, in the order of their fields in `Links.wire`."""

    pull: jax.Array  # seconds of this cycle's pull
    talked: jax.Array  # seconds of communicating in delivered and stopped cycles
    talked_low: jax.Array  # what `talked` loses by rounding


class Shards(NamedTuple):
    """The times of what is on its way, where arriving is an event of its own: further fields."""

    begin: jax.Array  # f[S, ...] when a shard's turn begins; infinite: it is not ready yet
    end: jax.Array  # f[S, ...] when it arrives
    low: jax.Array  # f[...] what the arrival's `due` lost by rounding when the origin moved


class Links(NamedTuple):
    """Who is busy until when, relative to the clock's origin."""

    free: jax.Array  # f[S] the ingresses
    egress: jax.Array  # f[]
    server: jax.Array  # f[]
    wire: jax.Array  # f[3 n] see `Wire`; f[(4 + 2 S) n] with `Shards`

    def parts(self, n: int) -> tuple[Wire, Shards | None]:
        """Return the times of n workers, or of the one worker whose column `wire` is (n = 1)."""
        fields = self.wire.reshape(-1, n)
        if fields.shape[0] == len(Wire._fields):
            return Wire(*fields), None
        S = self.free.shape[0]
        return Wire(*fields[:3]), Shards(fields[3 : 3 + S], fields[3 + S : -1], fields[-1])

    def put(self, wire: Wire, shards: Shards | None) -> Links:
        """Return the links with these times of all the workers."""
        return self._replace(wire=_joined(wire, shards))


def _joined(wire: Wire, shards: Shards | None) -> jax.Array:
    """Put the fields in a row, f[...] each."""
    fields = [*wire] if shards is None else [*wire, *shards.begin, *shards.end, shards.low]
    return jnp.stack(fields).reshape(-1)


class Sent(NamedTuple):
    """What becomes of a gradient that gets ready."""

    free: jax.Array  # f[S] the ingresses after it
    begin: jax.Array  # f[S]
    end: jax.Array  # f[S]


def begin(network: Any, n: int, dtype: Any) -> Links:
    """Start with everything idle."""
    zero, nothing = jnp.zeros((), dtype), jnp.zeros(n, dtype)
    never = jnp.full((network.servers, n), jnp.inf, dtype)
    shards = None if network.ordered else Shards(never, never, nothing)
    wire = _joined(Wire(*(3 * [nothing])), shards)
    return Links(jnp.zeros(network.servers, dtype), zero, zero, wire)


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
    found = network.pull_seconds(worker, worker), network.private_seconds(worker, worker)
    return found[0] is not None, found[1] is not None


class Coming(NamedTuple):
    """The next event."""

    worker: jax.Array  # i[] n or more: there is none
    ready: jax.Array  # b[] it gets ready, and arrives in an event of its own; else arrives
    arrival: jax.Array  # f[]
    way: jax.Array  # f[] seconds for which a shard of it was on its way; once it arrives
    sent: Sent  # once it gets ready
    links: Links  # the queues, with the worker's own times alone


def coming(network: Any, clock: Any, place: jax.Array, due: jax.Array) -> Coming:
    """Say what the next event is, from its place among the times."""
    n, links = clock.readers.shape[0], clock.links
    ready = jnp.bool_(False) if network.ordered else place < n
    worker = jnp.where(place < n, place, place - n) if not network.ordered else place
    known = jnp.minimum(worker, n - 1)
    step = clock.counts[known] - 1
    sent = send(network, links.free, known, step, due, clock.origin[0] + clock.origin[1])
    own = links._replace(wire=worker_table.column(links.wire, n, known, links.wire.shape[0] // n))
    _, shards = own.parts(1)
    if shards is None:
        arrival = jnp.max(sent.end)
        way = moving(sent.begin, sent.end, arrival)
    else:
        arrival = jnp.where(ready, jnp.max(sent.end), due)
        way = moving(shards.begin[:, 0], shards.end[:, 0], due)
    return Coming(worker, ready, arrival, way, sent, own)


class Cycle(NamedTuple):
    """What a delivering worker did, and does next."""

    spent: jax.Array  # f[] seconds computed
    begun: jax.Array  # f[] seconds since its pull began
    step: jax.Array  # i[] of its next cycle
    missed: jax.Array  # i[] updates since the version that it has
    starts: jax.Array  # b[] it starts again


def move(
    network: Any,
    clock: Any,
    event: Coming,
    cycle: Cycle,
    due: jax.Array,
    alive: jax.Array,
    ready: jax.Array,
    waits: jax.Array,
) -> tuple[Links, jax.Array, jax.Array, list[jax.Array]]:
    """Account a delivery (`alive`), let its worker pull anew; or put what got `ready` on its way.

    Where others may start too (`waits`), a shared egress is given out by `begin_cycles`.

    Returns:
        The queues; how long the next cycle's pull and own link take, f[] each; and of this cycle
        when it was ready, how long on its way, and the `stages` that the network has.
    """
    links, n, now = clock.links, clock.readers.shape[0], clock.now
    known = jnp.minimum(event.worker, n - 1)
    wire, shards = jax.tree.map(lambda field: field[..., 0], event.links.parts(1))
    link, after = (own_link(network, known, cycle.step - ago, now) for ago in (1, 0))
    since = due
    if not network.ordered:
        since = now - (cycle.begun - wire.pull - (cycle.spent + link))
    talked = compensated.two_sum(wire.talked, wire.talked_low, wire.pull + (link + event.way))
    egress, pull = links.egress, jnp.zeros_like(now)
    seconds = network.pull_seconds(known, cycle.missed)
    if seconds is not None:
        seconds, late = compensated.rounded(seconds), network.pull_latency_seconds(known)
        starts = cycle.starts[None]
        egress, pulled = pulls(network, links, seconds[None], late[None], starts, now)
        pull = pulled[0]
        if network.shared_egress:
            egress = jnp.where(waits, links.egress, egress)
            pull = jnp.where(waits, seconds + late, pull)
    here = jnp.where(alive, event.worker, n)
    fields = Wire(pull, *talked)
    if shards is not None:
        fields = jax.tree.map(lambda new, old: jnp.where(alive, new, old), fields, wire)
        begin, end = (jnp.where(ready, x, jnp.inf) for x in (event.sent.begin, event.sent.end))
        shards = Shards(begin, end, jnp.zeros_like(now))
        here = jnp.where(alive | ready, event.worker, n)
    moved = Links(
        free=jnp.where(alive if shards is None else ready, event.sent.free, links.free),
        egress=egress,
        server=jnp.where(alive, now, links.server),
        wire=worker_table.put_column(links.wire, n, here, _joined(fields, shards)),
    )
    passed = [since, event.way]
    passed += [x for x, there in zip((wire.pull, link), stages(network), strict=True) if there]
    return moved, pull, after, passed


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


def begin_cycles(
    network: Any,
    clock: Any,
    start: jax.Array,
    step: jax.Array,
    missed: jax.Array,
    own: jax.Array | None = None,
) -> tuple[Links, jax.Array, jax.Array]:
    """Let several workers pull.

    Args:
        network: the links.
        clock: the state.
        start: b[n], who pulls.
        step: i[n], of the cycle that begins.
        missed: i[n], updates since the version that each has.
        own: b[n], the worker that has just delivered and pulls already, where the egress is shared:
            it takes its turn among the others.

    Returns:
        The queues, the pulls and the workers' own links, f[n].
    """
    links, now, n = clock.links, clock.now, start.shape[0]
    workers = jnp.arange(n, dtype=jnp.int32)
    before, seconds = links.wire[:n], jax.vmap(network.pull_seconds)(workers, missed)
    if seconds is None:
        nothing = jnp.zeros_like(before)
        return links, nothing, _own_links(network, workers, step, nothing)
    seconds, late = compensated.rounded(seconds), jax.vmap(network.pull_latency_seconds)(workers)
    if own is not None:
        seconds = jnp.where(own, before - late, seconds)
        start = start | own
    egress, pull = pulls(network, links, seconds, late, start, now)
    if own is not None:  # it has counted its new step already
        step = step - own
    wire = links.wire.at[:n].set(jnp.where(start, pull, before))  # `Wire.pull`
    links = links._replace(egress=egress, wire=wire)
    return links, pull, _own_links(network, workers, step, pull)


def _own_links(network: Any, workers: jax.Array, step: jax.Array, like: jax.Array) -> jax.Array:
    return jax.vmap(own_link, in_axes=(None, 0, 0, 0))(network, workers, step, like)


def shifted(links: Links, due: jax.Array, n: int, shift: jax.Array) -> tuple[Links, jax.Array]:
    """Move the origin of time by `shift`; return also when gradients arrive, f[n] or f[0]."""
    links = links._replace(
        free=links.free - shift, egress=links.egress - shift, server=links.server - shift
    )
    wire, shards = links.parts(n)
    if shards is None:
        return links, due[:0]
    arrivals, low = compensated.two_sum(due[n : 2 * n], shards.low, -shift)
    return links.put(wire, Shards(shards.begin - shift, shards.end - shift, low)), arrivals
