"""The origin of time moves to now, now and then."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dtjax.clock.environment import Environment
from dtjax.clock.state import SPANS, Clock
from dtjax.core import blocked_minima, branches, compensated

REBASE = 64
"""Arrivals after which the origin of time moves to now. It bounds the rounding of a time by that of
the seconds that 64 arrivals (n, if that is more) take, however long the run is."""


def rebase(
    env: Environment, clock: Clock, minima: jax.Array, happened: jax.Array
) -> tuple[Clock, jax.Array]:
    """Count an event that has `happened`; move the origin to now if it is time."""
    clock = clock._replace(ticks=clock.ticks + happened)

    def move(state: tuple[Clock, jax.Array]) -> tuple[Clock, jax.Array]:
        return moved(env, state[0])

    return branches.when(_turn(clock), move, (clock, minima))


def moved(env: Environment, clock: Clock) -> tuple[Clock, jax.Array]:
    """Move the origin, in the lanes whose turn it is."""
    n = clock.readers.shape[0]
    turn, at = _turn(clock), clock.at
    shift = jnp.where(turn, clock.now, 0.0)
    due, due_low = compensated.two_sum(clock.due[:n], at.due_low, -shift)
    queues, due = env.transport.shift(clock, due, shift)
    since, since_low = compensated.two_sum(at.since, at.since_low, -shift)
    times, minima = blocked_minima.blocked(due)
    clock = clock._replace(
        due=times,
        spans=SPANS.join(at._replace(since=since, since_low=since_low, due_low=due_low)),
        links=queues,
        updated=compensated.two_sum(*clock.updated, -shift),
        origin=compensated.two_sum(*clock.origin, shift),
        now=clock.now - shift,
        ticks=jnp.where(turn, 0, clock.ticks),
    )
    return clock, minima


def _turn(clock: Clock) -> jax.Array:
    return clock.ticks >= max(REBASE, clock.readers.shape[0])
