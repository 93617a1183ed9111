"""`check_delay`: does a delay law keep to the protocol?"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dtjax import theory
from dtjax.cluster.delays.law import clocked, count, declared
from dtjax.core import random
from dtjax.core.pytree import pytree
from dtjax.core.random import Worker
from dtjax.testing import tools
from dtjax.testing.tools import require, stage

TAIL = (0.999, 0.9, 0.7, 0.5, 0.3, 0.1, 1e-2, 1e-4, 1e-6)
"""The probabilities at which a law's functions are held against each other."""

MOMENTS = {
    "mean": (theory.order_statistic_mean, 1e-4),
    "variance": (theory.order_statistic_variance, 1e-3),
}
"""Of one sample of one: the integrals over isf, and how closely binary32 can follow them."""


def check_delay(law: Any, n: int = 3, steps: int = 6) -> None:
    """Check a delay law against the protocol `dtjax.protocols.Delay`.

    It is a pytree of numbers whose values change under `jit` without a second compile, and sweep
    under `vmap`; its state keeps its structure; draws are positive and depend only on worker and
    step, on the time only if the law says `clocked = True`. If it has them: `isf` never rises,
    `sf` and `cdf` are its inverse, `mean` and `variance` its integrals.

    Args:
        law: any object with `init` and `draw`.
        n: workers, where the law does not say for how many it is made.
        steps: computations of each worker.

    Raises:
        AssertionError: naming the first property that does not hold.

    Example:
        >>> from dtjax import delays
        >>> check_delay(delays.deterministic(1.5))
    """
    name = type(law).__name__
    tools.require_methods(law, "init", "draw")
    tools.require_numbers(law)
    workers = random.workers(jax.random.key(0), count(law) or n)
    first = jax.tree.map(lambda leaf: leaf[0], workers)
    with stage(name, "when it is traced"):
        state = jax.eval_shape(law.init, first)
        after, drawn = jax.eval_shape(law.draw, state, first, jnp.int32(0), jnp.zeros(()))
    before, then = tools.kinds(state), tools.kinds(after)
    require(before == then, f"{name}: a draw turns a state {before} into {then}")
    number = drawn.shape == () and jnp.issubdtype(drawn.dtype, jnp.floating)
    require(number, f"{name}: a draw must be one floating number, not {tools.kinds(drawn)}")

    _check_declarations(name, law)
    traces: list[str] = []
    remembers = bool(jax.tree.leaves(state))

    def draws(law: Any, workers: Worker, order: jax.Array, now: Any) -> jax.Array:
        traces.append(name)
        play = _in_order if remembers else _apart
        return jax.vmap(lambda worker: play(law, worker, now, order))(workers)

    with stage(name, "under jit"):
        together, order = jax.jit(draws), jnp.arange(steps, dtype=jnp.int32)
        table = together(law, workers, order, 0.0)
        turned = jax.tree.map(lambda leaf: leaf[::-1], workers)
        again = together(law, turned, order if remembers else order[::-1], 0.0)[::-1]
    _check_times(name, np.asarray(table))
    depends = "a draw depends on more than its worker and its step"
    require(tools.close(table, again if remembers else again[:, ::-1]), f"{name}: {depends}")
    with stage(name, "without jit"):
        plain = law.draw(law.init(first), first, jnp.int32(0), jnp.zeros(()))[1]
    require(tools.close(plain, table[0, 0]), f"{name}: the first draw is another one without jit")
    if not clocked(law):
        later = together(law, workers, order, 12.5)
        untold = "the draws depend on `now`, and the law does not say clocked = True"
        require(np.array_equal(table, later, equal_nan=True), f"{name}: {untold}")
    others = tools.changed(law)
    singles = [together(other, workers, order, 0.0) for other in others]
    require(len(traces) == 1, f"{name}: a change of a number compiles anew")
    if others:
        with stage(name, "under vmap over its numbers"):
            swept = jax.jit(jax.vmap(draws, in_axes=(0, None, None, None)))
            lanes = swept(tools.stack(others), workers, order, 0.0)
        for lane, single in zip(lanes, singles, strict=True):
            require(tools.close(lane, single), f"{name}: a draw is another one under vmap")
    if _check_functions(name, law):
        _check_moments(name, law)


