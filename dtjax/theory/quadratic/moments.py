"""Second moments of SGD on a quadratic, update by update: each policy's exact recursion.

loss = 1/2 sum of eigenvalue w^2, gradients eigenvalue x (version read) + independent noise, an
update of k gradients subtracts rate x their mean. One coordinate at a time: the expected loss is
1/2 sum of eigenvalue x E w^2. With exponential compute times it is exact also under staleness.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtjax.theory import _checks
from dtjax.theory.quadratic import moment_maps


class Build(Protocol):
    """A map of `dtjax.theory._moment_maps`."""

    def __call__(self, a: ArrayLike, v: ArrayLike, n: int, k: int) -> NDArray[np.float64]:
        """Return f[..., 5, 5]."""
        ...


def synchronous_second_moments(
    rate: ArrayLike,
    k: int,
    updates: int,
    *,
    eigenvalue: ArrayLike = 1.0,
    noise: ArrayLike = 0.0,
    start: ArrayLike = 1.0,
) -> NDArray[np.float64]:
    """Compute E w_t^2 under BSP (k = n), k-BSP and k-batch-BSP, update by update.

    E w_(t+1)^2 = (1 - a)^2 E w_t^2 + v / k, a = rate x eigenvalue, v = (rate noise)^2: no gradient
    is stale. Any compute times.

    Args:
        rate: positive.
        k: gradients averaged in an update, at least 1.
        updates: the last t, an integer of at least 0.
        eigenvalue: of the quadratic, not negative.
        noise: standard deviation of the gradient of one mini-batch, not negative: that of
            `dtjax.task.quadratic` divided by the square root of the examples.
        start: the parameter at version 0.

    Returns:
        f[updates + 1, ...], the broadcast shape of the numbers behind the updates; inf where it
        leaves binary64.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> synchronous_second_moments(0.5, 4, 2, noise=2.0).tolist()
        [1.0, 0.5, 0.375]

    Reference:
        Derived; checked by simulation.
    """
    function = "synchronous_second_moments"
    order = _checks.one_integer(function, "k", k, 1)
    build = moment_maps.synchronous
    return _walk(function, build, order, order, updates, rate, eigenvalue, noise, start)


def exponential_asp_second_moments(
    rate: ArrayLike,
    n: int,
    updates: int,
    *,
    eigenvalue: ArrayLike = 1.0,
    noise: ArrayLike = 0.0,
    start: ArrayLike = 1.0,
) -> NDArray[np.float64]:
    """Compute E w_t^2 under ASP with equal exponential workers, update by update.

    With A = E w^2, B = E w v_i, C = E v_i^2, D = E v_i v_j, v_i the version that worker i works
    on, a = rate x eigenvalue and v = (rate noise)^2:
    A' = A - 2 a B + a^2 C + v, B' = A'/n + (1 - 1/n) (B - a D), C' = A'/n + (1 - 1/n) C,
    D' = (2/n) (B - a D) + (1 - 2/n) D, all start^2 at first: each arrival is any worker's with
    probability 1/n. The mean is that of heavy ball with momentum 1 - 1/n and rate rate/n.

    Args:
        rate: positive.
        n: workers, at least 1.
        updates: the last t, an integer of at least 0.
        eigenvalue: of the quadratic, not negative.
        noise: standard deviation of one gradient, not negative.
        start: the parameter at version 0.

    Returns:
        f[updates + 1, ...], the broadcast shape of the numbers behind the updates; inf where it
        leaves binary64.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> exponential_asp_second_moments(0.5, 2, 2).tolist()
        [1.0, 0.25, 0.03125]

    Reference:
        Derived; checked by simulation.
    """
    function = "exponential_asp_second_moments"
    total = _checks.one_integer(function, "n", n, 1)
    build = moment_maps.k_asp
    return _walk(function, build, total, 1, updates, rate, eigenvalue, noise, start)


def exponential_k_asp_second_moments(
    rate: ArrayLike,
    n: int,
    k: int,
    updates: int,
    *,
    eigenvalue: ArrayLike = 1.0,
    noise: ArrayLike = 0.0,
    start: ArrayLike = 1.0,
) -> NDArray[np.float64]:
    """Compute E w_t^2 under k-ASP with equal exponential workers, update by update.

    In the letters of `exponential_asp_second_moments`, as every set of k workers delivers with the
    same probability: A' = A - 2 a B + a^2 (C + (k-1) D) / k + v/k,
    B' = p A' + (1 - p) (B - a D), C' = p A' + (1 - p) C with p = k/n, and
    D' = p2 A' + p1 (B - a D) + p0 D with p2, p1, p0 = k (k-1), 2 k (n-k), (n-k) (n-k-1), each
    divided by n (n-1): the probabilities that two, one or none of a pair delivers.

    Args:
        rate: positive.
        n: workers, at least 1.
        k: distinct workers an update waits for, 1 to n; 1 is ASP, n is BSP.
        updates: the last t, an integer of at least 0.
        eigenvalue: of the quadratic, not negative.
        noise: standard deviation of one gradient, not negative.
        start: the parameter at version 0.

    Returns:
        f[updates + 1, ...], the broadcast shape of the numbers behind the updates; inf where it
        leaves binary64.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> exponential_k_asp_second_moments(0.5, 3, 2, 2, noise=1.0).round(4).tolist()
        [1.0, 0.375, 0.2135]

    Reference:
        Derived; checked by simulation and against the stationary variance.
    """
    function = "exponential_k_asp_second_moments"
    _checks.workers_and_order(function, n, k)
    total = _checks.one_integer(function, "n", n, 1)
    order = _checks.one_integer(function, "k", k, 1)
    build = moment_maps.k_asp
    return _walk(function, build, total, order, updates, rate, eigenvalue, noise, start)


def exponential_k_batch_asp_second_moments(
    rate: ArrayLike,
    n: int,
    k: int,
    updates: int,
    *,
    eigenvalue: ArrayLike = 1.0,
    noise: ArrayLike = 0.0,
    start: ArrayLike = 1.0,
) -> NDArray[np.float64]:
    """Compute E w_t^2 under k-batch-ASP with equal exponential workers, update by update.

    By arrivals: b is rate/k x the sum of the buffered gradients, and beside A, B, C, D of
    `exponential_asp_second_moments` there are F = E w b, G = E v_i b, H = E b^2, 0 at an update.
    Each arrival is any worker's with probability 1/n:
    H' = H + 2 c G + c^2 C + v/k^2, F' = F + c B, G' = F'/n + (1 - 1/n) (G + c D), c = a/k;
    B' = A/n + (1 - 1/n) B, C' = A/n + (1 - 1/n) C, D' = (2/n) B + (1 - 2/n) D. The k-th arrival
    makes w' = w - b': A' = A - 2 F' + H', and with M = B - G - c D
    B' = A'/n + (1 - 1/n) M, C' = A'/n + (1 - 1/n) C, D' = (2/n) M + (1 - 2/n) D.

    Args:
        rate: positive.
        n: workers, at least 1.
        k: mini-batches an update waits for, at least 1, also above n; 1 is ASP.
        updates: the last t, an integer of at least 0.
        eigenvalue: of the quadratic, not negative.
        noise: standard deviation of one gradient, not negative.
        start: the parameter at version 0.

    Returns:
        f[updates + 1, ...], the broadcast shape of the numbers behind the updates; inf where it
        leaves binary64.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> exponential_k_batch_asp_second_moments(0.5, 3, 2, 2, noise=1.0).round(4).tolist()
        [1.0, 0.375, 0.2205]

    Reference:
        Derived; checked by simulation and against a sum over all sequences of arrivals.
    """
    function = "exponential_k_batch_asp_second_moments"
    total = _checks.one_integer(function, "n", n, 1)
    order = _checks.one_integer(function, "k", k, 1)
    build = moment_maps.k_batch_asp
    return _walk(function, build, total, order, updates, rate, eigenvalue, noise, start)


def _walk(
    function: str,
    build: Build,
    n: int,
    k: int,
    updates: int,
    rate: ArrayLike,
    eigenvalue: ArrayLike,
    noise: ArrayLike,
    start: ArrayLike,
) -> NDArray[np.float64]:
    """Check the numbers and iterate a map."""
    last = _checks.one_integer(function, "updates", updates, 0)
    size = _checks.positive(function, "rate", rate)
    curve = _checks.non_negative(function, "eigenvalue", eigenvalue)
    spread = _checks.non_negative(function, "noise", noise)
    first = _checks.finite(function, "start", start)
    shape = np.broadcast_shapes(size.shape, curve.shape, spread.shape, first.shape)
    matrix = build(size * curve, np.square(size * spread), n, k)
    return walk(matrix, moment_maps.from_start(first, shape), last)


def walk(
    matrix: NDArray[np.float64], state: NDArray[np.float64], updates: int
) -> NDArray[np.float64]:
    """Return E w_t^2 of a map at t = 0 .. updates, f[updates + 1, ...]."""
    found = [state[..., 0]]
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(updates):
            state = (matrix @ state[..., None])[..., 0]
            found.append(moment_maps.second_moment(state))
    return np.stack(found)
