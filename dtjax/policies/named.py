"""The seven policies of the literature, as rules."""

from __future__ import annotations

from typing import Any

from dtjax.core import checks
from dtjax.policies.rule import Rule


def _cutoff(function: str, max_staleness: Any) -> Any:
    if max_staleness is None:
        return None
    return checks.integer(function, "max_staleness", max_staleness, low=0)


def _synchronous(function: str, k: Any, preempt: bool, distinct: bool) -> Rule:
    if not isinstance(preempt, bool):
        raise checks.fail(function, "preempt", "must be True or False", preempt)
    return Rule(k=k, distinct=distinct, cancel=preempt, max_staleness=None if preempt else 0)


def bsp() -> Rule:
    """Make bulk-synchronous parallel: the server updates when every worker has delivered.

    Example:
        >>> bsp().distinct
        True

    Reference:
        Valiant, "A bridging model for parallel computation", CACM 1990.
    """
    return Rule(k=None, distinct=True)


def asp(max_staleness: Any = None) -> Rule:
    """Make asynchronous parallel: the server updates at every arrival.

    Args:
        max_staleness: updates; an older gradient is discarded and its worker starts again (then
            this is Ringmaster ASGD without stops). None: no limit. May be traced.

    Raises:
        ValueError: if `max_staleness` is no integer or negative.

    Example:
        >>> asp().k
        1

    Reference:
        Recht et al., "Hogwild!", NIPS 2011; Maranjyan et al., "Ringmaster ASGD", 2025.
    """
    return Rule(k=1, max_staleness=_cutoff("asp", max_staleness))


def ssp(bound: Any, max_staleness: Any = None) -> Rule:
    """Make stale-synchronous parallel: nobody runs more than `bound` ahead of the slowest worker.

    Args:
        bound: difference of completed computations, 0 or more; 0 is lock-step. May be traced.
        max_staleness: as in `asp`. It discards; `bound` makes workers wait.

    Raises:
        ValueError: if a number is no integer or negative.

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
        max_staleness=_cutoff("ssp", max_staleness),
    )


def k_bsp(k: Any, preempt: bool = True) -> Rule:
    """Make k-BSP: the server updates when k distinct workers have delivered.

    Args:
        k: workers, 1 to n; n is BSP. May be traced.
        preempt: an update stops the others' work and all start again (True), or the others
            finish and their gradients are thrown away at arrival (False).

    Raises:
        ValueError: if `k` is no integer or below 1.

    Example:
        >>> k_bsp(2).cancel, k_bsp(2, preempt=False).max_staleness
        (True, 0)

    Reference:
        Chen et al., "Revisiting distributed synchronous SGD", 2016 (backup workers); Dutta et
        al., AISTATS 2018 (K-sync).
    """
    k = checks.integer("k_bsp", "k", k, low=1)
    return _synchronous("k_bsp", k, preempt, distinct=True)


def k_batch_bsp(k: Any, preempt: bool = True) -> Rule:
    """Make k-batch-BSP: the server updates when k mini-batches have come, from anyone.

    Args:
        k: mini-batches, 1 or more, also above n. May be traced.
        preempt: as in `k_bsp`; False is Rennala SGD.

    Raises:
        ValueError: if `k` is no integer or below 1.

    Example:
        >>> k_batch_bsp(4).distinct
        False

    Reference:
        Dutta et al., AISTATS 2018 (K-batch-sync); Tyurin and Richtarik, 2023 (Rennala SGD).
    """
    k = checks.integer("k_batch_bsp", "k", k, low=1)
    return _synchronous("k_batch_bsp", k, preempt, distinct=False)


def k_asp(k: Any, max_staleness: Any = None) -> Rule:
    """Make k-ASP: the server updates when k distinct workers have delivered; the others go on.

    Args:
        k: workers, 1 to n; 1 is ASP, n is BSP. May be traced.
        max_staleness: as in `asp`; a discarded gradient does not count towards k.

    Raises:
        ValueError: if `k` is no integer or below 1, or `max_staleness` negative.

    Example:
        >>> k_asp(2).distinct
        True

    Reference:
        Dutta et al., AISTATS 2018 (K-async).
    """
    k = checks.integer("k_asp", "k", k, low=1)
    return Rule(k=k, distinct=True, max_staleness=_cutoff("k_asp", max_staleness))


def k_batch_asp(k: Any, max_staleness: Any = None) -> Rule:
    """Make k-batch-ASP: the server updates when k mini-batches have come; all go on at once.

    Args:
        k: mini-batches, 1 or more; 1 is ASP. May be traced.
        max_staleness: as in `asp`.

    Raises:
        ValueError: if `k` is no integer or below 1, or `max_staleness` negative.

    Example:
        >>> k_batch_asp(4).k
        4

    Reference:
        Dutta et al., AISTATS 2018 (K-batch-async); Zhang et al., 2016 (n-softsync); Nguyen et
        al., 2022 (FedBuff with one local step).
    """
    k = checks.integer("k_batch_asp", "k", k, low=1)
    return Rule(k=k, max_staleness=_cutoff("k_batch_asp", max_staleness))


FACTORIES = {
    "bsp": bsp,
    "asp": asp,
    "ssp": ssp,
    "k-bsp": k_bsp,
    "k-batch-bsp": k_batch_bsp,
    "k-asp": k_asp,
    "k-batch-asp": k_batch_asp,
}
"""The seven factories by the name that command lines use."""
