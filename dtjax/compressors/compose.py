"""A sparsifier, then a quantiser of the values that it keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.compressors._scope import innermost, inside
from dtjax.compressors.compressor import CONTRACTIVE, NEITHER, UNBIASED, Compressor
from dtjax.compressors.error_feedback import require_forgetful
from dtjax.compressors.natural import natural
from dtjax.compressors.top_k import Sparsifier, top_k
from dtjax.core import checks, random
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class Composition(Compressor):
    """See `compose`."""

    sparsifier: Any
    quantiser: Any

    @property
    def _families(self) -> tuple[str, str]:
        return self.sparsifier.family, self.quantiser.family

    @property
    def family(self) -> str:
        """That of the sparsifier, if the quantiser is of the same one or unbiased."""
        first, second = self._families
        return first if second in (first, UNBIASED) else NEITHER

    @property
    def deterministic(self) -> bool:
        """Whether both are."""
        return self.sparsifier.deterministic and self.quantiser.deterministic

    @property
    def sized(self) -> bool:
        """Whether both are."""
        return self.sparsifier.sized and self.quantiser.sized

    @property
    def shared(self) -> bool:
        """Whether the places are: not where a quantiser would round alike in all the workers."""
        return self.sparsifier.shared and self.quantiser.deterministic

    @property
    def summable(self) -> bool:
        """Whether both are, and the places of all the workers the same."""
        return self.shared and self.sparsifier.summable and self.quantiser.summable

    @property
    def remembers(self) -> bool:
        """That of the quantiser."""
        return self.quantiser.remembers

    def constant(self, shape: tuple[int, ...]) -> Any:
        """Return omega or delta of both; None: not known, or above the step from 1 to 0."""
        first, second = self.sparsifier.constant(shape), self.quantiser.constant(shape)
        if self.family == NEITHER or first is None or second is None:
            return None
        if self.family == UNBIASED:
            return (1 + first) * (1 + second) - 1
        left = second if self.quantiser.family == CONTRACTIVE else 1 - second
        # An unbiased quantiser that loses more than everything makes no contraction.
        return first * left if not checks.is_concrete(left) or left > 0 else None

    def array_memory(self, x: jax.Array) -> Any:
        """Return what the quantiser keeps."""
        return self.quantiser.array_memory(x)

    def compress(
        self, memory: Any, x: jax.Array, key: jax.Array, step: jax.Array
    ) -> tuple[Any, jax.Array]:
        """Keep some entries, then quantise the array with zeros elsewhere."""
        kept = self.sparsifier.compress((), x, key, step)[1]
        return self.quantiser.compress(memory, kept, self._second(key), step)

    def _second(self, key: Any) -> Any:
        """Return the quantiser's key, not that of the places."""
        return key if self.quantiser.deterministic else random.fold(key, 1)

    def size(self, shape: tuple[int, ...], step: Any = 0) -> Any:
        """Return the bits of the indices, and of k values quantised."""
        k, d = self.sparsifier.kept(shape, step), math.prod(shape)
        if isinstance(k, int):
            values = self.quantiser.size((k,), step)
        else:  # sizes follow shapes, which are static: between one entry and all, a straight line
            one, every = (self.quantiser.size((count,), step) for count in (1, d))
            values = one + (k - 1).astype(float) * ((every - one) / max(d - 1, 1))
        return self.sparsifier.index_size(shape, step) + values

    def write(self, memory: Any, x: jax.Array, key: jax.Array, step: Any) -> np.ndarray:
        """Write the places, then the quantiser's message of the values."""
        self._require_codec()
        bits, places = self.sparsifier.write_places(x, key)
        values = self.sparsifier.compress((), x, key, step)[1].reshape(-1)[places]
        return np.concatenate([bits, self.quantiser.write(memory, values, key, step)])

    def read(
        self, bits: np.ndarray, shape: tuple[int, ...], key: jax.Array, step: Any
    ) -> tuple[jax.Array, int]:
        """Read the places, then the quantiser's message of the values."""
        self._require_codec()
        places, used = self.sparsifier.read_places(bits, shape, key)
        values, length = self.quantiser.read(bits[used:], (len(places),), key, step)
        message = jnp.zeros(math.prod(shape)).at[places].set(values)
        return message.reshape(shape), used + length

    def _require_codec(self) -> None:
        """Raise where the values alone, out of their places, would be rounded otherwise."""
        if not self.quantiser.deterministic:
            raise NotImplementedError("Composition: no codec for a quantiser that rounds at random")


def compose(sparsifier: Any, quantiser: Any) -> Any:
    """Quantise what a sparsifier keeps.

    C(x) = Q(S(x)). Its bits are those of S's indices and of Q's message of k values. Both unbiased:
    omega = (1 + omega_S) (1 + omega_Q) - 1; both contractive: delta = delta_S delta_Q; S
    contractive, Q unbiased: delta = delta_S (1 - omega_Q) where that is positive.

    The places that were kept are not in a message, where the quantiser may have put zeros: of
    Golomb-Rice indices, and of `threshold`, `message_bits` is a bound.

    Args:
        sparsifier: `top_k` or `random_k`. Workers draw places of their own where the quantiser
            rounds at random: with shared random numbers its noise would not average out.
        quantiser: a compressor that keeps zeros and does not look at them (`keeps_zero`), without a
            memory of what was not sent: `natural`, `int8`, those of floats, `qsgd` with
            `bucket=None`, or `terngrad` with `clip=None`.

    Returns:
        A compressor; where the sparsifier is in `whole` or `dense_below`, these are outermost.

    Raises:
        ValueError: if the first is no such sparsifier, or the second has a memory or does not keep
            zeros.

    Example:
        >>> from dtjax.compressors import random_k
        >>> compressor = compose(random_k(0.5), natural())
        >>> compressor.constant((8,)), compressor.bits(jnp.zeros(8))
        (1.25, 36)

    Reference:
        Basu et al., "Qsparse-local-SGD: distributed SGD with quantization, sparsification and local
        computations", NeurIPS 2019.
    """
    if not isinstance(innermost(sparsifier), Sparsifier):
        raise checks.fail("compose", "sparsifier", "must be top_k or random_k", sparsifier)
    require_forgetful("compose", quantiser)
    if not quantiser.keeps_zero:
        rule = "must keep zeros and not look at them (qsgd: bucket=None; terngrad: clip=None)"
        raise checks.fail("compose", "quantiser", rule, quantiser)
    return inside(sparsifier, lambda inner: Composition(inner, quantiser))


def EXAMPLE() -> Any:  # noqa: N802
    """Return one for the conformance suite; made here, not at import, which starts no device."""
    return compose(top_k(0.25), natural())
