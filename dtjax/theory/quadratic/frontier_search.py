"""The best fixed rate on a quadratic, and the best time to change it, under each policy.

What is minimised is the exact expected loss of `dtjax.theory.frontier`, which says which compute
times a policy allows. Steps are searched below the stability edge of the largest eigenvalue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from numpy.typing import ArrayLike

from dtjax.theory.order_statistics.law import Law
from dtjax.theory.quadratic import rate_search


@dataclass(frozen=True)
class BestRate:
    """See `best_rate`."""

    rate: float  # 0 if no update is made
    updates: int
    seconds: float  # expected time of the last update; inf if the target is not reached
    loss: float  # expected, after the last update


@dataclass(frozen=True)
class BestSwitch:
    """See `best_switch`."""

    before: float  # rate of the first updates
    after: float  # rate of the others
    switch_updates: int  # how many updates are made with `before`
    switch_seconds: float  # expected time of the last of them
    updates: int
    seconds: float  # expected time of the last update; inf if the target is not reached
    loss: float  # expected, after the last update


def best_rate(
    policy: str,
    law: Law,
    n: int,
    k: int | None = None,
    *,
    eigenvalues: ArrayLike,
    noise: ArrayLike = 0.0,
    start: ArrayLike = 1.0,
    deadline: float | None = None,
    target: float | None = None,
) -> BestRate:
    """Find the fixed rate with the least expected loss at a deadline, or the soonest at a target.

    With a deadline alone: the least of `frontier(...).loss[J]` over rates, J the updates whose
    expected time is not past it. With a target: the least J at which some rate has an expected loss
    of at most the target, which takes for granted that the least loss over rates falls with J.
    The best of a grid of 12 rates a factor of ten is refined, so that a minimum narrower than
    that may be missed.

    Args:
        policy: as in `frontier`.
        law: as in `frontier`, seconds.
        n: workers, at least 1.
        k: as in `frontier`.
        eigenvalues: f[d], not negative, one of them positive.
        noise: f[] or f[d], standard deviation of the gradient of one mini-batch.
        start: f[] or f[d], the parameters at version 0.
        deadline: seconds, at least 0. With a target: where the search ends.
        target: expected loss, at least 0.

    Returns:
        The rate. Where no rate reaches the target by the deadline (without one: in 2^30 updates)
        `seconds` is inf, and rate, updates and loss are of the least loss by then.

    Raises:
        ValueError: if an argument is out of range, neither deadline nor target is given, or the
            policy does not allow the law.

    Example:
        >>> from scipy import stats
        >>> best = best_rate("bsp", stats.expon(), 8, eigenvalues=[2.0], deadline=30.0)
        >>> round(best.rate, 4), best.updates  # 1 / eigenvalue, without noise
        (0.5, 11)

    Reference:
        Derived; checked against exhaustive search.
    """
    name = "best_rate"
    search = rate_search.prepare(name, policy, law, n, k, eigenvalues, noise, start)
    last, goal = rate_search.ends(name, search, deadline, target)
    updates, (loss, rate), found = rate_search.soonest(search, rate_search.least, last, goal)
    seconds = updates * search.each if found else math.inf
    return BestRate(rate, updates, seconds, loss)


def best_switch(
    policy: str,
    law: Law,
    n: int,
    k: int | None = None,
    *,
    eigenvalues: ArrayLike,
    noise: ArrayLike = 0.0,
    start: ArrayLike = 1.0,
    deadline: float | None = None,
    target: float | None = None,
) -> BestSwitch:
    """Find the best rate before, rate after and time of one switch, for a deadline or a target.

    The rate may change once, between two updates; what is in flight goes on. With a deadline alone:
    the least expected loss at it; with a target: the soonest expected loss of at most the
    target, as in `best_rate`, which is the special case of two equal rates and never better.
    A grid over the three numbers is refined around its best point.

    Args:
        policy: as in `frontier`.
        law: as in `frontier`, seconds.
        n: workers, at least 1.
        k: as in `frontier`.
        eigenvalues: f[d], not negative, one of them positive.
        noise: f[] or f[d], standard deviation of the gradient of one mini-batch.
        start: f[] or f[d], the parameters at version 0.
        deadline: seconds, at least 0. With a target: where the search ends.
        target: expected loss, at least 0.

    Returns:
        The two rates and the switch. Where the target is not reached by the deadline (without
        one: in 2^30 updates) `seconds` is inf and the rest is of the least loss by then.

    Raises:
        ValueError: if an argument is out of range, neither deadline nor target is given, or the
            policy does not allow the law.

    Example:
        >>> from scipy import stats
        >>> settings = {"eigenvalues": [1.0], "noise": 1.0, "start": 10.0, "deadline": 10.0}
        >>> best = best_switch("asp", stats.expon(), 4, **settings)
        >>> fixed = best_rate("asp", stats.expon(), 4, **settings)
        >>> best.after < fixed.rate < best.before, best.loss < fixed.loss
        (True, True)

    Reference:
        Derived; checked against exhaustive search.
    """
    name = "best_switch"
    search = rate_search.prepare(name, policy, law, n, k, eigenvalues, noise, start)
    last, goal = rate_search.ends(name, search, deadline, target)
    updates, (loss, before, after, when), found = rate_search.soonest(
        search, rate_search.least_of_two, last, goal
    )
    seconds = updates * search.each if found else math.inf
    return BestSwitch(before, after, when, when * search.each, updates, seconds, loss)
