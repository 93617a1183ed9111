"""Error feedback: what a message leaves out is added to the next gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dtjax.compressors._largest import all_finite
from dtjax.compressors._scope import innermost, inside
from dtjax.compressors.compressor import NEITHER, Around, Compressor
from dtjax.compressors.identity import Identity
from dtjax.compressors.top_k import top_k
from dtjax.core import checks
from dtjax.core.pytree import pytree


class Residual(NamedTuple):
    """What is kept of one tensor."""

    residual: jax.Array  # like the gradient; with a rate, in units of the parameter
    inner: Any  # what the compressor inside keeps


def kept_if(good: jax.Array, new: Any, old: Any, message: jax.Array) -> tuple[Any, jax.Array]:
    """Return (new, message); where not good the old memory, and a message that shows it."""
    memory = jax.tree.map(lambda a, b: jnp.where(good, a, b), new, old)
    return memory, jnp.where(good, message, jnp.asarray(jnp.nan, message.dtype))


def require_forgetful(function: str, compressor: Any) -> None:
    """Raise unless this is a compressor of gradients, without a memory of what was not sent."""
    if not isinstance(compressor, Compressor):
        raise checks.fail(function, "compressor", "must be a compressor", compressor)
    if hasattr(innermost(compressor), "accumulates"):
        rule = "has a memory of what was not sent: it must not get another"
        raise checks.fail(function, "compressor", rule, compressor)
    if hasattr(compressor, "decode"):
        rule = "must send gradients: its messages are votes, which the server decodes"
        raise checks.fail(function, "compressor", rule, compressor)


def require_lossy(function: str, compressor: Any) -> None:
    """Raise unless a memory of what this compressor does not send makes sense."""
    require_forgetful(function, compressor)
    if isinstance(innermost(compressor), Identity):
        rule = "must lose something: memory for a compressor that keeps none"
        raise checks.fail(function, "compressor", rule, compressor)


@pytree
@dataclass(frozen=True)
class ErrorFeedback(Around):
    """See `error_feedback`."""

    decay: jax.Array  # f[]
    rate: Callable[[Any], Any] | None = field(metadata={"static": True})

    accumulates = True

    @property
    def family(self) -> str:
        """NEITHER: a message is not of one gradient alone."""
        return NEITHER

    @property
    def remembers(self) -> bool:
        """True."""
        return True

    def array_memory(self, x: jax.Array) -> Residual:
        """Return a residual of zeros."""
        return Residual(jnp.zeros_like(x), self.compressor.array_memory(x))

    def _rate(self, step: Any, x: jax.Array) -> jax.Array:
        return jnp.asarray(1.0 if self.rate is None else self.rate(step), x.dtype)

    def _carried(self, memory: Residual, x: jax.Array, step: Any) -> jax.Array:
        """Return what is compressed."""
        residual = self.decay.astype(x.dtype) * memory.residual
        if self.rate is not None:
            rate = self._rate(step, x)
            # A rate of 0 gives no weight to what is sent: then the residual stays where it is.
            some = rate != 0
            residual = jnp.where(some, residual, 0) / jnp.where(some, rate, jnp.ones_like(rate))
        return x + residual

    def compress(
        self, memory: Residual, x: jax.Array, key: jax.Array, step: jax.Array
    ) -> tuple[Residual, jax.Array]:
        """Compress gradient and residual, and keep what is left out."""
        carried = self._carried(memory, x, step)
        inner, message = self.compressor.compress(memory.inner, carried, key, step)
        message = message.astype(x.dtype)
        left = carried - message
        if self.rate is not None:
            rate = self._rate(step, x)
            left = jnp.where(rate != 0, left * rate, memory.residual + 0 * left)
        return kept_if(all_finite(left), Residual(left, inner), memory, message)

    def size(self, shape: tuple[int, ...], step: Any = 0) -> Any:
        """Return the bits of the compressor inside."""
        return self.compressor.size(shape, step)

    def message_size(self, message: jax.Array, step: Any = 0) -> Any:
        """Return the bits of the compressor inside."""
        return self.compressor.message_size(message, step)

    def write(self, memory: Residual, x: jax.Array, key: jax.Array, step: Any) -> np.ndarray:
        """Write what the compressor inside does."""
        return self.compressor.write(memory.inner, self._carried(memory, x, step), key, step)

    def read(
        self, bits: np.ndarray, shape: tuple[int, ...], key: jax.Array, step: Any
    ) -> tuple[jax.Array, int]:
        """Read what the compressor inside does."""
        return self.compressor.read(bits, shape, key, step)


def error_feedback(
    compressor: Any, decay: ArrayLike = 1.0, rate: Callable[[Any], Any] | None = None
) -> Any:
    """Add to each gradient what the messages before it left out.

    Sends m = C(g + decay e), and keeps e' = g + decay e - m: with decay 1 the messages and the
    residual add up to the gradients. With a rate, e is kept in units of the parameter,
    e' = rate(step) (g + decay e / rate(step) - m): then it is the sums of rate x message, and of
    rate x gradient, which agree, while the rate changes. Nothing is kept of a gradient that is not
    finite, or would leave a residual that is not; its message is not finite.

    The residual has the type of the gradient. In bfloat16, of 8 digits, what is added to it is
    rounded to 1/256 of it, and the sums drift apart: keep parameters, hence gradients, in float32.

    Args:
        compressor: one without such a memory, which does not send votes. Unbiased ones are to be
            had without scaling: with E|C(x) - x|^2 = omega |x|^2 the residual diverges if
            omega >= 1, and else is sqrt(E|g|^2 omega / (1 - omega)) in the root mean square.
        decay: of the residual, 0 to 1.
        rate: the learning rate of a worker's step, a function that JAX can trace (an optax
            schedule); each new function is another compile.

    Returns:
        A compressor; where the one given is in `whole` or `dense_below`, these are outermost.

    Raises:
        ValueError: if `decay` is out of its range, or the compressor has a memory, loses nothing or
            sends votes (`majority_sign`).

    Example:
        >>> from dtjax.compressors import top_k
        >>> compressor, x = error_feedback(top_k(0.25)), jnp.array([1.0, -9.0, 2.0, 0.5])
        >>> memory, message = compressor.compress(compressor.array_memory(x), x, None, 0)
        >>> message.tolist(), memory.residual.tolist()
        ([0.0, -9.0, 0.0, 0.0], [1.0, 0.0, 2.0, 0.5])

    Reference:
        Seide et al., "1-bit stochastic gradient descent", Interspeech 2014; Karimireddy et al.,
        "Error feedback fixes SignSGD and other gradient compression schemes", ICML 2019; with the
        rate: Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", NeurIPS 2018.
    """
    require_lossy("error_feedback", compressor)
    number = checks.real("error_feedback", "decay", decay, checks.PROBABILITY, ndim=0)
    if rate is not None and not callable(rate):
        raise checks.fail("error_feedback", "rate", "must be a function of the step", rate)
    return inside(compressor, lambda inner: ErrorFeedback(inner, number, rate))


def EXAMPLE() -> Any:  # noqa: N802
    """Return one for the conformance suite; made here, not at import, which starts no device."""
    return error_feedback(top_k(0.25))