def _check_declarations(name: str, law: Any) -> None:
    """Check that what the class declares for `dtjax.sensitivity` names fields of it."""
    known = {part.name for part in fields(law)} if is_dataclass(law) else set()
    for declaration in ("jumps", "tables"):
        unknown = set(declared(law, declaration) or ()) - known
        require(not unknown, f"{name}: {declaration} names {sorted(unknown)}, which are no fields")


def _in_order(law: Any, worker: Worker, now: Any, steps: jax.Array) -> jax.Array:
    def turn(state: Any, step: jax.Array) -> tuple[Any, jax.Array]:
        return law.draw(state, worker, step, now)

    return lax.scan(turn, law.init(worker), steps)[1]


def _apart(law: Any, worker: Worker, now: Any, steps: jax.Array) -> jax.Array:
    return jax.vmap(lambda step: law.draw(law.init(worker), worker, step, now)[1])(steps)


def _check_times(name: str, table: np.ndarray) -> None:
    known = ~np.isnan(table)
    require((table[known] > 0).all(), f"{name}: a draw is not positive")
    require(known[:, 0].all(), f"{name}: the first draw is NaN, a missing duration")
    require((known[:, :-1] >= known[:, 1:]).all(), f"{name}: a number is drawn after a NaN")


def _at(law: Any, method: str, values: Any) -> np.ndarray | None:
    """Evaluate a function of the law for each value, f[m] or f[m, n]; None if it has none."""
    function = getattr(law, method, None)
    if function is None:
        return None
    try:
        return np.asarray(jax.jit(jax.vmap(function))(jnp.asarray(values, float)))
    except (AttributeError, NotImplementedError):  # a wrapper of a law that has none
        return None


def _check_functions(name: str, law: Any) -> bool:
    """Hold isf, sf and cdf against each other; return whether there is an isf."""
    levels = np.array(TAIL)
    # A law with jumps has sf(isf(q)) < q inside a jump: equality is asked where isf is strict.
    around = _at(law, "isf", np.concatenate([levels, levels * 0.999, levels * 1.001]))
    if around is None:
        return False
    times, above, below = np.split(around, 3)
    require((np.diff(times, axis=0) >= 0).all(), f"{name}: isf rises with the probability")
    strict = (above > times) & (times > below)
    q = levels.reshape(-1, *(1,) * (times.ndim - 1))
    sf, cdf = _at(law, "sf", times), _at(law, "cdf", times)
    if sf is not None:
        require((sf <= 1.002 * q).all(), f"{name}: sf(isf(q)) is more than q")
        require((sf >= 0.998 * q)[strict].all(), f"{name}: sf(isf(q)) is less than q")
    if cdf is not None:
        require((np.abs(cdf + q - 1) <= 1e-5)[strict].all(), f"{name}: cdf(isf(q)) is not 1 - q")
    if sf is not None and cdf is not None:
        require((np.abs(sf + cdf - 1) <= 1e-5).all(), f"{name}: sf is not 1 - cdf")
    return True


@pytree
@dataclass(frozen=True)
class _One:
    """The law of one worker."""

    law: Any
    worker: int = field(metadata={"static": True})

    def mean(self) -> Any:
        return self.law.mean()

    def variance(self) -> Any:
        return self.law.variance()

    def isf(self, q: Any) -> jax.Array:
        q = jnp.asarray(q)
        times = jax.vmap(self.law.isf)(q.reshape(-1))
        return (times[:, self.worker] if times.ndim > 1 else times).reshape(q.shape)


def _check_moments(name: str, law: Any) -> None:
    for method, (integral, tolerance) in MOMENTS.items():
        if not callable(getattr(law, method, None)):
            continue
        for worker, value in enumerate(np.ravel(getattr(law, method)())):
            expected = float(integral(_One(law, worker), 1, 1))
            good = np.isclose(value, expected, rtol=tolerance, atol=1e-9)
            require(good, f"{name}: {method} is {value}, the integral over isf {expected}")
