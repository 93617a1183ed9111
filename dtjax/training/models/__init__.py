"""Models: pairs of pure functions, made of Flax modules."""

from dtjax.training.models.cnn import cnn
from dtjax.training.models.from_flax import from_flax
from dtjax.training.models.mlp import mlp, softmax_regression
from dtjax.training.models.model import Model
from dtjax.training.models.shapes import resnet50 as resnet50_shapes

__all__ = ["Model", "cnn", "from_flax", "mlp", "resnet50_shapes", "softmax_regression"]
