"""PowerSGD: two thin factors of each matrix, by one step of a subspace iteration."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dtjax.compressors import _rounding, codecs
from dtjax.compressors.compressor import CONTRACTIVE, Compressor
from dtjax.core import checks, compensated, random
from dtjax.core.pytree import pytree

FEW = 4  # columns: on CPU, under `vmap`, a product each is faster than one with a thin matrix
DEPENDENT = 1e-6  # what is left of a column that lies in the span of those before: rounding


@pytree
@dataclass(frozen=True)
class PowerSGD(Compressor):
    """See `power_sgd`."""

    rank: int = field(metadata={"static": True})
    warm_start: bool = field(default=True, metadata={"static": True})

    @property
    def family(self) -> str:
        """CONTRACTIVE: what is sent is a projection."""
        return CONTRACTIVE

    @property
    def deterministic(self) -> bool:
        """Whether Q is remembered, else drawn."""
        return self.warm_start

    @property
    def summable(self) -> bool:
        """True: P is summed before it is orthogonalised, then Q, see `power_sgd_round`."""
        return True

    @property
    def shared(self) -> bool:
        """True: all the workers multiply by the same Q."""
        return True

    @property
    def remembers(self) -> bool:
        """Whether Q is remembered."""
        return self.warm_start

    @property
    def keeps_zero(self) -> bool:
        """False: only whole rows and columns of zeros stay so."""
        return False

    def constant(self, shape: tuple[int, ...]) -> float | None:
        """Return delta = rank / smaller side, of a fresh Q; None for a remembered one."""
        sides = self._sides(shape)
        if sides is None:
            return 1.0
        return None if self.warm_start else self.rank / min(sides)

    def array_memory(self, x: jax.Array) -> Any:
        """Return Q before the first gradient, f[n, rank]: the same for all the workers."""
        sides = self._sides(x.shape)
        if sides is None or not self.warm_start:
            return ()
        return _start(jax.random.key(0, impl=random.DEFAULT), sides[1], self.rank)

    def compress(self, memory: Any, x: jax.Array, key: jax.Array, step: Any) -> tuple[Any, Any]:
        """Return P P^T x with P an orthonormal basis of the range of x Q."""
        del step
        sides = self._sides(x.shape)
        if sides is None:
            return memory, x
        p, q = self._factors(memory, x, key)
        after = _remembered(q, memory) if self.warm_start else memory
        return after, _product(p, q).reshape(x.shape)

    def size(self, shape: tuple[int, ...], step: Any = 0) -> int:
        """Return 32 rank (m + n) bits of a matrix, 32 d of a vector."""
        del step
        sides = self._sides(shape)
        return 32 * (math.prod(shape) if sides is None else self.rank * sum(sides))

    def write(self, memory: Any, x: jax.Array, key: jax.Array, step: Any) -> np.ndarray:
        """Write P, then Q."""
        del step
        if self._sides(x.shape) is None:
            return codecs.write_floats(np.asarray(x).reshape(-1), np.float32)
        factors = [
            np.asarray(part).reshape(-1)
            for part in jax.jit(type(self)._factors)(self, memory, x, key)
        ]
        return codecs.write_floats(np.concatenate(factors), np.float32)

    def read(
        self, bits: np.ndarray, shape: tuple[int, ...], key: Any, step: Any
    ) -> tuple[jax.Array, int]:
        """Read P and Q."""
        del key, step
        end, sides = self.size(shape), self._sides(shape)
        numbers = jnp.asarray(codecs.read_floats(bits[:end], np.float32, end // 32))
        if sides is None:
            return numbers.reshape(shape), end
        cut = sides[0] * self.rank
        p, q = numbers[:cut].reshape(-1, self.rank), numbers[cut:].reshape(-1, self.rank)
        return _product(p, q).reshape(shape), end

    def _sides(self, shape: tuple[int, ...]) -> tuple[int, int] | None:
        """Return the sides of the matrix that an array is sent as; None if it is sent as it is.

        Raises:
            ValueError: if it has less rows or columns than the rank.
        """
        if len(shape) < 2 or not math.prod(shape):
            return None
        sides = math.prod(shape[:-1]), shape[-1]
        if self.rank > min(sides):
            rule = f"must be at most the smaller side of the {sides[0]} x {sides[1]} matrix of"
            raise checks.fail("power_sgd", "rank", f"{rule} a tensor of shape {shape}", self.rank)
        return sides

    def _factors(self, memory: Any, x: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        matrix = _rounding.flat(x).reshape(-1, x.shape[-1])
        q = memory if self.warm_start else _start(key, matrix.shape[1], self.rank)
        scale = _rounding.top(matrix.reshape(-1))  # so that no square overflows or underflows
        unit = matrix / _rounding.at_least(scale)
        p = orthonormal(_times(unit, q))
        return p, _times(unit.T, p) * scale


def _start(key: jax.Array, rows: int, rank: int) -> jax.Array:
    """Return a Gaussian matrix, f[rows, rank]."""
    words = (random.stream(key, 2 * rows * rank) >> jnp.uint32(8)).astype(jnp.int32)
    u = ((words.astype(jnp.float32) + 0.5) * jnp.float32(2.0**-24)).reshape(2, rows, rank)
    return jnp.sqrt(-2.0 * jnp.log(u[0])) * jnp.cos(jnp.float32(2 * math.pi) * u[1])


def _times(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the product of two matrices, the second one thin."""
    times = partial(jnp.matmul, precision=lax.Precision.HIGHEST)
    if b.shape[1] > FEW:
        return times(a, b)
    return jnp.stack([times(a, column) for column in b.T], axis=1)


