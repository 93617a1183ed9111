"""How a Flax module becomes a model."""

from __future__ import annotations

from typing import Any

from dtjax.core import checks
from dtjax.training.models.linen import from_linen
from dtjax.training.models.model import Model
from dtjax.training.models.nnx import from_nnx


def from_flax(module: Any) -> Model:
    """Make a model of a Flax module, Linen or NNX, as it is, Dropout and BatchNorm included.

    A module is trained and evaluated in its own modes: an NNX module after `train()` and `eval()`,
    and a module whose `__call__` takes `train`, `training`, `is_training`, `deterministic` or
    `use_running_average` with that argument.

    Args:
        module: a Linen module; or, for NNX, a function from `nnx.Rngs` to a module (a class whose
            only argument is `rngs`, by name or place, is one), since every run initialises its own.
            An NNX module that is made already starts every run with its own values: they cannot be
            drawn again.

    Returns:
        The model. The parameters are the module's trainable ones. What else it keeps, but for
        random streams, is its state.

    Raises:
        ValueError: if it is neither, or a Linen module has state and no such argument.

    Example:
        >>> import flax.linen as nn, jax, jax.numpy as jnp
        >>> model = from_flax(nn.Dense(3))
        >>> model.apply(model.init(jax.random.key(0), jnp.ones((1, 2))), jnp.ones((5, 2))).shape
        (5, 3)
    """
    import flax.linen as nn
    from flax import nnx

    if isinstance(module, nn.Module):
        return from_linen(module)
    linen_class = isinstance(module, type) and issubclass(module, nn.Module)
    if isinstance(module, nnx.Module) or (callable(module) and not linen_class):
        return from_nnx(module)
    rule = "must be a Linen module, an NNX module or a function from nnx.Rngs to one"
    raise checks.fail("from_flax", "module", rule, module)
