"""Collectives in place of the servers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dtjax.cluster.network.fixed import fixed
from dtjax.cluster.network.network import Network
from dtjax.core import checks


def all_reduce(
    seconds: checks.Numbers, *, encode: checks.Numbers = 0.0, compressor: Any = None
) -> Network:
    """Describe an all-reduce that all the workers make after each round, for BSP alone.

    Args:
        seconds: f[], of the collective, as of `dtjax.collectives`.
        encode: f[], seconds in which a worker compresses; they count as computing.
        compressor: what is sent, to check that its messages can be summed in transit; None: dense
            gradients.

    Raises:
        ValueError: if a number is negative or not finite, or the compressor's messages cannot be
            summed.

    Example:
        >>> from dtjax.collectives import ring_all_reduce
        >>> ring = ring_all_reduce(1e9, workers=4, bandwidth=10e9)
        >>> round(float(all_reduce(ring).apply), 3)
        0.15
    """
    if compressor is not None and not compressor.summable:
        rule = "must have messages that can be summed in transit (all_gather takes others)"
        raise checks.fail("all_reduce", "compressor", rule, compressor)
    return _collective("all_reduce", seconds, encode)


def all_gather(seconds: checks.Numbers, *, encode: checks.Numbers = 0.0) -> Network:
    """Describe an all-gather after each round, for BSP alone: each worker sums all the messages.

    Args:
        seconds: f[], of the collective and of summing what it brought.
        encode: f[], seconds in which a worker compresses; they count as computing.

    Raises:
        ValueError: if a number is negative or not finite.

    Example:
        >>> from dtjax import collectives
        >>> every = collectives.all_gather(1e7, workers=4, bandwidth=10e9)
        >>> round(float(all_gather(every).apply), 4)
        0.003
    """
    return _collective("all_gather", seconds, encode)


def _collective(name: str, seconds: checks.Numbers, encode: checks.Numbers) -> Network:
    last = checks.real(name, "seconds", seconds, checks.NON_NEGATIVE, ndim=0)
    spent = checks.real(name, "encode", encode, checks.NON_NEGATIVE, ndim=0)
    return replace(fixed(apply=last, encode=spent), collective=True)