def _product(p: jax.Array, q: jax.Array) -> jax.Array:
    """Return P Q^T, the same bits for sender and receiver, however their programs are compiled."""
    terms = [compensated.rounded(a[:, None] * b[None]) for a, b in zip(p.T, q.T, strict=True)]
    return sum(terms[1:], start=terms[0])


def _remembered(q: jax.Array, before: jax.Array) -> jax.Array:
    """Return Q, its columns scaled to a maximum of 1; the one before where one says nothing.

    A matrix of zeros, or of a lower rank, has such columns: they would be zero for ever.
    """
    scale = _rounding.top(q.T)
    good = (scale > 0) & jnp.isfinite(scale)
    return jnp.where(good[None], q / jnp.where(good, scale, 1.0)[None], before)


def orthonormal(matrix: jax.Array) -> jax.Array:
    """Return orthonormal columns with the span of the matrix's, and 0 for dependent ones.

    Gram-Schmidt, twice: the second pass takes away what rounding left.

    Args:
        matrix: f[m, r].

    Returns:
        f[m, r]; zeros for a matrix of zeros.

    Example:
        >>> orthonormal(jnp.array([[3.0, 3.0, 1.0], [0.0, 0.0, 2.0]])).tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    columns: list[jax.Array] = []
    for place in range(matrix.shape[1]):
        column = matrix[:, place]
        column = column / _rounding.at_least(_rounding.top(column))
        for _ in range(2):
            for other in columns:
                column = column - jnp.sum(column * other) * other
        length = jnp.sqrt(jnp.sum(jnp.square(column)))
        good = length > DEPENDENT
        columns.append(jnp.where(good, column / jnp.where(good, length, 1.0), 0.0))
    return jnp.stack(columns, axis=1)


def power_sgd_round(gradients: jax.Array, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Run the protocol of several workers: two sums in transit, P then Q.

    P = orthonormal(sum_i G_i Q), Q' = sum_i G_i^T P, and all read P Q'^T: as compressing the sum.

    Args:
        gradients: f[workers, m, n].
        q: f[n, rank], the same for all.

    Returns:
        What is read of the sum, f[m, n], and Q', f[n, rank].

    Example:
        >>> q = jnp.array([[1.0], [0.0]])
        >>> power_sgd_round(jnp.array([[[1.0, 2.0]], [[2.0, 4.0]]]), q)[0].tolist()
        [[3.0, 6.0]]
    """
    p = orthonormal(jnp.sum(jax.vmap(_times, in_axes=(0, None))(gradients, q), axis=0))
    after = jnp.sum(jax.vmap(lambda g: _times(g.T, p))(gradients), axis=0)
    return _product(p, after), after


def power_sgd(rank: int, warm_start: bool = True) -> PowerSGD:
    """Send a matrix as the product of two thin ones.

    P = orthonormal(x Q), C(x) = P (x^T P)^T, the projection of x on the range of x Q: exact if
    rank(x) <= rank. 32 rank (m + n) bits; vectors are sent as they are, 32 d bits.

    An array of two axes or more is a matrix of (the rest, its last axis): one column a unit that
    the weights lead into. Q of one step is x^T P of the step before, which converges to the
    leading singular vectors while gradients change slowly; delta then depends on the past and may
    be 0. A fresh Gaussian Q has E|C(x) - x|^2 <= (1 - rank / min(m, n)) |x|^2, with equality for
    orthogonal matrices.

    Sums: the protocol adds x Q over the workers *before* it is orthogonalised, which equals
    compressing the sum (`power_sgd_round`). Where each worker compresses alone, as an encoder
    does, the sum of messages has up to workers x rank dimensions and is another compressor.

    Args:
        rank: columns of P and Q, at most the smaller side of each matrix. Static.
        warm_start: whether Q is remembered, else drawn, the same for all the workers. Static.

    Raises:
        ValueError: if `rank` is out of range; from `memory`, `bits` and the rest if a matrix is
            smaller.

    Example:
        >>> x = jnp.outer(jnp.array([1.0, 2.0]), jnp.array([1.0, 0.0, -2.0]))
        >>> compressor = power_sgd(1)
        >>> _, message = compressor.compress(compressor.array_memory(x), x, jax.random.key(0), 0)
        >>> bool(jnp.allclose(message, x, atol=1e-6))
        True
        >>> compressor.bits({"w": x})
        160

    Reference:
        Vogels, Karimireddy, Jaggi, "PowerSGD: practical low-rank gradient compression for
        distributed optimization", NeurIPS 2019; the constant is derived here.
    """
    if not isinstance(warm_start, bool):
        raise checks.fail("power_sgd", "warm_start", "must be True or False", warm_start)
    if not checks.is_concrete(rank) or np.ndim(rank):
        raise checks.fail("power_sgd", "rank", "must be one static integer", rank)
    return PowerSGD(checks.integer("power_sgd", "rank", rank, low=1), warm_start)


EXAMPLE = partial(power_sgd, 1)
