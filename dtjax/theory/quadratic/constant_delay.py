"""SGD on a quadratic whose gradients are all equally stale, one eigenvalue at a time.

w_(t+1) = w_t - rate (eigenvalue w_(t-staleness) + noise), and version 0 is read until there is an
older one: the first staleness + 1 updates read version 0 and are all applied, as in `dtjax.replay`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtjax.theory import _checks
from dtjax.theory._checks import FloatArray


def constant_delay_stability_edge(
    staleness: ArrayLike, *, eigenvalue: ArrayLike = 1.0
) -> FloatArray:
    """Compute the rate from which SGD of constant staleness no longer converges.

    2 sin(pi / (2 (2 staleness + 1))) / eigenvalue: stable for rates above 0 and below it, in mean
    and in mean square alike. For large staleness it is pi / (2 staleness + 1).

    Args:
        staleness: updates between reading and using, integers of at least 0.
        eigenvalue: of the quadratic, positive.

    Returns:
        Steps, the broadcast shape of the arguments.

    Raises:
        ValueError: if a staleness is no such integer or an eigenvalue not positive and finite.

    Example:
        >>> constant_delay_stability_edge([0, 1, 2, 4, 8]).round(5).tolist()
        [2.0, 1.0, 0.61803, 0.3473, 0.18454]

    Reference:
        Derived; checked by simulation.
    """
    function = "constant_delay_stability_edge"
    late = _checks.integer(function, "staleness", staleness, 0)
    curve = _checks.positive(function, "eigenvalue", eigenvalue)
    return (_edge(late) / curve)[()]


def constant_delay_fastest_rate(staleness: ArrayLike, *, eigenvalue: ArrayLike = 1.0) -> FloatArray:
    """Compute the rate with which SGD of constant staleness forgets its start fastest.

    tau^tau / (tau + 1)^(tau + 1) / eigenvalue, tau the staleness, where the two slowest modes meet:
    the error then falls by tau / (tau + 1) an update. For large tau it is 1 / (e (tau + 1)).

    Args:
        staleness: updates between reading and using, integers of at least 0.
        eigenvalue: of the quadratic, positive.

    Returns:
        Steps, the broadcast shape of the arguments.

    Raises:
        ValueError: if a staleness is no such integer or an eigenvalue not positive and finite.

    Example:
        >>> constant_delay_fastest_rate([0, 1]).tolist()
        [1.0, 0.25]

    Reference:
        Derived; checked by simulation.
    """
    function = "constant_delay_fastest_rate"
    late = _checks.integer(function, "staleness", staleness, 0)
    curve = _checks.positive(function, "eigenvalue", eigenvalue)
    with np.errstate(divide="ignore"):
        ratio = np.exp(-late * np.log1p(1 / np.maximum(late, 1)))
    return (np.where(late == 0, 1.0, ratio) / (late + 1) / curve)[()]


def constant_delay_response(
    rate: ArrayLike, staleness: int, updates: int, *, eigenvalue: ArrayLike = 1.0
) -> NDArray[np.float64]:
    """Compute how SGD of constant staleness answers to a unit disturbance.

    b_0, ..., b_updates of b_(k+1) = b_k - a b_(k-staleness), a = rate x eigenvalue, b_k = 1 up to
    k = staleness; b_k = sum over i <= k / (staleness + 1) of (-a)^i C(k - staleness i, i). Noise of
    one update moves the parameter k updates later by b_k of itself, and w_t = b_(t+staleness) w_0.

    Args:
        rate: positive.
        staleness: updates between reading and using, an integer of at least 0.
        updates: the last k, an integer of at least 0.
        eigenvalue: of the quadratic, not negative.

    Returns:
        f[updates + 1, ...], the shape of rate and eigenvalue behind the updates; infinite where
        numbers leave binary64.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> constant_delay_response(0.5, 1, 4).tolist()
        [1.0, 1.0, 0.5, 0.0, -0.25]

    Reference:
        Derived; checked against the sum in exact fractions.
    """
    function = "constant_delay_response"
    late = _checks.one_integer(function, "staleness", staleness, 0)
    last = _checks.one_integer(function, "updates", updates, 0)
    return _response(_gain(function, rate, eigenvalue), late, last)


def constant_delay_second_moments(
    rate: ArrayLike,
    staleness: int,
    updates: int,
    *,
    eigenvalue: ArrayLike = 1.0,
    noise: ArrayLike = 0.0,
    start: ArrayLike = 1.0,
) -> NDArray[np.float64]:
    """Compute E w_t^2 of SGD of constant staleness, update by update.

    E w_t^2 = b_(t+staleness)^2 start^2 + (rate noise)^2 sum over i < t of b_i^2, b of
    `constant_delay_response`. Exact, as the first staleness + 1 updates read version 0 and apply.

    Args:
        rate: positive.
        staleness: updates between reading and using, an integer of at least 0.
        updates: the last t, an integer of at least 0.
        eigenvalue: of the quadratic, not negative.
        noise: standard deviation of the gradient of an update, not negative.
        start: the parameter at version 0.

    Returns:
        f[updates + 1, ...], the broadcast shape of the numbers behind the updates.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> constant_delay_second_moments(0.5, 1, 3, start=2.0).tolist()
        [4.0, 1.0, 0.0, 0.25]

    Reference:
        Derived; checked by simulation.
    """
    function = "constant_delay_second_moments"
    late = _checks.one_integer(function, "staleness", staleness, 0)
    last = _checks.one_integer(function, "updates", updates, 0)
    spread = _checks.non_negative(function, "noise", noise)
    first = _checks.finite(function, "start", start)
    gain = _gain(function, rate, eigenvalue)
    shape = np.broadcast_shapes(gain.shape, spread.shape, first.shape)
    drive = np.square(np.asarray(rate, np.float64) * spread)
    with np.errstate(invalid="ignore", over="ignore"):
        square = _response(np.broadcast_to(gain, shape), late, last + late) ** 2
        grown = np.concatenate([np.zeros((1, *shape)), np.cumsum(square[:last], axis=0)])
        decayed = np.where(first == 0, 0.0, square[late:] * first**2)
        noisy = np.where(drive == 0, 0.0, grown * drive)
        return decayed + noisy


def constant_delay_stationary_variance(
    rate: ArrayLike,
    staleness: ArrayLike,
    *,
    eigenvalue: ArrayLike = 1.0,
    noise: ArrayLike = 1.0,
) -> FloatArray:
    """Compute the variance around the optimum at which SGD of constant staleness ends.

    (rate noise)^2 (1 + sin u) / (2 a cos(h) cos u), a = rate x eigenvalue, h = arcsin(a / 2) and
    u = (2 staleness + 1) h; at staleness 0 it is (rate noise)^2 / (a (2 - a)).

    Args:
        rate: positive.
        staleness: updates between reading and using, integers of at least 0.
        eigenvalue: of the quadratic, positive.
        noise: standard deviation of the gradient of an update, not negative.

    Returns:
        E w^2, the broadcast shape of the arguments; inf from the stability edge on.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> round(float(constant_delay_stationary_variance(0.5, 1)), 4)
        0.6

    Reference:
        Derived; checked against the sum of squared responses.
    """
    function = "constant_delay_stationary_variance"
    late = _checks.integer(function, "staleness", staleness, 0)
    curve = _checks.positive(function, "eigenvalue", eigenvalue)
    spread = _checks.non_negative(function, "noise", noise)
    size = _checks.positive(function, "rate", rate)
    gain = size * curve
    stable = gain < _edge(late)
    half = np.arcsin(np.where(stable, gain, 0.0) / 2)
    phase = (2 * late + 1) * half
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (1 + np.sin(phase)) / (2 * gain * np.cos(half) * np.cos(phase))
    return np.where(stable, np.square(size * spread) * ratio, np.inf)[()]


def _edge(late: NDArray[np.float64]) -> NDArray[np.float64]:
    return 2 * np.sin(np.pi / (2 * (2 * late + 1)))


def _gain(function: str, rate: ArrayLike, eigenvalue: ArrayLike) -> NDArray[np.float64]:
    """Return rate x eigenvalue, both checked."""
    size = _checks.positive(function, "rate", rate)
    return np.asarray(size * _checks.non_negative(function, "eigenvalue", eigenvalue))


def _response(gain: NDArray[np.float64], late: int, last: int) -> NDArray[np.float64]:
    found = np.ones((last + 1, *gain.shape))
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(late, last):
            found[k + 1] = found[k] - gain * found[k - late]
    return np.where(np.isfinite(found), found, np.inf)
