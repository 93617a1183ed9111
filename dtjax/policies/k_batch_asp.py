"""Asynchronous updates of k mini-batches from any workers."""

from __future__ import annotations

from functools import partial
from typing import Any

from dtjax.core import checks
from dtjax.policies._arguments import cutoff
from dtjax.policies.rule import Rule


def k_batch_asp(k: Any, max_staleness: Any = None) -> Rule:
    """Make k-batch-ASP: the server updates when k mini-batches have come; all go on at once.

    Args:
        k: mini-batches, 1 or more; 1 is ASP. May be traced.
        max_staleness: as in `asp`.

    Raises:
        ValueError: if `k` is not an integer of 1 or more, or `max_staleness` negative.

    Example:
        >>> k_batch_asp(4).k
        4

    Reference:
        Dutta et al., "Slow and stale gradients can win the race", AISTATS 2018 (K-batch-async);
        Zhang et al., 2016 (n-softsync); Nguyen et al., 2022 (FedBuff with one local step).
    """
    k = checks.integer("k_batch_asp", "k", k, low=1)
    return Rule(k=k, max_staleness=cutoff("k_batch_asp", max_staleness))


EXAMPLE = partial(k_batch_asp, 2)
