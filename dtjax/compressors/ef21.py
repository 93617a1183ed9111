"""EF21: workers send how their gradient differs from what the server has of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.compressors._largest import all_finite
from dtjax.compressors._scope import inside
from dtjax.compressors.compressor import CONTRACTIVE, NEITHER, Around
from dtjax.compressors.error_feedback import kept_if, require_lossy
from dtjax.compressors.top_k import top_k
from dtjax.core import checks
from dtjax.core.pytree import pytree


class Estimate(NamedTuple):
    """What is kept of one tensor."""

    estimate: jax.Array  # like the gradient: what the receiver has
    inner: Any  # what the compressor inside keeps


@pytree
@dataclass(frozen=True)
class EF21(Around):
    """See `ef21`."""

    accumulates = True

    @property
    def family(self) -> str:
        """NEITHER: a message is not of one gradient alone."""
        return NEITHER

    @property
    def remembers(self) -> bool:
        """True."""
        return True

    def array_memory(self, x: jax.Array) -> Estimate:
        """Return an estimate of zeros."""
        return Estimate(jnp.zeros_like(x), self.compressor.array_memory(x))

    def compress(
        self, memory: Estimate, x: jax.Array, key: jax.Array, step: jax.Array
    ) -> tuple[Estimate, jax.Array]:
        """Move the estimate towards the gradient."""
        change = x - memory.estimate
        inner, sent = self.compressor.compress(memory.inner, change, key, step)
        estimate = memory.estimate + sent.astype(x.dtype)
        # Check the change too: an entry that is not finite may not have been sent.
        good = all_finite(estimate + change)
        return kept_if(good, Estimate(estimate, inner), memory, estimate)

    def size(self, shape: tuple[int, ...], step: Any = 0) -> Any:
        """Return the bits of the compressor inside."""
        return self.compressor.size(shape, step)

    def write(self, memory: Estimate, x: jax.Array, key: jax.Array, step: Any) -> np.ndarray:
        """Write the change of the estimate."""
        return self.compressor.write(memory.inner, x - memory.estimate, key, step)

    def read(
        self, bits: np.ndarray, shape: tuple[int, ...], key: jax.Array, step: Any
    ) -> tuple[jax.Array, int]:
        """Read the change, which a receiver adds to the message before."""
        return self.compressor.read(bits, shape, key, step)


def ef21(compressor: Any) -> Any:
    """Send the compressed change of the gradient; the receiver adds it to what it has.

    g' = g + C(gradient - g), from g = 0: what the receiver reads, and the worker keeps, is g'.
    Nothing is kept of a gradient that is not finite; its message is not finite. What is kept has
    the type of the gradient, and in bfloat16 is rounded at every step, see `error_feedback`. Which
    places were sent is not in the message: of Golomb-Rice indices `message_bits` is a bound.

    Args:
        compressor: a contractive one without a memory of what was not sent, and that loses
            something.

    Returns:
        A compressor; where the one given is in `whole` or `dense_below`, these are outermost.

    Raises:
        ValueError: if the compressor is not contractive, has such a memory, or loses nothing.

    Example:
        >>> from dtjax.compressors import top_k
        >>> compressor, x = ef21(top_k(0.25)), jnp.array([1.0, -9.0, 2.0, 0.5])
        >>> memory, message = compressor.compress(compressor.array_memory(x), x, None, 0)
        >>> compressor.compress(memory, x, None, 1)[1].tolist()
        [0.0, -9.0, 2.0, 0.0]

    Reference:
        Richtarik, Sokolov and Fatkhullin, "EF21: a new, simpler, theoretically better, and
        practically faster error feedback", NeurIPS 2021.
    """
    require_lossy("ef21", compressor)
    if compressor.family != CONTRACTIVE:
        rule = f"must be contractive, not {compressor.family}"
        raise checks.fail("ef21", "compressor", rule, compressor)
    return inside(compressor, EF21)


def EXAMPLE() -> Any:  # noqa: N802
    """Return one for the conformance suite; made here, not at import, which starts no device."""
    return ef21(top_k(0.25))
