"""A small convolutional network that is fast inside a scan on CPU."""

from __future__ import annotations

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from dtjax.core import checks
from dtjax.training.models.from_flax import from_flax
from dtjax.training.models.model import Model


class _Convolution(nn.Module):
    """A 3 x 3 convolution as nine shifted copies and one matrix product.

    Inside a scan on CPU the library's convolution is four to six times slower than this.
    """

    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        _, rows, columns, _ = x.shape
        wide = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        shifted = [wide[:, r : r + rows, c : c + columns] for r in range(3) for c in range(3)]
        return nn.Dense(self.features)(jnp.concatenate(shifted, axis=-1))


class _CNN(nn.Module):
    image: tuple[int, int]
    features: tuple[int, ...]
    classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.reshape(x.shape[0], *self.image, -1)
        for features in self.features:
            x = nn.relu(_Convolution(features)(x))
            batch, rows, columns, _ = x.shape
            even = x[:, : rows // 2 * 2, : columns // 2 * 2]
            x = even.reshape(batch, rows // 2, 2, columns // 2, 2, features).mean((2, 4))
        return nn.Dense(self.classes)(x.reshape(x.shape[0], -1))


def cnn(image: tuple[int, int], features: Sequence[int], classes: int) -> Model:
    """Make a network of 3 x 3 convolutions, each with ReLU and a 2 x 2 mean, and a dense layer.

    Args:
        image: rows and columns; inputs are f[batch, rows * columns * channels] or already images.
        features: channels of each convolution; each halves the image.
        classes: outputs.

    Raises:
        ValueError: if a size is below 1, or the image is too small to be halved so often.

    Example:
        >>> params = cnn((8, 8), [8, 16], 10).init(jax.random.key(0), jnp.ones((1, 64)))
        >>> sum(leaf.size for leaf in jax.tree.leaves(params))
        1898
    """
    channels = tuple(checks.integer("cnn", "features", f, low=1) for f in features)
    rows, columns = (checks.integer("cnn", "image", side, low=1) for side in image)
    if min(rows, columns) < 2 ** len(channels):
        rule = f"must have sides of {2 ** len(channels)} or more for {len(channels)} halvings"
        raise checks.fail("cnn", "image", rule, image)
    return from_flax(
        _CNN((rows, columns), channels, checks.integer("cnn", "classes", classes, low=1))
    )
