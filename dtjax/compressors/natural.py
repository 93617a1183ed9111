"""Natural compression: powers of two, rounded at random."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dtjax.compressors import _rounding, codecs
from dtjax.compressors.compressor import UNBIASED, Compressor
from dtjax.core.pytree import pytree

FRACTION = 23  # bits of a binary32 number below the exponent
WIDTH = 9  # bits of its sign and exponent


@pytree
@dataclass(frozen=True)
class Natural(Compressor):
    """See `natural`."""

    @property
    def family(self) -> str:
        """UNBIASED."""
        return UNBIASED

    @property
    def deterministic(self) -> bool:
        """False."""
        return False

    @property
    def keeps_zero(self) -> bool:
        """True."""
        return True

    def constant(self, shape: tuple[int, ...]) -> float:
        """Return omega = 1 / 8, reached at 4 / 3 of a power of two."""
        del shape
        return 0.125

    def compress(self, memory: Any, x: jax.Array, key: jax.Array, step: Any) -> tuple[Any, Any]:
        """Return one of the powers of two around each entry."""
        del step
        return memory, _value(_quantise(x, key)).reshape(x.shape)

    def size(self, shape: tuple[int, ...], step: Any = 0) -> int:
        """Return 9 bits an entry."""
        del step
        return WIDTH * math.prod(shape)

    def write(self, memory: Any, x: jax.Array, key: jax.Array, step: Any) -> np.ndarray:
        """Write sign and exponent of each entry."""
        del memory, step
        return codecs.write_fixed(np.asarray(jax.jit(_quantise)(x, key)).astype(np.int64), WIDTH)

    def read(
        self, bits: np.ndarray, shape: tuple[int, ...], key: Any, step: Any
    ) -> tuple[jax.Array, int]:
        """Read signs and exponents."""
        del key, step
        count = math.prod(shape)
        codes = codecs.read_fixed(bits[: WIDTH * count], WIDTH, count)
        return _value(jnp.asarray(codes).astype(jnp.uint32)).reshape(shape), WIDTH * count


def _quantise(x: jax.Array, key: jax.Array) -> jax.Array:
    """Return sign and exponent of each entry, u32[d]: the highest 9 bits of a binary32 number.

    A random number below one unit of the exponent is added to the bits: they carry into the
    exponent with the probability of the fraction, and so does a subnormal number.
    """
    number = lax.bitcast_convert_type(_rounding.flat(x), jnp.uint32)
    noise = _rounding.bits(key, x.size, FRACTION)
    size = ((number & jnp.uint32(0x7FFFFFFF)) + noise) >> jnp.uint32(FRACTION)
    return ((number >> jnp.uint32(31)) << jnp.uint32(8)) | jnp.minimum(size, jnp.uint32(255))


def _value(codes: jax.Array) -> jax.Array:
    value = lax.bitcast_convert_type(codes << jnp.uint32(FRACTION), jnp.float32)
    return jnp.where(jnp.isfinite(value), value, jnp.nan)


def natural() -> Natural:
    """Round to a power of two, at random and without bias.

    C(x) = sign(x) 2^e with probability 2 - |x| / 2^e, else sign(x) 2^(e + 1), where
    2^e <= |x| < 2^(e + 1). E C(x) = x and E|C(x) - x|^2 <= |x|^2 / 8. 9 bits an entry: sign and
    exponent of a binary32 number.

    Exponent 0 says 0: numbers below 2^-126 become 0 or 2^-126, still without bias. Exponent 255
    says NaN: entries that are not finite, and a number above 2^127 that is rounded up.

    Example:
        >>> x = jnp.array([-0.5, 0.0, 4.0])  # powers of two: nothing is random
        >>> natural().compress((), x, jax.random.key(0), 0)[1].tolist()
        [-0.5, 0.0, 4.0]
        >>> natural().bits({"w": x})
        27

    Reference:
        Horvath et al., "Natural compression for distributed deep learning", MSML 2022.
    """
    return Natural()


EXAMPLE = natural
