"""Argument checks for factories: every error names function, argument, rule and value received."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

Numbers = ArrayLike | Sequence[Any]
"""What arguments that hold numbers accept: anything that becomes an array."""

Rule = tuple[str, Callable[[np.ndarray], Any]]

POSITIVE: Rule = ("must be positive and finite", lambda x: (x > 0) & np.isfinite(x))
NON_NEGATIVE: Rule = ("must be non-negative and finite", lambda x: (x >= 0) & np.isfinite(x))
FINITE: Rule = ("must be finite", np.isfinite)
PROBABILITY: Rule = ("must be a probability between 0 and 1", lambda x: (x >= 0) & (x <= 1))
NOT_NAN_POSITIVE: Rule = ("must be positive", lambda x: x > 0)


def fail(function: str, argument: str, rule: str, value: object) -> ValueError:
    """Build the one form of error this library raises for a bad argument."""
    return ValueError(f"{function}: {argument} {rule}, got {value!r}")


def is_concrete(value: object) -> bool:
    """Whether no leaf of `value` is a tracer, so that its numbers can be looked at now."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value))


def real(
    function: str, argument: str, value: Numbers, rule: Rule = FINITE, *, ndim: int | None = None
) -> jax.Array:
    """Return `value` as an array of the default float type, checked against `rule` unless traced.

    Args:
        function: name for the error.
        argument: name for the error.
        value: a number, an array, or a tracer (sweeps under `vmap`), any shape.
        rule: words for the error and the element-wise test.
        ndim: the number of axes that the value must have, if only one is allowed.

    Raises:
        ValueError: if the value is no number, has other axes than asked, or breaks the rule.
    """
    words, test = rule
    if is_concrete(value):
        try:
            numbers = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            raise fail(function, argument, "must be numeric", value) from None
        if ndim is not None and numbers.ndim != ndim:
            raise fail(function, argument, f"must have {ndim} axes", numbers.shape)
        good = np.asarray(test(numbers))
        if not good.all():
            bad = numbers[~good][0] if numbers.ndim else numbers
            raise fail(function, argument, words, float(bad))
    return jnp.asarray(value, dtype=float)


def integer(
    function: str,
    argument: str,
    value: Any,
    *,
    low: int = 0,
    high: int | None = None,
    high_name: str = "",
) -> Any:
    """Return an integer (or integer array, or tracer) checked to lie in `low..high`.

    Python integers stay Python integers, so that shapes can be made of them.
    """
    if not is_concrete(value):
        return value
    limit = f"{low} or more" if high is None else f"between {low} and {high_name}{high}"
    rule = f"must be an integer {limit}"
    if isinstance(value, (bool, np.bool_)):
        raise fail(function, argument, rule, value)
    if isinstance(value, (np.ndarray, jax.Array)) and value.ndim:
        numbers = np.asarray(value)
        if not np.issubdtype(numbers.dtype, np.integer):
            raise fail(function, argument, rule, value)
        if numbers.size and (numbers.min() < low or (high is not None and numbers.max() > high)):
            raise fail(function, argument, rule, value)
        return value
    try:
        number = operator.index(value)
    except TypeError:
        raise fail(function, argument, rule, value) from None
    if number < low or (high is not None and number > high):
        raise fail(function, argument, rule, value)
    return number


def choice(function: str, argument: str, value: str, allowed: Iterable[str]) -> str:
    """Return `value` if it is one of `allowed`; the error suggests the nearest name."""
    names = sorted(allowed)
    if value in names:
        return value
    near = difflib.get_close_matches(str(value), names, n=1, cutoff=0.4)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise fail(function, argument, f"must be one of {', '.join(names)}{hint}", value)


def same_length(function: str, **sequences: Sequence[Any]) -> None:
    """Raise unless all the named sequences have one length."""
    lengths = {name: len(items) for name, items in sequences.items()}
    if len(set(lengths.values())) > 1:
        raise fail(function, " and ".join(lengths), "must have the same length", lengths)
