"""Synchronous updates of k mini-batches from any workers."""

from __future__ import annotations

from functools import partial
from typing import Any

from dtjax.policies._arguments import synchronous
from dtjax.policies.rule import Rule


def k_batch_bsp(k: Any, preempt: bool = True) -> Rule:
    """Make k-batch-BSP: the server updates when k mini-batches have come, from anyone.

    Args:
        k: mini-batches, 1 or more, also above n. May be traced.
        preempt: as in `k_bsp`; False is Rennala SGD.

    Raises:
        ValueError: if `k` is not an integer of 1 or more.

    Example:
        >>> k_batch_bsp(4).distinct
        False

    Reference:
        Dutta et al., "Slow and stale gradients can win the race", AISTATS 2018 (K-batch-sync);
        Tyurin and Richtarik, 2023 (Rennala SGD).
    """
    return synchronous("k_batch_bsp", k, preempt, distinct=False)


EXAMPLE = partial(k_batch_bsp, 2)
