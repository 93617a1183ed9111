"""A policy as five numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.core import checks
from dtjax.core.protocols import BLOCKED, COMPUTING, HELD, Decision, Event, View
from dtjax.core.pytree import pytree

UNBOUNDED = np.int32(np.iinfo(np.int32).max)
"""As `bound` or `max_staleness`: no limit; as `k`: all the workers that take part."""


@pytree
@dataclass(frozen=True)
class Rule:
    """When the server updates, whose work is cancelled and which workers wait, as five numbers.

    At each arrival the gradient is used unless its staleness is above `max_staleness`. The server
    updates when `k` used gradients are there. With `distinct`, a worker that has delivered waits
    for the update (so that k gradients are k workers'); otherwise it starts again at once. With
    `cancel`, an update stops all unfinished work, and every worker starts again. A worker starts
    only while its completed count is at most `bound` above the slowest worker's.

    Every field is a traced leaf, so that rules sweep under `vmap` in one compile. A field that is
    None is compiled out: `k` None is all the workers, `bound` and `max_staleness` None no limit.
    """

    k: Any = None  # i[]
    distinct: Any = False  # b[]
    cancel: Any = False  # b[]
    bound: Any = None  # i[]
    max_staleness: Any = None  # i[]

    @property
    def discards(self) -> bool:
        """Whether a gradient can be discarded at arrival."""
        return self.max_staleness is not None

    @property
    def form(self) -> str | None:
        """What workers do, in a word, where it is known without tracing: see `protocols.Policy`."""
        switches = (self.distinct, self.cancel)
        if self.discards or not checks.is_concrete(switches) or any(map(np.ndim, switches)):
            return None
        distinct, cancel = map(bool, switches)
        if self.bound is not None:
            return None if distinct or cancel else "bounded"
        if distinct:
            return "rounds" if cancel or self.k is None else "held"
        return "cancelled" if cancel else "free"

    def init(self, n: int) -> jax.Array:
        """Return the completed count of the slowest worker, the only state of a rule."""
        del n
        return jnp.int32(0)

    def width(self, n: int) -> int:
        """Return the largest k.

        Raises:
            ValueError: if k is traced, so that its size cannot be known here.
        """
        if self.k is None:
            return n
        if not checks.is_concrete(self.k):
            raise ValueError(
                "Rule.width: k must be known to size the trace, got a tracer: "
                "pass width= (the largest k of the sweep) to simulate"
            )
        widest = np.max(np.asarray(self.k))
        return n if widest == UNBOUNDED else int(widest)

    def decide(self, state: jax.Array, view: View, event: Event) -> tuple[jax.Array, Decision]:
        """Decide on one arrival."""
        k = view.present if self.k is None else jnp.minimum(self.k, _all(self.k, view.present))
        distinct, cancel = jnp.asarray(self.distinct), jnp.asarray(self.cancel)
        if self.max_staleness is None:
            use = jnp.bool_(True)
        else:
            use = event.staleness <= self.max_staleness
        commit = use & (view.pending + use >= k)
        held = use & ~commit & distinct
        phase = jnp.where(held, HELD, COMPUTING)
        sweep = commit & (cancel | (distinct & (k > 1)))
        if self.bound is not None:
            slowest = jnp.min(view.done)
            far = view.done[event.worker] - slowest > self.bound
            phase = jnp.where(~held & far, BLOCKED, phase)
            sweep = sweep | (slowest > state)
            state = slowest
        return state, Decision(use, commit, phase.astype(jnp.int32), sweep)

    def sweep(
        self, state: jax.Array, view: View, event: Event, decision: Decision
    ) -> tuple[jax.Array, jax.Array]:
        """Cancel at an update if the rule does; start the workers that need not wait any more."""
        del event
        busy = view.phase == COMPUTING
        cancelled = busy & decision.commit & jnp.asarray(self.cancel)
        released = (view.phase == BLOCKED) | ((view.phase == HELD) & decision.commit)
        start = cancelled | released
        if self.bound is not None:
            start = start & (view.done - state <= self.bound)
        return cancelled, start


def _all(k: Any, present: jax.Array) -> jax.Array:
    """Return the limit on k: the workers present where k stands for all, else none."""
    return jnp.where(jnp.asarray(k) == UNBOUNDED, present, UNBOUNDED)


def stack(rules: Sequence[Rule]) -> Rule:
    """Stack rules into one whose fields have a leading axis, to `vmap` over policies.

    Fields that are None in some rule become the number that means the same.

    Args:
        rules: at least one.

    Raises:
        ValueError: if there is none.

    Example:
        >>> stack([Rule(k=1), Rule(k=2, distinct=True, max_staleness=3)]).k.tolist()
        [1, 2]
    """
    if not rules:
        raise checks.fail("stack", "rules", "must hold at least one rule", list(rules))

    def column(name: str, none: Any, dtype: Any) -> jax.Array:
        values = [getattr(rule, name) for rule in rules]
        return jnp.asarray([none if v is None else v for v in values], dtype)

    plain = all(rule.bound is None for rule in rules)
    eternal = all(rule.max_staleness is None for rule in rules)
    return Rule(
        k=column("k", UNBOUNDED, jnp.int32),
        distinct=column("distinct", False, bool),
        cancel=column("cancel", False, bool),
        bound=None if plain else column("bound", UNBOUNDED, jnp.int32),
        max_staleness=None if eternal else column("max_staleness", UNBOUNDED, jnp.int32),
    )
