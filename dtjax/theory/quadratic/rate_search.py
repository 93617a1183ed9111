"""Search for rates with the least expected loss on a quadratic: what the public searches share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from dtjax.theory import _checks
from dtjax.theory.order_statistics.law import Law
from dtjax.theory.quadratic import by_policy, moment_maps

_MOST = 2**30  # updates
_A_DECADE = 12  # rates tried in a factor of ten, before the best is refined
_COARSE = 4
_ZOOMS = 40
_BELOW = 1 - 1e-9  # of the edge


class Search(NamedTuple):
    """A policy on a quadratic, and the rates to look at."""

    maps: Callable[[ArrayLike], NDArray[np.float64]]  # rate f[...] -> f[..., d, 5, 5]
    curve: NDArray[np.float64]  # f[d]
    first: NDArray[np.float64]  # f[d, 5], the moments at the start
    edge: float  # the largest rate
    each: float  # seconds per update

    def rates(self, updates: int, a_decade: int) -> NDArray[np.float64]:
        """Return rates from where nothing moves in so many updates to the edge, rising."""
        low = min(0.01 / updates, 0.1) / self.curve.max()
        low = min(low, self.edge / 10)
        count = math.ceil(a_decade * math.log10(self.edge / low)) + 1
        return np.geomspace(low, self.edge * _BELOW, count)

    def loss(self, rate: ArrayLike, updates: int) -> NDArray[np.float64]:
        """Return the expected loss f[...] after so many updates with each rate f[...]."""
        state = moment_maps.after(self.maps(rate), self.first, updates)
        return by_policy.loss(moment_maps.second_moment(state), self.curve)


def prepare(
    function: str,
    policy: str,
    law: Law,
    n: int,
    k: int | None,
    eigenvalues: ArrayLike,
    noise: ArrayLike,
    start: ArrayLike,
) -> Search:
    """Check what both searches need."""
    rule, total, order = by_policy.resolve(function, policy, n, k)
    quadratic = by_policy.problem(function, eigenvalues, noise, start)
    each = rule.seconds(function, policy, law, total, order)
    curved = quadratic.curve > 0  # flat directions cost nothing
    quadratic = by_policy.Problem(*(part[curved] for part in quadratic))
    curve = quadratic.curve
    return Search(
        maps=lambda rate: by_policy.maps(rule, quadratic, total, order, rate),
        curve=curve,
        first=moment_maps.from_start(quadratic.start, curve.shape),
        edge=rule.edge(total, order) / curve.max(),
        each=each,
    )


def ends(
    function: str, search: Search, deadline: float | None, target: float | None
) -> tuple[int, float | None]:
    """Return the most updates, and the target if there is one."""
    if deadline is None and target is None:
        raise _checks.fail(function, "deadline", "or target must be given", None)

    def seen(argument: str, value: float) -> float:
        checked = _checks.non_negative(function, argument, value)
        return by_policy.one(function, argument, checked)

    goal = None if target is None else seen("target", target)
    if deadline is None:
        return _MOST, goal
    time = seen("deadline", deadline)
    return int(min(time / search.each * (1 + 1e-12), _MOST)), goal


def soonest(
    search: Search, find: Callable[[Search, int], Any], last: int, goal: float | None
) -> tuple[int, Any, bool]:
    """Return (updates, what `find` finds there, whether it meets the goal)."""
    if goal is None:
        return last, find(search, last), True
    low, high, best = -1, 0, find(search, 0)  # the goal is met at `high`, not at `low`
    while best[0] > goal:
        if high == last:
            return last, best, False
        low, high = high, min(max(2 * high, 1), last)
        best = find(search, high)
    while high - low > 1:
        middle = (low + high) // 2
        found = find(search, middle)
        if found[0] <= goal:
            high, best = middle, found
        else:
            low = middle
    return high, best, True


def least(search: Search, updates: int) -> tuple[float, float]:
    """Return (loss, rate) of the rate with the least loss after so many updates."""
    if updates == 0:
        return float(by_policy.loss(search.first[:, 0], search.curve)), 0.0
    rates = search.rates(updates, _A_DECADE)
    losses = search.loss(rates, updates)
    best = int(np.argmin(losses))
    ends = np.log(rates[[max(best - 1, 0), min(best + 1, len(rates) - 1)]])
    result: Any = optimize.minimize_scalar(
        lambda x: float(search.loss(math.exp(x), updates)),
        bounds=tuple(ends),
        method="bounded",
        options={"xatol": 1e-10},
    )
    if result.fun < losses[best]:
        return float(result.fun), math.exp(float(result.x))
    return float(losses[best]), float(rates[best])


def least_of_two(search: Search, updates: int) -> tuple[float, float, float, int]:
    """Return (loss, rate before, rate after, updates before) of the least loss."""
    loss, rate = least(search, updates)
    best = (loss, rate, rate, updates)
    if updates == 0:
        return best
    rates = search.rates(updates, _COARSE)
    whole = np.unique(np.r_[np.linspace(0, updates, 9), np.geomspace(1, updates, 9)].round())
    for times in (whole, updates - whole):
        best = min(best, _of_grid(search, updates, rates, rates, times))
    width, reach = math.log(10) / _COARSE, max(updates / 8, 1.0)
    spread = np.linspace(-1, 1, 7)
    for _ in range(_ZOOMS):
        before, after = (
            np.minimum(middle * np.exp(width * spread), search.edge * _BELOW)
            for middle in best[1:3]
        )
        times = np.unique(np.clip(np.round(best[3] + reach * spread), 0, updates))
        found = min(best, _of_grid(search, updates, before, after, times))
        if found[0] > best[0] * (1 - 1e-7):
            width, reach = width / 2, max(reach / 2, 1.0)
        best = found
        if width < 1e-6:
            break
    return best


def _of_grid(
    search: Search,
    updates: int,
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    times: NDArray[Any],
) -> tuple[float, float, float, int]:
    """Return (loss, before, after, updates before) of the best point of a grid."""
    first, second = search.maps(before), search.maps(after)
    best = (math.inf, 0.0, 0.0, 0)
    for when in times.astype(int).tolist():
        state = moment_maps.after(first, search.first, when)  # f[G, d, 5]
        with np.errstate(over="ignore", invalid="ignore"):
            rows = np.linalg.matrix_power(second, updates - when)[..., 0, :]
            square = np.einsum("hdi,gdi->ghd", rows, state)
        losses = by_policy.loss(moment_maps.second_moment(square[..., None]), search.curve)
        g, h = np.unravel_index(np.argmin(losses), losses.shape)
        best = min(best, (float(losses[g, h]), float(before[g]), float(after[h]), when))
    return best
