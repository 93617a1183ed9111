"""TernGrad: every entry is -1, 0 or 1 times one scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dtjax.compressors import _rounding, codecs
from dtjax.compressors.compressor import NEITHER, UNBIASED, Compressor
from dtjax.core import checks
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class TernGrad(Compressor):
    """See `terngrad`."""

    clip: jax.Array | None = None  # f[]
    scale: jax.Array | None = None  # f[]

    @property
    def family(self) -> str:
        """UNBIASED; NEITHER where something is clipped."""
        return UNBIASED if self.clip is None and self.scale is None else NEITHER

    @property
    def deterministic(self) -> bool:
        """False."""
        return False

    @property
    def summable(self) -> bool:
        """Whether all the workers use one scale: then sums are of the integers -1, 0 and 1."""
        return self.scale is not None

    @property
    def keeps_zero(self) -> bool:
        """Whether nothing is clipped: a standard deviation is of the zeros too."""
        return self.clip is None

    def constant(self, shape: tuple[int, ...]) -> float | None:
        """Return omega = (sqrt(d) - 1) / 2 for d entries; None where something is clipped."""
        return (math.sqrt(math.prod(shape)) - 1) / 2 if self.family == UNBIASED else None

    def compress(self, memory: Any, x: jax.Array, key: jax.Array, step: Any) -> tuple[Any, Any]:
        """Return scale sign(x) with probability |x| / scale, else 0."""
        del step
        scale, signs = self._quantise(x, key)
        return memory, (signs * scale).reshape(x.shape)

    def size(self, shape: tuple[int, ...], step: Any = 0) -> int:
        """Return 2 bits an entry, and 32 unless the scale is known to all."""
        del step
        return 2 * math.prod(shape) + self._scale_bits()

    def write(self, memory: Any, x: jax.Array, key: jax.Array, step: Any) -> np.ndarray:
        """Write the scale, then 0, 1, 2 for -1 and 3 for what is not finite."""
        del memory, step
        scale, signs = jax.jit(type(self)._quantise)(self, x, key)
        entries = np.asarray(signs)
        codes = np.where(np.isnan(entries), 3, np.where(entries < 0, 2, entries == 1))
        head = np.asarray(scale).reshape(1)[: self._scale_bits() // 32]
        return np.concatenate(
            [codecs.write_floats(head, np.float32), codecs.write_fixed(codes.astype(np.int64), 2)]
        )

    def read(
        self, bits: np.ndarray, shape: tuple[int, ...], key: Any, step: Any
    ) -> tuple[jax.Array, int]:
        """Read the scale and the signs."""
        del key, step
        count, head = math.prod(shape), self._scale_bits()
        codes = codecs.read_fixed(bits[head : head + 2 * count], 2, count)
        signs = np.array([0, 1, -1, np.nan], np.float32)[codes]
        scale = self.scale
        if scale is None:
            scale = jnp.asarray(codecs.read_floats(bits[:head], np.float32, 1))[0]
        return (jnp.asarray(signs) * scale.astype(jnp.float32)).reshape(shape), head + 2 * count

    def _scale_bits(self) -> int:
        return 32 if self.scale is None else 0

    def _quantise(self, x: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the scale, f[], and the signs, f[d]: NaN where an entry is not finite."""
        entries = _rounding.flat(x)
        scale = _rounding.top(entries)
        size = jnp.abs(entries)
        if self.clip is not None:
            spread = _rounding.norm(entries) * jnp.float32(1 / math.sqrt(entries.shape[0]))
            limit = self.clip.astype(jnp.float32) * spread
            scale, size = jnp.minimum(scale, limit), jnp.minimum(size, limit)
        if self.scale is not None:
            scale = self.scale.astype(jnp.float32)
        sent = _rounding.fractions(key, x.size) < size / _rounding.at_least(scale)
        signs = jnp.where(sent, jnp.where(entries < 0, -1.0, 1.0), 0.0).astype(jnp.float32)
        return scale, jnp.where(jnp.isfinite(entries), signs, jnp.nan)


def terngrad(clip: ArrayLike | None = 2.5, scale: ArrayLike | None = None) -> TernGrad:
    """Send the sign of each entry with a probability that makes the message unbiased.

    C(x)_i = max|x| sign(x_i) with probability |x_i| / max|x|, else 0. Without clipping E C(x) = x
    and E|C(x) - x|^2 = max|x| |x|_1 - |x|^2 <= omega |x|^2, omega = (sqrt(d) - 1) / 2. Clipping
    makes the maximum small, hence the variance, and biases. 2 bits an entry, 32 for the scale.

    Args:
        clip: entries above this many standard deviations (about 0, of the array) are clipped to
            them first; positive; None: no clipping, as `compose` needs it. A traced number.
        scale: of all the workers, at least 0, in place of max|x|; what is above is clipped to it.
            Messages can then be summed in transit, and no scale is sent. A traced number.

    Raises:
        ValueError: if a number is out of its range.

    Example:
        >>> x = jnp.array([1.0, -1.0, 0.0])  # all or nothing: nothing is random
        >>> terngrad(clip=None).compress((), x, jax.random.key(0), 0)[1].tolist()
        [1.0, -1.0, 0.0]
        >>> terngrad().bits({"w": jnp.zeros((10, 3))})
        92

    Reference:
        Wen et al., "TernGrad: ternary gradients to reduce communication in distributed deep
        learning", NeurIPS 2017.
    """
    if clip is not None:
        clip = checks.real("terngrad", "clip", clip, checks.POSITIVE, ndim=0)
    if scale is not None:
        scale = checks.real("terngrad", "scale", scale, checks.NON_NEGATIVE, ndim=0)
    return TernGrad(clip, scale)


EXAMPLE = partial(terngrad, None)
