"""Stale-synchronous parallel."""

from __future__ import annotations

from functools import partial
from typing import Any

from dtjax.core import checks
from dtjax.policies._arguments import cutoff
from dtjax.policies.rule import Rule


def ssp(bound: Any, max_staleness: Any = None) -> Rule:
    """Make stale-synchronous parallel: no worker runs more than `bound` ahead of
    the slowest.

    Args:
        bound: difference of completed computations, 0 or more; 0 is lock-step. May be traced.
        max_staleness: as in `asp`. It discards; `bound` makes workers wait.

    Raises:
        ValueError: if a number is not an integer of 0 or more.

    Example:
        >>> ssp(3).bound
        3

    Reference:
        Ho et al., "More effective distributed ML via a stale synchronous parallel parameter
        server", NIPS 2013 (whose counting of `bound` this follows).
    """
    return Rule(
        k=1,
        bound=checks.integer("ssp", "bound", bound, low=0),
        max_staleness=cutoff("ssp", max_staleness),
    )


EXAMPLE = partial(ssp, 1)
