"""Checks that several policies share."""

from __future__ import annotations

from typing import Any

from dtjax.core import checks
from dtjax.policies.rule import Rule


def cutoff(function: str, max_staleness: Any) -> Any:
    """Check the staleness above which gradients are discarded."""
    if max_staleness is None:
        return None
    return checks.integer(function, "max_staleness", max_staleness, low=0)


def synchronous(function: str, k: Any, preempt: bool, distinct: bool) -> Rule:
    """Make a rule under which every gradient is of the newest version."""
    if not isinstance(preempt, bool):
        raise checks.fail(function, "preempt", "must be True or False", preempt)
    k = checks.integer(function, "k", k, low=1)
    return Rule(k=k, distinct=distinct, cancel=preempt, max_staleness=None if preempt else 0)
