"""Random k entries, drawn from a seed that the receiver has too: only values are sent."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dtjax.compressors._largest import largest
from dtjax.compressors.compressor import CONTRACTIVE, UNBIASED
from dtjax.compressors.top_k import Sparsifier, count, share
from dtjax.core import random
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class RandomK(Sparsifier):
    """See `random_k`."""

    ratio: jax.Array  # f[]
    scaled: bool = field(metadata={"static": True})
    shared_seed: bool = field(metadata={"static": True})

    @property
    def family(self) -> str:
        """UNBIASED if scaled, else CONTRACTIVE in expectation."""
        return UNBIASED if self.scaled else CONTRACTIVE

    @property
    def deterministic(self) -> bool:
        """False."""
        return False

    @property
    def summable(self) -> bool:
        """Whether the workers keep the same entries."""
        return self.shared_seed

    @property
    def shared(self) -> bool:
        """Whether the workers draw the same entries."""
        return self.shared_seed

    def kept(self, shape: tuple[int, ...], step: Any = 0) -> Any:
        """Return k."""
        del step
        return count(self.ratio, math.prod(shape))

    def constant(self, shape: tuple[int, ...]) -> Any:
        """Return omega = d / k - 1 if scaled, else delta = k / d."""
        k, d = self.kept(shape), math.prod(shape)
        return d / k - 1 if self.scaled else k / d

    def mask(self, x: jax.Array, key: jax.Array) -> jax.Array:
        """Draw which entries are kept: those of the k largest random numbers."""
        uniform = (random.stream(key, x.size) >> 8).astype(
            jnp.float32
        )  # 24 bits: exact in binary32
        return largest(uniform, self.kept(x.shape)).reshape(x.shape)

    def compress(
        self, memory: Any, x: jax.Array, key: jax.Array, step: Any
    ) -> tuple[Any, jax.Array]:
        """Keep k entries, scaled or not, put zeros elsewhere."""
        del step
        factor = jnp.ones((), x.dtype)
        if self.scaled:
            factor = jnp.asarray(x.size / self.kept(x.shape), x.dtype)
        # Not a plain zero: NaN must be seen even where the draw leaves it out.
        return memory, x * jnp.where(self.mask(x, key), factor, jnp.zeros_like(factor))


def random_k(ratio: ArrayLike, scaled: bool = True, shared_seed: bool = True) -> RandomK:
    """Keep k random entries of every tensor, drawn without replacement.

    C(x) = (d / k) x on the entries drawn, 0 elsewhere: E C(x) = x, and E|C(x) - x|^2 =
    (d / k - 1) |x|^2 exactly. Not scaled, E|C(x) - x|^2 = (1 - k / d) |x|^2. 32 k bits: sender and
    receiver draw the places from one seed.

    Args:
        ratio: k = max(1, floor(ratio d)) of d entries; above 0, at most 1.
        scaled: by d / k. With a memory of what was not sent, scale only if d / k < 2: the residual
            diverges otherwise.
        shared_seed: all the workers draw the same places at the same step, so that their messages
            can be summed in transit; False: each its own.

    Raises:
        ValueError: if the ratio is out of its range.

    Example:
        >>> message = random_k(0.5).compress((), jnp.ones(8), jax.random.key(0), 0)[1]
        >>> sorted(message.tolist())
        [0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0]

    Reference:
        Wangni et al., "Gradient sparsification for communication-efficient distributed
        optimization", NeurIPS 2018; Stich, Cordonnier and Jaggi, "Sparsified SGD with memory",
        NeurIPS 2018.
    """
    return RandomK(share("random_k", ratio), bool(scaled), bool(shared_seed))


EXAMPLE = partial(random_k, 0.25)
