"""The k entries of largest magnitude, with their indices."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dtjax.compressors import codecs
from dtjax.compressors._largest import largest
from dtjax.compressors._places import places_size
from dtjax.compressors.compressor import CONTRACTIVE, Compressor
from dtjax.core import checks
from dtjax.core.pytree import pytree

RATIO: checks.Rule = ("must be above 0 and at most 1", lambda x: (x > 0) & (x <= 1))


def share(function: str, ratio: Any) -> jax.Array:
    """Return a checked ratio; True, which would be all, is no number."""
    if isinstance(ratio, (bool, np.bool_)) or getattr(ratio, "dtype", None) == np.dtype(bool):
        raise checks.fail(function, "ratio", RATIO[0], ratio)
    return checks.real(function, "ratio", ratio, RATIO, ndim=0)


def count(ratio: Any, d: int) -> Any:
    """Count the entries kept of d, max(1, floor(ratio d)): an int if the ratio is concrete.

    A ratio is rounded to its float type: .7 of 10 must be 7, though .7 in binary32 is less than
    .7. Hence the floor of the float next above the rounded product, which is never below the exact
    one; from 2^23 on (binary32) the product itself is an integer. One product and no sum, so that
    there is nothing for a compiler to fuse, and a traced ratio gives the same count.

    Example:
        >>> [count(jnp.float32(ratio), d) for ratio, d in ((0.1, 30), (0.7, 10), (0.01, 9))]
        [3, 7, 1]
    """
    concrete, kind = checks.is_concrete(ratio), ratio.dtype
    xp: Any = np if concrete else jnp
    product = xp.asarray(ratio) * xp.asarray(d, kind)
    above = xp.nextafter(product, xp.asarray(np.inf, kind))
    product = xp.where(product < 2.0 ** np.finfo(kind).nmant, above, product)
    if concrete:
        return min(max(1, math.floor(product)), d)
    return jnp.clip(jnp.floor(product).astype(jnp.int32), 1, d)


class Sparsifier(Compressor):
    """A compressor that keeps some entries, known in number.

    A subclass gives `kept`, `mask` and `code`.
    """

    @property
    def code(self) -> str | None:
        """How the places are coded, as in `dtjax.codecs`; None: the receiver knows them."""
        return None

    @property
    def sized(self) -> bool:
        """Whether the places take the same bits wherever they are: not in a Golomb-Rice code."""
        return self.code != "golomb"

    def kept(self, shape: tuple[int, ...], step: Any = 0) -> Any:
        """Return how many entries are kept: an int, or i[] if that depends on a tracer."""
        raise NotImplementedError(f"{type(self).__name__}: a sparsifier must define kept")

    def mask(self, x: jax.Array, key: Any) -> jax.Array:
        """Return which entries are kept, b[...]."""
        raise NotImplementedError(f"{type(self).__name__}: a sparsifier must define mask")

    def index_size(self, shape: tuple[int, ...], step: Any = 0) -> Any:
        """Return the bits that say which entries are kept."""
        if self.code is None:
            return 0
        return codecs.index_bits(self.code, math.prod(shape), self.kept(shape, step))

    def size(self, shape: tuple[int, ...], step: Any = 0) -> Any:
        """Return the bits of the indices, and 32 bits a kept entry."""
        return self.index_size(shape, step) + _words(self.kept(shape, step))

    def message_size(self, message: jax.Array, step: Any = 0) -> Any:
        """Return the bits of this message: the places that Golomb-Rice codes are in it."""
        if self.code != "golomb":
            return self.size(message.shape, step)
        # Zeros that were kept to fill k are the first ones, and are found again.
        index = places_size(self.code, self.mask(message, None).reshape(-1))
        return index + _words(self.kept(message.shape, step))

    def write_places(self, x: jax.Array, key: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the bits that say which entries are kept, and their places, i[k]."""
        places = np.flatnonzero(self.mask(x, key))
        if self.code is None:
            return np.zeros(0, np.uint8), places
        return codecs.write_indices(self.code, places, x.size), places

    def read_places(
        self, bits: np.ndarray, shape: tuple[int, ...], key: Any
    ) -> tuple[np.ndarray, int]:
        """Undo `write_places`: the places, and how many bits said them."""
        if self.code is None:
            return np.flatnonzero(self.mask(jnp.zeros(shape), key)), 0
        return codecs.read_indices(self.code, bits, math.prod(shape), self.kept(shape))

    def write(self, memory: Any, x: jax.Array, key: Any, step: Any) -> np.ndarray:
        """Write the places, then the values in binary32."""
        bits, places = self.write_places(x, key)
        message = np.asarray(self.compress(memory, x, key, step)[1]).reshape(-1)
        return np.concatenate([bits, codecs.write_floats(message[places], np.float32)])

    def read(
        self, bits: np.ndarray, shape: tuple[int, ...], key: Any, step: Any
    ) -> tuple[jax.Array, int]:
        """Read the places, then the values."""
        del step
        places, used = self.read_places(bits, shape, key)
        end, message = used + 32 * len(places), np.zeros(math.prod(shape), np.float32)
        message[places] = codecs.read_floats(bits[used:end], np.float32, len(places))
        return jnp.asarray(message).reshape(shape), end


