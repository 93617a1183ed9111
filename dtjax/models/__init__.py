"""Models: pairs of pure functions, made of Flax modules."""

from dtjax.models.cnn import cnn
from dtjax.models.mlp import mlp, softmax_regression
from dtjax.models.model import Model, from_flax
from dtjax.models.shapes import resnet50 as resnet50_shapes

__all__ = ["Model", "cnn", "from_flax", "mlp", "resnet50_shapes", "softmax_regression"]
