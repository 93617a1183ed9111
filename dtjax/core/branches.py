"""Branches that stay branches under `vmap`: their predicate is shared by all lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

T = TypeVar("T")


@jax.custom_batching.custom_vmap
def any_lane(flag: jax.Array) -> jax.Array:
    """Return the flag itself; under `vmap`, whether it is set in any lane, the same for all.

    A predicate that differs by lane makes JAX compute both branches and select the whole state. One
    that all lanes share stays a real branch; the lanes that did not ask are masked inside.
    """
    return flag


@any_lane.def_vmap
def _any_lane_rule(axis_size: int, in_batched: list[bool], flag: jax.Array) -> Any:
    del axis_size
    return any_lane(jnp.any(flag, axis=0) if in_batched[0] else flag), False


def when(flag: jax.Array, change: Callable[[T], T], state: T) -> T:
    """Apply `change` if any lane's flag is set; `change` must mask the lanes whose flag is not.

    A loop of at most one turn: unlike a conditional it leaves the state where it is in memory.
    """

    def turn(carry: tuple[jax.Array, T]) -> tuple[jax.Array, T]:
        return jnp.bool_(False), change(carry[1])

    return lax.while_loop(lambda carry: carry[0], turn, (any_lane(flag), state))[1]
