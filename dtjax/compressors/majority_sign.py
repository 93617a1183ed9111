"""SignSGD with majority vote: one bit an entry each way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.compressors import codecs
from dtjax.compressors.compressor import NEITHER, Compressor
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class MajoritySign(Compressor):
    """See `majority_sign`."""

    @property
    def family(self) -> str:
        """NEITHER: a message does not know how long the gradient is."""
        return NEITHER

    def compress(self, memory: Any, x: jax.Array, key: Any, step: Any) -> tuple[Any, jax.Array]:
        """Return 1 or -1 by the sign of x, in turns for 0; NaN for entries that are not finite."""
        del key
        signs = jnp.where(_below(x, step), -1.0, 1.0).astype(x.dtype)
        return memory, jnp.where(jnp.isfinite(x), signs, jnp.nan)

    def decode(self, average: Any) -> Any:
        """Return the vote, the sign of the workers' average, 0 at a tie: what the server applies.

        Args:
            average: a tree of arrays.
        """
        return jax.tree.map(jnp.sign, average)

    def size(self, shape: tuple[int, ...], step: Any = 0) -> int:
        """Return 1 bit an entry."""
        del step
        return math.prod(shape)

    def write(self, memory: Any, x: jax.Array, key: Any, step: Any) -> np.ndarray:
        """Write 1 for each entry that is sent as -1."""
        del memory, key
        return codecs.write_fixed(np.asarray(_below(x, step)).reshape(-1).astype(np.int64), 1)

    def read(
        self, bits: np.ndarray, shape: tuple[int, ...], key: Any, step: Any
    ) -> tuple[jax.Array, int]:
        """Read the signs."""
        del key, step
        count = math.prod(shape)
        below = codecs.read_fixed(bits[:count], 1, count)
        return jnp.asarray(1 - 2 * below.astype(np.float32)).reshape(shape), count


def _below(x: jax.Array, step: Any) -> jax.Array:
    odd = jnp.asarray(step) % 2 == 1
    return (x < 0) | ((x == 0) & odd)


def majority_sign() -> MajoritySign:
    """Send the signs of the entries; the server takes a vote.

    C(x) = sign(x); the server applies `decode` of the average, sign(sum_i C(x_i)), 0 at a tie (a
    weighted average makes it a weighted vote). The length of a step is then the learning rate
    alone. d bits each way. Signs cannot be summed in transit but as counts, of log2(n + 1) bits.

    In `dense_below` no vote is taken on the tensors that are sent as they are. No memory of what
    was not sent goes with votes: a sign says nothing of how much was.

    One bit has no place for 0: such an entry is sent as 1 at a worker's even steps and as -1 at
    its odd ones, so that a parameter whose gradient is always 0 stays within a step of where it
    is. Nor has it one for NaN: `compress` reports it, while bytes cannot, and `pack` writes 1.

    Example:
        >>> votes = [majority_sign().compress((), x, None, 0)[1] for x in jnp.eye(3) - 0.5]
        >>> majority_sign().decode(sum(votes)).tolist()
        [-1.0, -1.0, -1.0]

    Reference:
        Bernstein et al., "signSGD with majority vote is communication efficient and fault
        tolerant", ICLR 2019.
    """
    return MajoritySign()


EXAMPLE = majority_sign
