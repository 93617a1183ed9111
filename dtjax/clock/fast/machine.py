"""One arrival in a run without a trace: see `stream`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dtjax.clock.fast.forms import FORMS, Event
from dtjax.clock.fast.workers import IDLE, Fields, Stream, Workers, begun
from dtjax.core import blocked_minima, random
from dtjax.core.random import Worker


class Rules(NamedTuple):
    """What the kernel knows of the policy and of the end."""

    k: jax.Array  # i[] gradients in an update
    bound: Any  # i[], in the form "bounded"
    limit: jax.Array  # i[] arrivals at which the run is over
    until: jax.Array  # f[] seconds


class Number(NamedTuple):
    """Which arrival it is."""

    count: jax.Array  # i[] arrivals before
    row: jax.Array  # i[] updates before
    last: jax.Array  # b[] whether it completes an update


class Arrivals(NamedTuple):
    """Consecutive arrivals, C of them."""

    worker: jax.Array  # i[C]
    step: jax.Array  # i[C]
    read: jax.Array  # i[C]
    now: jax.Array  # f[C]
    dt: jax.Array  # f[C] seconds since the last update
    seconds: jax.Array  # f[C] computed
    real: jax.Array  # b[C] false from where the run is over


class Machine:
    """The arrivals of one run."""

    def __init__(self, key: jax.Array, cluster: Any, rules: Rules, form: str) -> None:
        """Prepare; the arguments are those of `stream.run`."""
        self.n, self.law, self.rules, self.form = cluster.n, cluster.delay, rules, FORMS[form]
        self.key = random.plain(key)
        self.workers = random.workers(self.key, self.n)
        everybody = jnp.ones(self.n, bool)
        self.present = everybody if cluster.present is None else cluster.present

    def start(self) -> Stream:
        """Start every worker at second 0 on version 0."""
        states = jax.vmap(self.law.init)(self.workers)
        none = jnp.zeros(self.n, jnp.int32)
        states, drawn = self.draw(states, none)
        drawn = jnp.where(self.present, drawn, jnp.inf)
        nothing, zero = jnp.zeros_like(drawn), jnp.zeros((), drawn.dtype)
        due, minima = blocked_minima.blocked(drawn)
        fields = Fields(self.present.astype(jnp.int32), none, nothing)
        return Stream(
            due=due,
            minima=minima,
            low=nothing,
            since_low=nothing,
            workers=Workers.of(fields, self.form.swept),
            form=self.form.begin(self.present, drawn),
            delay=states,
            now=zero,
            updated=(zero, zero),
        )

    def draw(self, states: Any, step: jax.Array) -> tuple[Any, jax.Array]:
        """Draw a time for every worker: the law's states, and seconds f[n]."""
        zero = jnp.zeros((), float)
        draw = jax.vmap(self.law.draw, in_axes=(0, 0, 0, None))
        states, seconds = draw(states, self.workers, step, zero)
        return states, blocked_minima.known(seconds.astype(zero.dtype))

    def arrive(self, at: Stream, horizon: jax.Array, number: Number) -> tuple[Stream, Arrivals]:
        """Take one arrival, unless the run is over: then nothing changes."""
        n = self.n
        due, which, inside, row = blocked_minima.least(at.due, at.minima)
        real = jnp.isfinite(due) & (due <= horizon) & (number.count < self.rules.limit)
        first = jnp.minimum(which * row.shape[0] + inside, n - 1)
        now = jnp.where(real, due, at.now)
        old = at.workers.row(first)
        record = Arrivals(
            worker=first,
            step=old.step - 1,
            read=old.read,
            now=now,
            dt=(now - at.updated[0]) - at.updated[1],
            seconds=now - old.since,
            real=real,
        )

        # The worker's key is derived again: looked up, it would keep the draw from vectorising.
        worker = Worker(first, random.fold(self.key, first), self.workers.world[0])
        mine = jax.tree.map(lambda leaf: leaf[first], at.delay)
        state, drawn = self.law.draw(mine, worker, old.step, jnp.zeros((), float))
        drawn = blocked_minima.known(drawn.astype(now.dtype))

        newest = number.row + number.last
        event = Event(first, old.step, drawn, real, real & number.last, newest, self.rules.bound)
        form, waits = self.form.deliver(at.form, event)
        ends = now + drawn if waits is None else jnp.where(waits, jnp.inf, now + drawn)
        read = newest if waits is None else jnp.where(waits, IDLE, newest)
        times, minima = blocked_minima.replace(at.due, at.minima, which, inside, row, ends, real)
        at = at._replace(
            due=times,
            minima=minima,
            workers=at.workers.put(first, Fields(old.step + 1, read, begun(now)), old, real),
            form=form,
            delay=jax.tree.map(
                lambda all_, x, y: all_.at[first].set(jnp.where(real, x, y)),
                at.delay,
                state,
                mine,
            ),
            now=now,
            updated=(
                jnp.where(event.commit, now, at.updated[0]),
                jnp.where(event.commit, 0.0, at.updated[1]),
            ),
        )
        return self.form.others(self, at, event), record
