"""Eight-bit integers with one scale."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.compressors import _rounding, codecs
from dtjax.compressors.compressor import CONTRACTIVE, UNBIASED, Compressor
from dtjax.core import checks
from dtjax.core.pytree import pytree

TOP = 127


@pytree
@dataclass(frozen=True)
class Int8(Compressor):
    """See `int8`."""

    stochastic: bool = field(default=True, metadata={"static": True})

    @property
    def family(self) -> str:
        """UNBIASED; CONTRACTIVE if rounded to nearest."""
        return UNBIASED if self.stochastic else CONTRACTIVE

    @property
    def deterministic(self) -> bool:
        """Whether rounded to nearest."""
        return not self.stochastic

    @property
    def keeps_zero(self) -> bool:
        """True."""
        return True

    def constant(self, shape: tuple[int, ...]) -> float:
        """Return omega or delta, see `int8`."""
        others = max(math.prod(shape), 1) - 1
        if self.stochastic:
            return (math.sqrt(1 + others / TOP**2) - 1) / 2
        return 4 * TOP**2 / (4 * TOP**2 + others)

    def compress(self, memory: Any, x: jax.Array, key: jax.Array, step: Any) -> tuple[Any, Any]:
        """Return the nearest multiple of the scale, or one of the two at random."""
        del step
        scale, numbers = self._quantise(x, key)
        return memory, (numbers * scale).reshape(x.shape)

    def size(self, shape: tuple[int, ...], step: Any = 0) -> int:
        """Return 8 bits an entry and 32."""
        del step
        return 8 * math.prod(shape) + 32

    def write(self, memory: Any, x: jax.Array, key: jax.Array, step: Any) -> np.ndarray:
        """Write the scale, then the integers above -127."""
        del memory, step
        scale, numbers = jax.jit(type(self)._quantise)(self, x, key)
        # What the integers are does not matter if the scale is not finite.
        codes = np.nan_to_num(np.asarray(numbers)).astype(np.int64) + TOP
        return np.concatenate(
            [
                codecs.write_floats(np.asarray(scale).reshape(1), np.float32),
                codecs.write_fixed(codes, 8),
            ]
        )

    def read(
        self, bits: np.ndarray, shape: tuple[int, ...], key: Any, step: Any
    ) -> tuple[jax.Array, int]:
        """Read the scale and the integers."""
        del key, step
        count = math.prod(shape)
        scale = codecs.read_floats(bits[:32], np.float32, 1)
        numbers = codecs.read_fixed(bits[32 : 32 + 8 * count], 8, count).astype(np.float32) - TOP
        return (jnp.asarray(numbers) * jnp.asarray(scale)[0]).reshape(shape), 32 + 8 * count

    def _quantise(self, x: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the scale, f[], and the integers, f[d]."""
        entries = _rounding.flat(x)
        scale = _rounding.top(entries) * jnp.float32(1 / TOP)
        exact = entries / _rounding.at_least(scale)
        number = _rounding.stochastic(exact, key) if self.stochastic else jnp.round(exact)
        return scale, jnp.clip(number, -TOP, TOP)


def int8(stochastic: bool = True) -> Int8:
    """Round to integers between -127 and 127 times a scale.

    C(x)_i = scale round(x_i / scale), scale = max|x| / 127. 8 d + 32 bits.

    Rounded at random, up with the probability of the fraction: E C(x) = x, and
    E|C(x) - x|^2 <= d scale^2 / 4 (always |C(x) - x|^2 < d scale^2). Relative to |x|^2 the worst
    array, of one entry at the maximum and d - 1 others of one size below the scale, has
    omega = (sqrt(1 + (d - 1) / 127^2) - 1) / 2.

    Rounded to nearest: the worst array, with d - 1 entries of half a scale, has
    delta = 4 127^2 / (4 127^2 + d - 1).

    An array whose maximum is below 1.5e-36 is sent as 0 (the scale is not a normal number).

    Args:
        stochastic: whether to round at random, else to nearest. Static.

    Raises:
        ValueError: if `stochastic` is not a bool.

    Example:
        >>> x = jnp.array([127.0, -2.0, 0.0])
        >>> int8().compress((), x, jax.random.key(0), 0)[1].tolist()
        [127.0, -2.0, 0.0]
        >>> int8().bits({"w": x})
        56

    Reference:
        Dettmers, "8-bit approximations for parallelism in deep learning", ICLR 2016; both
        constants are derived here.
    """
    if not isinstance(stochastic, bool):
        raise checks.fail("int8", "stochastic", "must be True or False", stochastic)
    return Int8(stochastic)


EXAMPLE = partial(int8, True)
