"""One-bit SGD: the sign of each entry, and two means a column."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.compressors import _rounding, codecs
from dtjax.compressors.compressor import CONTRACTIVE, Compressor
from dtjax.core import compensated
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class OneBit(Compressor):
    """See `one_bit`."""

    @property
    def family(self) -> str:
        """CONTRACTIVE."""
        return CONTRACTIVE

    def constant(self, shape: tuple[int, ...]) -> float:
        """Return delta = 1 / rows, reached where one entry of a column alone is not 0."""
        return 1 / max(_grid(shape)[0], 1)

    def compress(self, memory: Any, x: jax.Array, key: Any, step: Any) -> tuple[Any, jax.Array]:
        """Return the mean of an entry's side of its column."""
        del key, step
        low, high, above = _quantise(x)
        return memory, _value(low, high, above).reshape(x.shape)

    def size(self, shape: tuple[int, ...], step: Any = 0) -> int:
        """Return 1 bit an entry and 64 a column."""
        del step
        return math.prod(shape) + 64 * _grid(shape)[1]

    def write(self, memory: Any, x: jax.Array, key: Any, step: Any) -> np.ndarray:
        """Write the means below 0, those of the rest, then 1 for each entry of the rest."""
        del memory, key, step
        low, high, above = jax.jit(_quantise)(x)
        means = np.concatenate([np.asarray(low), np.asarray(high)])
        sides = np.asarray(above).reshape(-1).astype(np.int64)
        return np.concatenate(
            [codecs.write_floats(means, np.float32), codecs.write_fixed(sides, 1)]
        )

    def read(
        self, bits: np.ndarray, shape: tuple[int, ...], key: Any, step: Any
    ) -> tuple[jax.Array, int]:
        """Read the means and the sides."""
        del key, step
        (rows, columns), count = _grid(shape), math.prod(shape)
        head = 64 * columns
        means = jnp.asarray(codecs.read_floats(bits[:head], np.float32, 2 * columns))
        above = codecs.read_fixed(bits[head : head + count], 1, count).reshape(rows, columns) == 1
        value = _value(means[:columns], means[columns:], jnp.asarray(above))
        return value.reshape(shape), head + count


def _grid(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the rows and columns of an array: a vector is one column."""
    columns = shape[-1] if len(shape) > 1 else 1
    return math.prod(shape) // max(columns, 1), columns


def _quantise(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the means below 0 and of the rest, f[columns] each, and which are the rest."""
    entries = _rounding.flat(x).reshape(_grid(x.shape))
    above = entries >= 0
    zero = jnp.zeros_like(entries)
    count = compensated.total(above.astype(jnp.int32))
    others = jnp.maximum(entries.shape[0] - count, 1).astype(jnp.float32)
    low = _rounding.mean(jnp.where(above, zero, entries), others)  # also what is not a number
    high = _rounding.mean(
        jnp.where(above, entries, zero), jnp.maximum(count, 1).astype(jnp.float32)
    )
    return low, high, above


def _value(low: jax.Array, high: jax.Array, above: jax.Array) -> jax.Array:
    return jnp.where(above, high[None], low[None])


def one_bit() -> OneBit:
    """Send which entries are below 0, and for each column the means of both sides.

    C(x)_ij = mean of {x_kj >= 0} where x_ij >= 0, else mean of {x_kj < 0}. For these sides no
    numbers are nearer to x, so that |C(x) - x|^2 is at most the scaled sign's, and
    delta >= 1 / rows. d + 64 bits a column, where a column is what the last axis counts (the
    weights into one unit) and a vector is one column.

    An entry that is 0 counts with those above 0: among others it is sent as their mean. With an
    error-feedback memory the residual takes it back, and the parameter stays within one mean of
    where it is; without one it drifts. A column of zeros is sent as 0.

    Example:
        >>> x = jnp.array([[3.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
        >>> one_bit().compress((), x, None, 0)[1].tolist()
        [[2.0, 0.0], [2.0, 0.0], [-1.0, 0.0]]
        >>> one_bit().bits({"w": x})
        134

    Reference:
        Seide et al., "1-bit stochastic gradient descent and its application to data-parallel
        distributed training of speech DNNs", Interspeech 2014.
    """
    return OneBit()


EXAMPLE = one_bit
