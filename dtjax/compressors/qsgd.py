"""QSGD: stochastic levels between 0 and the norm of a bucket."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from dtjax.compressors import _rounding, codecs
from dtjax.compressors.compressor import UNBIASED, Compressor
from dtjax.core import checks
from dtjax.core.pytree import pytree

FINEST = 2**16
"""Most levels: uniform numbers of 24 bits still have 8 bits between two of them."""


@pytree
@dataclass(frozen=True)
class QSGD(Compressor):
    """See `qsgd`."""

    levels: Any  # i[]
    bucket: int | None = field(default=512, metadata={"static": True})

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
        """Whether there is one bucket: zeros fill others."""
        return self.bucket is None

    def constant(self, shape: tuple[int, ...]) -> Any:
        """Return omega = min(b / levels^2, sqrt(b) / levels), b the entries of a bucket."""
        width = self._buckets(math.prod(shape))[1]
        if checks.is_concrete(self.levels):
            return min(width / float(self.levels) ** 2, math.sqrt(width) / float(self.levels))
        levels = jnp.asarray(self.levels, float)
        return jnp.minimum(width / levels**2, math.sqrt(width) / levels)

    def compress(self, memory: Any, x: jax.Array, key: jax.Array, step: Any) -> tuple[Any, Any]:
        """Return sign(x) norm level / levels, the level rounded at random."""
        del step
        norms, numbers = self._quantise(x, key)
        return memory, self._value(norms, numbers, x.shape)

    def size(self, shape: tuple[int, ...], step: Any = 0) -> Any:
        """Return 32 bits a bucket and 1 + ceil(log2(levels + 1)) bits an entry."""
        del step
        count = math.prod(shape)
        if checks.is_concrete(self.levels):
            width = int(self.levels).bit_length()
        else:
            width = (32 - lax.clz(jnp.asarray(self.levels).astype(jnp.int32))).astype(float)
        return 32 * self._buckets(count)[0] + count + count * width

    def write(self, memory: Any, x: jax.Array, key: jax.Array, step: Any) -> np.ndarray:
        """Write the norms, then the signs, then the levels."""
        del memory, step
        norms, numbers = jax.jit(type(self)._quantise)(self, x, key)
        entries = np.asarray(numbers).reshape(-1)[: x.size]
        # What the levels of a bucket are does not matter if its norm is not finite.
        levels = np.abs(np.where(np.isfinite(entries), entries, 0)).astype(np.int64)
        return np.concatenate(
            [
                codecs.write_floats(np.asarray(norms), np.float32),
                codecs.write_fixed(np.signbit(entries).astype(np.int64), 1),
                codecs.write_fixed(levels, int(self.levels).bit_length()),
            ]
        )

    def read(
        self, bits: np.ndarray, shape: tuple[int, ...], key: Any, step: Any
    ) -> tuple[jax.Array, int]:
        """Read norms, signs and levels."""
        del key, step
        count = math.prod(shape)
        rows, columns = self._buckets(count)
        width = int(self.levels).bit_length()
        ends = np.cumsum([32 * rows, count, count * width])
        norms = codecs.read_floats(bits[: ends[0]], np.float32, rows)
        signs = codecs.read_fixed(bits[ends[0] : ends[1]], 1, count)
        levels = codecs.read_fixed(bits[ends[1] : ends[2]], width, count).astype(np.float32)
        entries = np.zeros(rows * columns, np.float32)
        entries[:count] = np.where(signs == 1, -levels, levels)
        numbers = jnp.asarray(entries.reshape(rows, columns))
        return self._value(jnp.asarray(norms), numbers, shape), int(ends[2])

    def _buckets(self, count: int) -> tuple[int, int]:
        """Return how many buckets there are, and the entries of one."""
        width = count if self.bucket is None else min(self.bucket, count)
        return -(-count // max(width, 1)), width

    def _quantise(self, x: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the norms, f[buckets], and the signed levels, f[buckets, entries]."""
        rows, columns = self._buckets(x.size)
        entries = jnp.pad(_rounding.flat(x), (0, rows * columns - x.size)).reshape(rows, columns)
        norms = _rounding.norm(entries)
        unit = _rounding.at_least(norms / self._levels())
        exact = jnp.abs(entries) / unit[:, None]
        rounded = _rounding.stochastic(exact.reshape(-1), key).reshape(rows, columns)
        rounded = jnp.minimum(rounded, self._levels())  # a lone entry may be its norm and an ulp
        return norms, jnp.where(entries < 0, -rounded, rounded)

    def _value(self, norms: jax.Array, numbers: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        unit = norms / self._levels()
        return (numbers * unit[:, None]).reshape(-1)[: math.prod(shape)].reshape(shape)

    def _levels(self) -> jax.Array:
        return jnp.asarray(self.levels).astype(jnp.float32)


def qsgd(levels: ArrayLike, bucket: int | None = 512) -> QSGD:
    """Round to one of a few multiples of each bucket's norm, at random and without bias.

    C(x)_i = |x|_2 sign(x_i) l_i / levels, where l_i is levels |x_i| / |x|_2 rounded down or up,
    up with the probability of the fraction. E C(x) = x and E|C(x) - x|^2 <= omega |x|^2 with
    omega = min(b / levels^2, sqrt(b) / levels) for buckets of b entries: an error-feedback memory
    needs omega < 1, hence small buckets. 32 bits a bucket, 1 + ceil(log2(levels + 1)) an entry.

    A bucket whose norm / levels is below the least normal number, 1.2e-38, is sent as 0; one whose
    norm is not finite, as NaN.

    Args:
        levels: above 0, 1..65536; a traced number.
        bucket: consecutive entries that share a norm, zeros too; None: all of an array, as
            `compose` needs it. Static.

    Raises:
        ValueError: if a number is out of its range.

    Example:
        >>> qsgd(3, bucket=None).bits({"w": jnp.zeros((10, 3))})
        122
        >>> qsgd(64, bucket=512).constant((10_000,))
        0.125

    Reference:
        Alistarh et al., "QSGD: communication-efficient SGD via gradient quantization and
        encoding", NeurIPS 2017.
    """
    if checks.is_concrete(levels):
        if np.ndim(levels):
            raise checks.fail("qsgd", "levels", "must be one integer", levels)
        levels = jnp.int32(checks.integer("qsgd", "levels", levels, low=1, high=FINEST))
    if bucket is not None:
        checks.integer("qsgd", "bucket", bucket, low=1)
    return QSGD(levels, bucket)


EXAMPLE = partial(qsgd, 15, 512)
