"""Deep Gradient Compression: top-k with momentum, clipping and warm-up on the workers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dtjax.compressors import codecs
from dtjax.compressors._largest import all_finite, largest
from dtjax.compressors.compressor import NEITHER, Compressor
from dtjax.compressors.error_feedback import kept_if
from dtjax.compressors.top_k import TopK, share
from dtjax.core import checks
from dtjax.core.pytree import pytree

START = 0.25
"""The ratio at which a warm-up begins, as published."""


class Momentum(NamedTuple):
    """What is kept of one tensor."""

    velocity: jax.Array  # like the gradient
    sum: jax.Array  # like the gradient: of the velocities since an entry was last sent


@pytree
@dataclass(frozen=True)
class Dgc(Compressor):
    """See `dgc`."""

    ratio: jax.Array  # f[]
    momentum: jax.Array  # f[]
    clip: jax.Array | None  # f[]
    workers: jax.Array  # f[]
    warmup: jax.Array  # f[] steps
    indices: str = field(metadata={"static": True})

    accumulates = True

    @property
    def family(self) -> str:
        """NEITHER: a message is not of one gradient alone."""
        return NEITHER

    @property
    def remembers(self) -> bool:
        """True."""
        return True

    @property
    def sized(self) -> bool:
        """Whether the places take the same bits wherever they are: not in a Golomb-Rice code."""
        return self.indices != "golomb"

    def array_memory(self, x: jax.Array) -> Momentum:
        """Return zeros."""
        return Momentum(jnp.zeros_like(x), jnp.zeros_like(x))

    def _sparsifier(self, step: Any) -> TopK:
        """Return the top-k of a step."""
        start = jnp.maximum(START, self.ratio)
        done = jnp.clip(step / jnp.maximum(self.warmup, 1e-9), 0.0, 1.0)
        early = start * (self.ratio / start) ** done
        return TopK(jnp.where(step < self.warmup, early, self.ratio), None, self.indices)

    def _corrected(self, memory: Momentum, x: jax.Array) -> Momentum:
        """Return velocity and sum with a new gradient, before anything is sent."""
        velocity = self.momentum.astype(x.dtype) * memory.velocity + x
        return Momentum(velocity, memory.sum + velocity)

    def _clipped(self, gradient: Any) -> Any:
        """Scale a tree to the norm that is allowed a worker, if its norm is more."""
        if self.clip is None:
            return gradient
        leaves = jax.tree.leaves(gradient)
        wide = [leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)) for leaf in leaves]
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in wide))
        limit = self.clip / jnp.sqrt(self.workers)
        factor = jnp.where(norm > limit, limit / norm, 1.0)
        return jax.tree.map(lambda leaf: leaf * factor.astype(leaf.dtype), gradient)

    def compress(
        self, memory: Momentum, x: jax.Array, key: Any, step: jax.Array
    ) -> tuple[Momentum, jax.Array]:
        """Send the largest sums; what is sent starts anew, its momentum too."""
        del key
        new = self._corrected(memory, self._clipped(x))
        k = self._sparsifier(step).kept(x.shape)
        sent, nothing = largest(new.sum.reshape(-1), k).reshape(x.shape), jnp.zeros_like(x)
        message = jnp.where(sent, new.sum, nothing)
        after = Momentum(*(jnp.where(sent, nothing, part) for part in new))
        return kept_if(all_finite(new.sum), after, memory, message)

    def compress_tree(
        self, memory: Any, gradient: Any, key: jax.Array, step: jax.Array
    ) -> tuple[Any, Any]:
        """Clip the gradient by its norm over all tensors, then compress each."""
        forward = Compressor.compress_tree
        return forward(replace(self, clip=None), memory, self._clipped(gradient), key, step)

    def size(self, shape: tuple[int, ...], step: Any = 0) -> Any:
        """Return the bits at this step."""
        return self._sparsifier(step).size(shape)

    def message_size(self, message: jax.Array, step: Any = 0) -> Any:
        """Return the bits of a message of this step, which says how many entries there are."""
        return self._sparsifier(step).message_size(message)

    def pack(self, gradient: Any, key: jax.Array, *, memory: Any = None, step: int = 0) -> Any:
        """Write the message of a gradient as bytes."""
        clipped, free = self._clipped(gradient), replace(self, clip=None)
        return Compressor.pack(free, clipped, key, memory=memory, step=step)

    def write(self, memory: Momentum, x: jax.Array, key: Any, step: Any) -> np.ndarray:
        """Write the indices, then the values in binary32."""
        new = self._corrected(memory, self._clipped(x))
        return self._sparsifier(step).write((), new.sum, key, step)

    def read(
        self, bits: np.ndarray, shape: tuple[int, ...], key: Any, step: Any
    ) -> tuple[jax.Array, int]:
        """Read the indices, then the values."""
        return self._sparsifier(step).read(bits, shape, key, step)


def dgc(
    ratio: ArrayLike,
    momentum: ArrayLike = 0.9,
    *,
    clip: ArrayLike | None = None,
    workers: ArrayLike = 1,
    warmup: ArrayLike = 0,
    indices: str = "int32",
) -> Dgc:
    """Compress by Deep Gradient Compression.

    u' = momentum u + g, v' = v + u'; the k largest of |v'| are sent, and u and v set to 0 where
    they were sent (momentum factor masking). The momentum is the workers': the server's optimizer
    is plain SGD. Nothing is kept of a gradient that is not finite; its message is not finite. What
    is kept has the type of the gradient, and in bfloat16 drifts, see `error_feedback`.

    Args:
        ratio: k = max(1, floor(ratio d)) of d entries; above 0, at most 1.
        momentum: 0 or more, below 1. With 0 this is error feedback of top-k.
        clip: the norm allowed to the sum of all workers' gradients; a worker's is scaled to
            clip workers^-1/2. The norm is over all tensors of a gradient. None: no clipping.
        workers: n, 1 or more.
        warmup: over so many steps of a worker the ratio falls exponentially from .25; the size of
            a message follows, see the `step` of `bits` and `message_bits`. The authors' falls by a
            quarter each of four epochs.
        indices: as in `top_k`.

    Raises:
        ValueError: if a number is out of its range, or the code unknown.

    Example:
        >>> compressor, x = dgc(0.25, 0.5), jnp.array([1.0, -9.0, 2.0, 0.5])
        >>> memory, message = compressor.compress(compressor.array_memory(x), x, None, 0)
        >>> memory, message = compressor.compress(memory, jnp.zeros(4), None, 1)
        >>> message.tolist()
        [0.0, 0.0, 3.0, 0.0]

    Reference:
        Lin et al., "Deep gradient compression: reducing the communication bandwidth for distributed
        training", ICLR 2018.
    """
    below_one = ("must be 0 or more and below 1", lambda x: (x >= 0) & (x < 1))
    at_least_one = ("must be 1 or more and finite", lambda x: (x >= 1) & np.isfinite(x))

    def number(argument: str, value: Any, rule: checks.Rule) -> jax.Array:
        return checks.real("dgc", argument, value, rule, ndim=0)

    return Dgc(
        share("dgc", ratio),
        number("momentum", momentum, below_one),
        None if clip is None else number("clip", clip, checks.POSITIVE),
        number("workers", workers, at_least_one),
        number("warmup", warmup, checks.NON_NEGATIVE),
        checks.choice("dgc", "indices", indices, codecs.INDEX_CODES),
    )


EXAMPLE = partial(dgc, 0.25)
