"""Bulk-synchronous parallel."""

from __future__ import annotations

from dtjax.policies.rule import Rule


def bsp() -> Rule:
    """Make bulk-synchronous parallel: the server updates when every worker has delivered.

    Example:
        >>> bsp().distinct
        True

    Reference:
        Valiant, "A bridging model for parallel computation", CACM 1990.
    """
    return Rule(k=None, distinct=True)


EXAMPLE = bsp
