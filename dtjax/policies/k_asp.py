"""Asynchronous updates of k distinct workers."""

from __future__ import annotations

from functools import partial
from typing import Any

from dtjax.core import checks
from dtjax.policies._arguments import cutoff
from dtjax.policies.rule import Rule


def k_asp(k: Any, max_staleness: Any = None) -> Rule:
    """Make k-ASP: the server updates when k distinct workers have delivered; the others go on.

    Args:
        k: workers, 1 to n; 1 is ASP, n is BSP. May be traced.
        max_staleness: as in `asp`; a discarded gradient does not count towards k.

    Raises:
        ValueError: if `k` is not an integer of 1 or more, or `max_staleness` negative.

    Example:
        >>> k_asp(2).distinct
        True

    Reference:
        Dutta et al., "Slow and stale gradients can win the race", AISTATS 2018 (K-async).
    """
    k = checks.integer("k_asp", "k", k, low=1)
    return Rule(k=k, distinct=True, max_staleness=cutoff("k_asp", max_staleness))


EXAMPLE = partial(k_asp, 2)
