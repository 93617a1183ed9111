"""Models: pairs of pure functions, made of Flax modules."""

from dtjax.models.cnn import cnn
from dtjax.models.mlp import mlp, softmax_regression
from dtjax.models.model import Model, from_flax

__all__ = ["Model", "cnn", "from_flax", "mlp", "softmax_regression"]
