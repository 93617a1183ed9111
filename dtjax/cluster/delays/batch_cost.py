"""Compute times that grow with the mini-batch."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike

from dtjax.cluster.delays.exponential import exponential
from dtjax.cluster.delays.law import check_law, count
from dtjax.cluster.delays.scaled import Scaled
from dtjax.core import checks
from dtjax.core.checks import Numbers


def batch_cost(law: Any, examples: Numbers, *, fixed: ArrayLike, per_example: ArrayLike) -> Scaled:
    """Make the time of a mini-batch from a fixed cost, a cost an example and a noise factor.

    X = (fixed + per_example examples[worker]) Y.

    Args:
        law: any delay law Y, the noise: usually of mean 1, without unit.
        examples: f[] or f[n], sizes of the mini-batches, positive.
        fixed: seconds, not negative.
        per_example: seconds an example, not negative; not both costs may be 0.

    Raises:
        ValueError: if a number is out of its range, or the cost is 0, or `law` is not a law or is
            made for another number of workers.

    Example:
        >>> noise = exponential(0.5, shift=0.5)
        >>> batch_cost(noise, [10, 20], fixed=1.0, per_example=0.5).mean().tolist()
        [6.0, 11.0]
    """
    name = "batch_cost"
    sizes = checks.real(name, "examples", examples, checks.POSITIVE)
    base = checks.real(name, "fixed", fixed, checks.NON_NEGATIVE, ndim=0)
    slope = checks.real(name, "per_example", per_example, checks.NON_NEGATIVE, ndim=0)
    cost = base + slope * sizes
    check_law(name, "law", law, count(None, cost))
    if checks.is_concrete(cost) and not bool(jnp.all(cost > 0)):
        raise checks.fail(name, "fixed", "and per_example must not both be 0", 0.0)
    return Scaled(law, cost)


def EXAMPLE() -> Scaled:  # noqa: N802
    """Make the law that the conformance suite tries."""
    return batch_cost(exponential(0.5, shift=0.5), (10.0, 20.0, 40.0), fixed=1.0, per_example=0.1)
