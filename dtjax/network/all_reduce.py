"""An all-reduce in place of the servers."""

from __future__ import annotations

from dataclasses import replace

from dtjax import checks
from dtjax.network.fixed import fixed
from dtjax.network.network import Network


def all_reduce(seconds: checks.Numbers, *, encode: checks.Numbers = 0.0) -> Network:
    """Describe an all-reduce that all the workers make after each round, for BSP alone.

    Args:
        seconds: f[], of the collective, as of `dtjax.collectives`.
        encode: f[], seconds in which a worker compresses; they count as computing.

    Raises:
        ValueError: if a number is negative or not finite.

    Example:
        >>> from dtjax.collectives import ring_all_reduce
        >>> ring = ring_all_reduce(1e9, workers=4, bandwidth=10e9)
        >>> round(float(all_reduce(ring).apply), 3)
        0.15
    """
    last = checks.real("all_reduce", "seconds", seconds, checks.NON_NEGATIVE, ndim=0)
    spent = checks.real("all_reduce", "encode", encode, checks.NON_NEGATIVE, ndim=0)
    return replace(fixed(apply=last, encode=spent), collective=True)
