"""Argument checks for closed forms: binary64 on the host, every error names what was received."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = Any
"""What a vectorised function returns: np.float64 for scalar arguments, otherwise f[...]."""


def fail(function: str, argument: str, rule: str, value: object) -> ValueError:
    """Build the error for a bad argument."""
    return ValueError(f"{function}: {argument} {rule}, got {value}")


def _require(
    function: str,
    argument: str,
    rule: str,
    value: ArrayLike,
    test: Callable[[NDArray[np.float64]], Any],
) -> NDArray[np.float64]:
    """Return `value` in binary64 if every element passes `test`."""
    try:
        given = np.asarray(value)
        if given.dtype.kind not in "iufO":  # object: integers beyond 64 bits
            raise TypeError
        numbers = given.astype(np.float64)
    except (TypeError, ValueError):
        raise fail(function, argument, rule, repr(value)) from None
    good = np.broadcast_to(np.asarray(test(numbers)), numbers.shape)
    if not good.all():
        raise fail(function, argument, rule, given[~good].flat[0] if given.ndim else given)
    return numbers


def _whole(numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.isfinite(numbers) & (np.floor(numbers) == numbers)


def integer(function: str, argument: str, value: ArrayLike, low: int) -> NDArray[np.float64]:
    """Return whole numbers of at least `low`, as binary64 so that huge ones fit."""
    rule = f"must be an integer of at least {low}"
    return _require(function, argument, rule, value, lambda x: _whole(x) & (x >= low))


def one_integer(function: str, argument: str, value: ArrayLike, low: int) -> int:
    """Return one whole number of at least `low` as a Python integer."""
    if integer(function, argument, value, low).ndim:
        raise fail(function, argument, "must be one number", f"shape {np.shape(value)}")
    return int(np.asarray(value).item())


def workers(function: str, n: ArrayLike) -> NDArray[np.float64]:
    """Return the number of workers, at least 1."""
    return integer(function, "n", n, 1)


def workers_and_order(
    function: str, n: ArrayLike, k: ArrayLike, low: int = 1
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return n >= 1 and k between `low` and n, broadcast against each other."""
    total, order = workers(function, n), _numeric(function, "k", k)
    try:
        total, order = np.broadcast_arrays(total, order)
    except ValueError:
        rule = f"must broadcast against n of shape {total.shape}"
        raise fail(function, "k", rule, f"shape {order.shape}") from None
    bad = ~(_whole(order) & (order >= low) & (order <= total))
    if bad.any():
        of, got = (float(total[bad].flat[0]), float(order[bad].flat[0]))
        rule = f"must be an integer between {low} and n={of:.17g}"
        raise fail(function, "k", rule, f"{got:.17g}")
    return total, order


def _numeric(function: str, argument: str, value: ArrayLike) -> NDArray[np.float64]:
    return _require(function, argument, "must be a number", value, lambda x: np.ones(x.shape, bool))


def positive(function: str, argument: str, value: ArrayLike) -> NDArray[np.float64]:
    """Return positive finite numbers."""
    rule = "must be positive and finite"
    return _require(function, argument, rule, value, lambda x: (x > 0) & np.isfinite(x))


def non_negative(function: str, argument: str, value: ArrayLike) -> NDArray[np.float64]:
    """Return non-negative finite numbers."""
    rule = "must be non-negative and finite"
    return _require(function, argument, rule, value, lambda x: (x >= 0) & np.isfinite(x))


def finite(function: str, argument: str, value: ArrayLike) -> NDArray[np.float64]:
    """Return finite numbers."""
    return _require(function, argument, "must be finite", value, np.isfinite)


def fraction(function: str, argument: str, value: ArrayLike) -> NDArray[np.float64]:
    """Return numbers between 0 and 1, both included."""
    rule = "must be between 0 and 1"
    return _require(function, argument, rule, value, lambda x: (x >= 0) & (x <= 1))


def bound(function: str, value: ArrayLike) -> NDArray[np.float64]:
    """Return SSP bounds: non-negative integers, or inf for none."""
    rule = "must be a non-negative integer or inf"
    return _require(
        function, "bound", rule, value, lambda x: (x >= 0) & ((np.floor(x) == x) | np.isposinf(x))
    )


def per_worker(function: str, argument: str, value: ArrayLike) -> NDArray[np.float64]:
    """Return one positive finite number a worker: a vector, not empty."""
    numbers = positive(function, argument, value)
    if numbers.ndim != 1 or numbers.size == 0:
        rule = "must be a vector with one number a worker"
        raise fail(function, argument, rule, f"shape {numbers.shape}")
    return numbers
