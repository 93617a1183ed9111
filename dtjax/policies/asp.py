"""Asynchronous parallel."""

from __future__ import annotations

from typing import Any

from dtjax.policies._arguments import cutoff
from dtjax.policies.rule import Rule


def asp(max_staleness: Any = None) -> Rule:
    """Make asynchronous parallel: the server updates at every arrival.

    Args:
        max_staleness: updates; an older gradient is discarded and its worker starts again (then
            this is Ringmaster ASGD without stops). None: no limit. May be traced.

    Raises:
        ValueError: if `max_staleness` is not an integer of 0 or more.

    Example:
        >>> asp().k
        1

    Reference:
        Recht et al., "Hogwild!", NIPS 2011; Maranjyan et al., "Ringmaster ASGD", 2025.
    """
    return Rule(k=1, max_staleness=cutoff("asp", max_staleness))


EXAMPLE = asp
