"""What the laws share: sampling through the survival function, and its numerical inverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dtjax.core import checks, random
from dtjax.core.random import Worker

BEFORE = 0xFFFFFFFF  # the counter of what a law with memory draws before its step 0


class Memoryless:
    """A law whose computation times are independent: a subclass defines `isf`, and what it knows.

    `isf(q)` is the time that is exceeded with probability q, so that small q are long times and
    the tail is as exact as q is near 0 (see `dtjax.core.random.survival`).

    Any law may declare, for `dtjax.sensitivity`, three attributes of its class. They hold for that
    class alone, as a subclass may draw in another way; a law without them is differentiated by
    finite differences.

    * `jumps`, a tuple of strings: draws are continuous in all the fields but these.
    * `tables`, a tuple of strings: fields that cannot be varied alone, since others follow.
    * `has_density`, a bool: times are independent and have a density, so that two never tie.
    """

    @property
    def alike(self) -> bool:
        """Whether `isf` is the law of every worker."""
        return count(self) is None and type(self).draw is Memoryless.draw

    def isf(self, q: ArrayLike) -> jax.Array:
        """Return the seconds exceeded with probability q, elementwise."""
        raise NotImplementedError(f"{type(self).__name__}: a memoryless law must define isf")

    def sf(self, t: ArrayLike) -> jax.Array:
        """Return P(seconds > t), elementwise."""
        raise NotImplementedError(f"{type(self).__name__}: sf is not known in closed form")

    def cdf(self, t: ArrayLike) -> jax.Array:
        """Return P(seconds <= t), elementwise."""
        return 1.0 - self.sf(t)

    def init(self, worker: Worker) -> tuple[()]:
        """Return no state."""
        del worker
        return ()

    def draw(
        self, state: tuple[()], worker: Worker, step: jax.Array, now: jax.Array
    ) -> tuple[tuple[()], jax.Array]:
        """Draw the seconds of (worker, step)."""
        del now
        return state, self.isf(random.uniform(worker.key, step))


def clocked(law: Any) -> bool:
    """Whether the law looks at the time, so that it can be drawn only when a computation starts."""
    return bool(getattr(law, "clocked", False))


def alike(law: Any) -> bool:
    """Whether all computation times are independent, each with the law's `isf`."""
    return bool(getattr(law, "alike", False)) and has(law, "isf")


def declared(law: Any, name: str) -> Any:
    """Return what the law's own class declares under this name, see `Memoryless`; None: nothing."""
    return getattr(law, name) if name in vars(type(law)) else None


def has_density(law: Any) -> bool:
    """Whether computation times are known to be independent and to have a density."""
    return bool(declared(law, "has_density"))


def count(law: Any, own: jax.Array | None = None) -> int | None:
    """Return for how many workers a law is made: None if it does not say.

    `own` are a wrapper's per-worker numbers: f[n] if they say it, else its `law` is asked.
    """
    if own is not None and own.ndim == 1:
        return own.shape[0]
    return getattr(law, "workers", None)


def check_law(function: str, argument: str, law: Any, n: int | None = None) -> None:
    """Raise unless this is a law, and one for n workers, if both are known."""
    if not has(law, "init", "draw"):
        rule = "must be a law with init and draw, as those of dtjax.delays"
        raise checks.fail(function, argument, rule, law)
    made_for = count(law)
    if None not in (n, made_for) and made_for != n:
        raise checks.fail(function, argument, f"must be made for n={n} workers", made_for)


def next_salt(law: Any) -> int:
    """Return a salt that no law inside `law` uses: nested wrappers must not share their bits."""
    return int(getattr(law, "salt", 0)) + 1


def has(law: Any, *methods: str) -> bool:
    """Whether the law has all of the optional methods."""
    return all(callable(getattr(law, name, None)) for name in methods)


def at_worker(values: jax.Array, index: jax.Array) -> jax.Array:
    """Pick worker `index`'s number from `f[n]`, or the one number all share from `f[]`."""
    return values[index] if values.ndim else values


def invert(
    sf: Callable[[jax.Array], jax.Array], q: ArrayLike, low: jax.Array, high: jax.Array
) -> jax.Array:
    """Find t in [low, high] with sf(t) = q by bisection, elementwise, to rounding."""
    q = jnp.asarray(q, float)
    low, high = jnp.broadcast_arrays(low, high)

    def halve(_: int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = 0.5 * (low + high)
        above = sf(middle) > q
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    low, high = jax.lax.fori_loop(0, 60, halve, (low, high))
    return 0.5 * (low + high)
