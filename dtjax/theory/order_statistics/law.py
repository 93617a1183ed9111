"""Evaluation of a delay law in binary64 on the host, whatever the global precision of JAX is."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dtjax.theory._checks import fail

_BLOCK = 256


class Law(Protocol):
    """What the functions of this package ask of the law of a compute time, in seconds."""

    def mean(self) -> Any:
        """Return E[X], inf if it is infinite."""
        ...

    def variance(self) -> Any:
        """Return the variance of X, inf if it is infinite."""
        ...

    def isf(self, q: Any) -> Any:
        """Return the time that X exceeds with probability q, element-wise."""
        ...


def _widen(leaf: Any) -> Any:
    """Return a floating leaf in binary64, any other leaf as it is."""
    kind = getattr(leaf, "dtype", type(leaf))
    if kind is float or (kind is not type(leaf) and jnp.issubdtype(kind, jnp.floating)):
        return jnp.asarray(leaf, jnp.float64)
    return leaf


def _require_method(function: str, law: Law, method: str) -> None:
    if not callable(getattr(law, method, None)):
        rule = f"must be the law of independent times of one worker, with `{method}`"
        raise fail(function, "law", rule, type(law).__name__)


def _number(function: str, law: Law, method: str) -> float:
    """Evaluate `mean` or `variance` of one law in binary64."""
    _require_method(function, law, method)
    with jax.enable_x64(True):
        value = np.asarray(getattr(jax.tree.map(_widen, law), method)(), dtype=np.float64)
    if value.ndim:
        raise fail(function, "law", "must be one law and not a batch", f"shape {value.shape}")
    if np.isnan(value) or value < 0:
        raise fail(function, "law", f"must have a non-negative {method}", float(value))
    return float(value)


def finite_mean(function: str, law: Law) -> float:
    """Return E[X] of one law; raise if it is infinite, NaN or not positive."""
    value = _number(function, law, "mean")
    if not 0 < value < np.inf:
        raise fail(function, "law", "must have a positive finite mean", value)
    return value


def finite_variance(function: str, law: Law) -> float:
    """Return the variance of one law; raise if it is infinite or NaN."""
    value = _number(function, law, "variance")
    if not value < np.inf:
        raise fail(function, "law", "must have a finite variance", value)
    return value


@jax.jit
def _compiled_isf(law: Law, q: jax.Array) -> Any:
    return law.isf(q)


def _isf(law: Law, q: jax.Array) -> Any:
    """Call isf, compiled once for all laws of one structure; a law that is no pytree as it is."""
    leaves = jax.tree.leaves(law)
    if all(isinstance(leaf, (jax.Array, np.ndarray, np.generic, int)) for leaf in leaves):
        return _compiled_isf(law, q)
    return law.isf(q)


def require_one(function: str, law: Law) -> None:
    """Raise unless there is an isf that keeps the shape of its argument: a batch is no law."""
    _require_method(function, law, "isf")
    with jax.enable_x64(True):
        shape = np.shape(_isf(jax.tree.map(_widen, law), jnp.asarray(0.5)))
    if shape:
        raise fail(function, "law", "must be one law and not a batch", f"shape {shape}")


def inverse_survival(function: str, law: Law, q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Evaluate isf(q) of one law in binary64.

    Sizes are padded to few different ones, because JAX compiles once for each.

    Args:
        function: name for the error.
        law: one law.
        q: f[m], probabilities.

    Returns:
        f[m], seconds.
    """
    size = _BLOCK
    while size < q.size:
        size *= 4
    padded = np.full(size, 0.5)
    padded[: q.size] = q
    with jax.enable_x64(True):
        value = np.asarray(_isf(jax.tree.map(_widen, law), jnp.asarray(padded)), np.float64)
    return value[: q.size]
