"""Fully connected networks; with no hidden layer, softmax regression."""

from __future__ import annotations

from collections.abc import Sequence

import flax.linen as nn
import jax

from dtjax.core import checks
from dtjax.training.models.from_flax import from_flax
from dtjax.training.models.model import Model


class _MLP(nn.Module):
    hidden: tuple[int, ...]
    classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.reshape(x.shape[0], -1)
        for width in self.hidden:
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(self.classes)(x)


def mlp(hidden: Sequence[int], classes: int) -> Model:
    """Make a network of dense layers with ReLU between them.

    Args:
        hidden: width of each hidden layer, any number of them.
        classes: outputs.

    Raises:
        ValueError: if a width or `classes` is below 1.

    Example:
        >>> import jax.numpy as jnp
        >>> params = mlp([32], 10).init(jax.random.key(0), jnp.ones((1, 64)))
        >>> sum(leaf.size for leaf in jax.tree.leaves(params))
        2410
    """
    widths = tuple(checks.integer("mlp", "hidden", width, low=1) for width in hidden)
    return from_flax(_MLP(widths, checks.integer("mlp", "classes", classes, low=1)))


def softmax_regression(classes: int) -> Model:
    """Make a linear classifier: a convex problem with the cross-entropy.

    Args:
        classes: outputs.

    Raises:
        ValueError: if `classes` is below 1.

    Example:
        >>> import jax.numpy as jnp
        >>> model = softmax_regression(10)
        >>> model.apply(model.init(jax.random.key(0), jnp.ones((1, 64))), jnp.ones((2, 64))).shape
        (2, 10)
    """
    return mlp((), classes)