def _words(k: Any) -> Any:
    return 32 * (k if isinstance(k, int) else k.astype(float))


@pytree
@dataclass(frozen=True)
class TopK(Sparsifier):
    """See `top_k`."""

    ratio: jax.Array | None  # f[]
    k: jax.Array | None  # i[]
    indices: str = field(metadata={"static": True})

    @property
    def family(self) -> str:
        """CONTRACTIVE."""
        return CONTRACTIVE

    @property
    def code(self) -> str:
        """How the places are coded."""
        return self.indices

    def constant(self, shape: tuple[int, ...]) -> Any:
        """Return delta = k / d."""
        return self.kept(shape) / math.prod(shape)

    def kept(self, shape: tuple[int, ...], step: Any = 0) -> Any:
        """Return k: of the ratio, or as given but not more than there are."""
        del step
        d = math.prod(shape)
        if self.ratio is not None:
            return count(self.ratio, d)
        k: Any = self.k
        return min(int(k), d) if checks.is_concrete(k) else jnp.minimum(k, d)

    def mask(self, x: jax.Array, key: Any) -> jax.Array:
        """Mark the k entries of largest magnitude."""
        del key
        return largest(x.reshape(-1), self.kept(x.shape)).reshape(x.shape)

    def compress(self, memory: Any, x: jax.Array, key: Any, step: Any) -> tuple[Any, jax.Array]:
        """Keep the k entries of largest magnitude, put zeros elsewhere."""
        del step
        return memory, jnp.where(self.mask(x, key), x, jnp.zeros_like(x))


def top_k(
    ratio: ArrayLike | None = None, indices: str = "int32", *, k: ArrayLike | None = None
) -> TopK:
    """Keep the k entries of largest magnitude of every tensor.

    |C(x) - x|^2 = |x|^2 - (sum of the k largest squares) <= (1 - k/d) |x|^2. Where magnitudes tie
    the first entries are kept; NaN counts as the largest, so that it is seen.

    Args:
        ratio: k = max(1, floor(ratio d)) of d entries; above 0, at most 1.
        indices: how the places are coded: "int32", "packed", "bitmap" or "golomb", see
            `dtjax.codecs.index_bits`. Values take 32 bits each.
        k: in place of a ratio, the number of entries kept, 1 to 2^31 - 1; tensors with fewer are
            kept whole.

    Raises:
        ValueError: if a number is out of its range, the code is unknown, or not one of `ratio` and
            `k` is given.

    Example:
        >>> x = jnp.array([1.0, -9.0, 2.0, 0.5, 7.0, 3.0, -1.0, 0.0])
        >>> top_k(0.25).compress((), x, None, 0)[1].tolist()
        [0.0, -9.0, 0.0, 0.0, 7.0, 0.0, 0.0, 0.0]
        >>> top_k(0.25).bits(x)
        128

    Reference:
        Aji and Heafield, "Sparse communication for distributed gradient descent", EMNLP 2017;
        Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", NeurIPS 2018.
    """
    if (ratio is None) == (k is None):
        raise checks.fail("top_k", "ratio or k", "must be given, and not both", (ratio, k))
    indices = checks.choice("top_k", "indices", indices, codecs.INDEX_CODES)
    if ratio is not None:
        return TopK(share("top_k", ratio), None, indices)
    number = checks.integer("top_k", "k", k, low=1, high=2**31 - 1)
    return TopK(None, jnp.asarray(number, jnp.int32), indices)


EXAMPLE = partial(top_k, 0.25)
