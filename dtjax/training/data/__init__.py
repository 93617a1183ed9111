"""Data sets and how workers see them."""

from dtjax.training.data.partition import Partition, sharded, shared, skewed
from dtjax.training.data.splits import LOADERS, Data, digits, from_arrays, mnist_subset

__all__ = [
    "LOADERS",
    "Data",
    "Partition",
    "digits",
    "from_arrays",
    "mnist_subset",
    "sharded",
    "shared",
    "skewed",
]
