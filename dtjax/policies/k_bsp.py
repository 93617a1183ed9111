"""Synchronous updates of the k fastest workers."""

from __future__ import annotations

from functools import partial
from typing import Any

from dtjax.policies._arguments import synchronous
from dtjax.policies.rule import Rule


def k_bsp(k: Any, preempt: bool = True) -> Rule:
    """Make k-BSP: the server updates when k distinct workers have delivered.

    Args:
        k: workers, 1 to n; n is BSP. May be traced.
        preempt: an update stops the others' work and all start again (True), or the others
            finish and their gradients are discarded at arrival (False).

    Raises:
        ValueError: if `k` is not an integer of 1 or more.

    Example:
        >>> k_bsp(2).cancel, k_bsp(2, preempt=False).max_staleness
        (True, 0)

    Reference:
        Chen et al., "Revisiting distributed synchronous SGD", 2016 (backup workers); Dutta et al.,
        "Slow and stale gradients can win the race", AISTATS 2018 (K-sync).
    """
    return synchronous("k_bsp", k, preempt, distinct=True)


EXAMPLE = partial(k_bsp, 2)
