"""What the frontier asks of a policy: its k, its map of moments, its seconds, its stable rates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtjax.cluster.delays.law import Memoryless
from dtjax.core import checks
from dtjax.theory import _checks
from dtjax.theory.order_statistics.any_law import mean_by_quadrature
from dtjax.theory.order_statistics.harmonic import harmonic_difference
from dtjax.theory.order_statistics.law import Law, finite_mean, inverse_survival, require_one
from dtjax.theory.quadratic import moment_maps
from dtjax.theory.quadratic.moments import Build
from dtjax.theory.quadratic.stability import (
    exponential_k_asp_stability_edge,
    exponential_k_batch_asp_stability_edge,
)

_LEVELS = np.array([1e-12, 1e-3, 0.1, 0.5, 0.9, 0.999])
_TOLERANCE = 1e-6  # parameters of laws are often binary32


@dataclass(frozen=True)
class Policy:
    """A policy on a quadratic."""

    build: Build
    seconds: Callable[[str, str, Law, int, int], float]  # function, policy, law, n, k
    edge: Callable[[int, int], float]  # n, k -> the largest stable rate, eigenvalue 1
    order: Callable[[str, int, Any], int]  # function, n, k as given -> k


class Problem(NamedTuple):
    """A quadratic."""

    curve: NDArray[np.float64]  # f[d]
    noise: NDArray[np.float64]  # f[d]
    start: NDArray[np.float64]  # f[d]


def problem(function: str, eigenvalues: ArrayLike, noise: ArrayLike, start: ArrayLike) -> Problem:
    """Check the numbers of a quadratic."""
    curve = _checks.non_negative(function, "eigenvalues", eigenvalues)
    if curve.ndim != 1 or not (curve > 0).any():
        rule = "must be a vector with a positive entry"
        raise _checks.fail(function, "eigenvalues", rule, eigenvalues)
    own = {
        "noise": _checks.non_negative(function, "noise", noise),
        "start": _checks.finite(function, "start", start),
    }
    for name, value in own.items():
        if value.shape not in ((), curve.shape):
            rule = f"must have shape () or {curve.shape}"
            raise _checks.fail(function, name, rule, f"shape {value.shape}")
    return Problem(curve, *(np.broadcast_to(value, curve.shape) for value in own.values()))


def one(function: str, argument: str, checked: NDArray[np.float64]) -> float:
    """Return a number that has been checked; raise for an array of them."""
    if checked.ndim:
        raise _checks.fail(function, argument, "must be one number", f"shape {checked.shape}")
    return float(checked)


def maps(
    policy: Policy, quadratic: Problem, n: int, k: int, rate: ArrayLike
) -> NDArray[np.float64]:
    """Return the map of an update for each rate and coordinate, f[..., d, 5, 5]."""
    size = np.asarray(rate, np.float64)[..., None]
    with np.errstate(over="ignore", invalid="ignore"):  # then no moment is finite
        return policy.build(size * quadratic.curve, np.square(size * quadratic.noise), n, k)


def exponential_mean(function: str, policy: str, law: Law) -> float:
    """Return the mean of an exponential law without shift; raise for any other."""
    rule = f"must be exponential without shift and without memory for policy {policy!r}"
    if callable(getattr(law, "draw", None)) and not isinstance(law, Memoryless):
        raise _checks.fail(function, "law", rule, type(law).__name__)
    require_one(function, law)
    mean = finite_mean(function, law)
    times = inverse_survival(function, law, _LEVELS)
    if not np.allclose(times, -mean * np.log(_LEVELS), rtol=_TOLERANCE, atol=0):
        raise _checks.fail(function, "law", rule, law)
    return mean


def _order_statistic(function: str, policy: str, law: Law, n: int, k: int) -> float:
    seconds = float(mean_by_quadrature(function, law, n, k))
    if not 0 < seconds < np.inf:
        rule = f"must give updates of finite mean seconds under policy {policy!r}"
        raise _checks.fail(function, "law", rule, seconds)
    return seconds


def _arrivals(function: str, policy: str, law: Law, n: int, k: int) -> float:
    return k * exponential_mean(function, policy, law) / n


def _workers(function: str, policy: str, law: Law, n: int, k: int) -> float:
    return float(harmonic_difference(n, k)) * exponential_mean(function, policy, law)


def _fixed(name: str, value: Callable[[int], int]) -> Callable[[str, int, Any], int]:
    """Return the rule of a policy that has no k of its own."""

    def order(function: str, n: int, k: Any) -> int:
        own = value(n)
        if k is not None and _checks.one_integer(function, "k", k, 1) != own:
            raise _checks.fail(function, "k", f"must be None or {own} for {name!r} of n={n}", k)
        return own

    return order


def _given(function: str, k: Any) -> Any:
    if k is None:
        raise _checks.fail(function, "k", "must be given for a policy that waits for k", k)
    return k


def _some_workers(function: str, n: int, k: Any) -> int:
    _checks.workers_and_order(function, n, _given(function, k))
    return _checks.one_integer(function, "k", k, 1)


def _some_batches(function: str, n: int, k: Any) -> int:
    del n
    return _checks.one_integer(function, "k", _given(function, k), 1)


def _two(n: int, k: int) -> float:
    del n, k
    return 2.0


def _k_asp_edge(n: int, k: int) -> float:
    return float(exponential_k_asp_stability_edge(n, k))


def _k_batch_asp_edge(n: int, k: int) -> float:
    return float(exponential_k_batch_asp_stability_edge(n, k))


POLICIES = {
    "bsp": Policy(moment_maps.synchronous, _order_statistic, _two, _fixed("bsp", lambda n: n)),
    "k-bsp": Policy(moment_maps.synchronous, _order_statistic, _two, _some_workers),
    "k-batch-bsp": Policy(moment_maps.synchronous, _arrivals, _two, _some_batches),
    "asp": Policy(moment_maps.k_asp, _arrivals, _k_asp_edge, _fixed("asp", lambda n: 1)),
    "k-asp": Policy(moment_maps.k_asp, _workers, _k_asp_edge, _some_workers),
    "k-batch-asp": Policy(moment_maps.k_batch_asp, _arrivals, _k_batch_asp_edge, _some_batches),
}
"""By the name that `dtjax.policies.FACTORIES` has for them."""


def named(function: str, policy: Any) -> Policy:
    """Return a policy by its name."""
    return POLICIES[checks.choice(function, "policy", policy, POLICIES)]


def resolve(function: str, policy: str, n: int, k: int | None) -> tuple[Policy, int, int]:
    """Return the policy, n and k, all checked."""
    rule = named(function, policy)
    total = _checks.one_integer(function, "n", n, 1)
    return rule, total, rule.order(function, total, k)


def loss(square: NDArray[np.float64], curve: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1/2 sum of curve x square over the last axis; a flat direction costs nothing."""
    return 0.5 * np.sum(np.where(curve > 0, curve * square, 0.0), axis=-1)
