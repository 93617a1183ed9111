"""Expected loss against time on a quadratic: the exact frontier of six policies.

Loss 1/2 sum of eigenvalue w^2, gradients with independent noise (see `quadratic_moments`), equal
workers, no communication and no server seconds. Which compute times a policy allows:

* bsp, k-bsp: any independent times. Nothing is stale, and the seconds are an order statistic.
* k-batch-bsp: exponential without shift. Nothing is stale, but other laws' seconds have no formula.
* asp, k-asp, k-batch-asp: exponential without shift. Then who delivers is independent of what was
  read, and of when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from dtjax.theory import _checks
from dtjax.theory.order_statistics.law import Law
from dtjax.theory.quadratic import by_policy, moment_maps
from dtjax.theory.quadratic.moments import walk


@dataclass(frozen=True)
class Frontier:
    """Expected loss against time: see `frontier`."""

    updates: NDArray[np.int64]  # i[T + 1]: 0 .. T
    seconds: NDArray[np.float64]  # f[T + 1], expected time of each update
    loss: NDArray[np.float64]  # f[T + 1], expected loss after each update
    seconds_per_update: float
    floor: float  # the expected loss in the long run; inf if the rate is not stable


def frontier(
    policy: str,
    law: Law,
    n: int,
    k: int | None = None,
    *,
    rate: float,
    eigenvalues: ArrayLike,
    updates: int,
    noise: ArrayLike = 0.0,
    start: ArrayLike = 1.0,
) -> Frontier:
    """Compute the expected loss after each update against the expected time of that update.

    loss[J] = 1/2 sum_i eigenvalue_i E w_i^2 after update J, seconds[J] = J x (mean seconds of an
    update), both exact from a fresh start at w_0 = start. What happens at a given *second* is
    another question, since the number of updates made by then is random: `loss_at_seconds`.
    Mean seconds of an update, H harmonic numbers, m = E[X]: bsp, k-bsp E[X_(k:n)]; k-asp
    (H_n - H_(n-k)) m; k-batch-bsp, k-batch-asp k m / n; asp m / n.

    Args:
        policy: `bsp`, `k-bsp`, `k-batch-bsp`, `asp`, `k-asp` or `k-batch-asp`.
        law: compute time of every worker, seconds; any law of independent times for bsp and k-bsp,
            exponential without shift for the others.
        n: workers, at least 1.
        k: workers (k-bsp, k-asp: 1 to n) or mini-batches (at least 1) of an update; None for bsp
            and asp.
        rate: the learning rate, positive.
        eigenvalues: f[d], not negative, one of them positive.
        updates: T, at least 0.
        noise: f[] or f[d], standard deviation of the gradient of one mini-batch: that of
            `dtjax.task.quadratic` divided by the square root of the examples.
        start: f[] or f[d], the parameters at version 0.

    Returns:
        The curve; its loss is inf where it leaves binary64.

    Raises:
        ValueError: if an argument is out of range, the policy does not allow the law, or the mean
            seconds of an update are infinite.

    Example:
        >>> from scipy import stats
        >>> curve = frontier("asp", stats.expon(), 8, rate=0.25, eigenvalues=[1.0], updates=2)
        >>> curve.seconds.tolist(), curve.loss.round(4).tolist()
        ([0.0, 0.125, 0.25], [0.5, 0.2812, 0.1292])

    Reference:
        Derived; checked by simulation and against the trainer. The question is that of Dutta et
        al., "Slow and stale gradients can win the race", AISTATS 2018.
    """
    name = "frontier"
    rule, total, order = by_policy.resolve(name, policy, n, k)
    size = by_policy.one(name, "rate", _checks.positive(name, "rate", rate))
    quadratic = by_policy.problem(name, eigenvalues, noise, start)
    last = _checks.one_integer(name, "updates", updates, 0)
    each = rule.seconds(name, policy, law, total, order)
    matrix = by_policy.maps(rule, quadratic, total, order, size)
    state = moment_maps.from_start(quadratic.start, quadratic.curve.shape)
    count = np.arange(last + 1)
    loss = by_policy.loss(walk(matrix, state, last), quadratic.curve)
    return Frontier(count, np.asarray(count * each), loss, each, _floor(matrix, quadratic.curve))


def loss_at_seconds(
    policy: str,
    law: Law,
    n: int,
    k: int | None = None,
    *,
    rate: float,
    eigenvalues: ArrayLike,
    seconds: ArrayLike,
    noise: ArrayLike = 0.0,
    start: ArrayLike = 1.0,
) -> NDArray[np.float64]:
    """Compute the expected loss at given seconds, where the number of updates made is random.

    E loss(t) = sum over J of P(J updates by t) x loss[J] of `frontier`: with exponential times the
    number of updates does not depend on who delivers. It is a linear differential equation in the
    moments x_p of the runs that have p of the k gradients of an update: x_p' = r_(p-1) x_(p-1)
    - r_p x_p, and an update's map M brings r_(k-1) M x_(k-1) to x_0. The next gradient comes at
    rate r_p = (n - p) / m where workers wait for the update, n / m where none does.

    Args:
        policy: as in `frontier`.
        law: exponential without shift, for every policy.
        n: workers, at least 1.
        k: as in `frontier`.
        rate: the learning rate, positive.
        eigenvalues: f[d], not negative, one of them positive.
        seconds: f[...], at least 0, since the start.
        noise: f[] or f[d], as in `frontier`.
        start: f[] or f[d], the parameters at version 0.

    Returns:
        f[...], the shape of `seconds`; inf where it leaves binary64. Relative error about 1e-10.

    Raises:
        ValueError: if an argument is out of range or the law is not exponential.

    Example:
        >>> from scipy import stats
        >>> settings = {"rate": 0.25, "eigenvalues": [1.0]}
        >>> loss = loss_at_seconds("asp", stats.expon(), 8, seconds=[0.0, 0.25], **settings)
        >>> loss.round(4).tolist()  # at the expected time of update 2 it is not that of update 2
        [0.5, 0.188]

    Reference:
        Derived; checked against the sum over the number of updates and by simulation.
    """
    name = "loss_at_seconds"
    rule, total, order = by_policy.resolve(name, policy, n, k)
    size = by_policy.one(name, "rate", _checks.positive(name, "rate", rate))
    quadratic = by_policy.problem(name, eigenvalues, noise, start)
    times = _checks.non_negative(name, "seconds", seconds)
    mean = by_policy.exponential_mean(name, policy, law)
    waiting = policy in ("bsp", "k-bsp", "k-asp")
    rates = (total - np.arange(order) * waiting) / mean
    matrix = by_policy.maps(rule, quadratic, total, order, size)
    state = moment_maps.from_start(quadratic.start, quadratic.curve.shape)
    found = np.zeros(times.shape)
    for curve, own, first in zip(quadratic.curve, matrix, state, strict=True):
        if curve > 0:
            found += 0.5 * curve * _square_at(_flow(own, rates), first, times)
    return found[()]


def stability_map(
    policies: Sequence[str],
    workers: Sequence[int],
    *,
    k: ArrayLike | None = None,
    eigenvalue: float = 1.0,
) -> NDArray[np.float64]:
    """Compute the largest stable rate of each policy for each number of workers.

    In mean square, with equal exponential workers where gradients are stale: see
    `exponential_k_asp_stability_edge` and its kin.

    Args:
        policies: names as in `frontier`.
        workers: i[W], at least 1.
        k: i[] or i[W], for the policies that wait for k; the others do not look at it.
        eigenvalue: the largest of the quadratic, positive.

    Returns:
        f[P, W], rates.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> stability_map(["bsp", "asp", "k-asp"], [2, 8], k=2).round(4).tolist()
        [[2.0, 2.0], [1.2808, 0.5664], [2.0, 1.1502]]

    Reference:
        Derived; the edges are checked against spectral radii.
    """
    name = "stability_map"
    curve = by_policy.one(name, "eigenvalue", _checks.positive(name, "eigenvalue", eigenvalue))
    if isinstance(policies, str):
        raise _checks.fail(name, "policies", "must be a list of names", repr(policies))
    if np.ndim(workers) != 1:
        rule_ = "must be a list of numbers of workers"
        raise _checks.fail(name, "workers", rule_, f"shape {np.shape(workers)}")
    totals = [_checks.one_integer(name, "workers", n, 1) for n in workers]
    given = np.shape(np.asarray(k))
    if given not in ((), (len(totals),)):
        rule_ = f"must be one number, or one for each of {len(totals)} numbers of workers"
        raise _checks.fail(name, "k", rule_, f"shape {given}")
    orders = [None] * len(totals) if k is None else np.broadcast_to(k, len(totals)).tolist()
    table = np.zeros((len(policies), len(totals)))
    for i, policy in enumerate(policies):
        rule = by_policy.named(name, policy)
        for j, (n, order) in enumerate(zip(totals, orders, strict=True)):
            own = None if policy in ("bsp", "asp") else order
            table[i, j] = rule.edge(n, rule.order(name, n, own))
    return table / curve


def _floor(matrix: NDArray[np.float64], curve: NDArray[np.float64]) -> float:
    curved = curve > 0
    return float(0.5 * np.sum(curve[curved] * moment_maps.fixed_point(matrix[curved])))


def _square_at(
    flow: NDArray[np.float64], first: NDArray[np.float64], times: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return E w^2 at each time, walking from one to the next: an even grid takes one matrix."""
    size = len(first)
    state = np.concatenate([first, np.zeros(len(flow) - size)])
    ordered, place = np.unique(times, return_inverse=True)
    found, rates = [], {}
    for wait in np.diff(ordered, prepend=0.0).tolist():
        wait = float(f"{wait:.13g}")  # an even grid is uneven in its last digits
        with np.errstate(over="ignore", invalid="ignore"):
            if wait not in rates:
                rates[wait] = linalg.expm(flow * wait)
            state = rates[wait] @ state
        found.append(state.reshape(-1, size)[:, 0].sum())
    square = np.maximum(found, 0.0)
    return np.where(np.isfinite(square), square, np.inf)[place].reshape(times.shape)


def _flow(matrix: NDArray[np.float64], rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the generator of the moments of all phases, f[5 k, 5 k]."""
    k, size = len(rates), moment_maps.SIZE
    flow = np.zeros((k, size, k, size))
    for p, rate in enumerate(rates):
        flow[p, :, p, :] -= rate * np.eye(size)
        flow[(p + 1) % k, :, p, :] += rate * (matrix if p + 1 == k else np.eye(size))
    return flow.reshape(k * size, k * size)
