"""Expectations of an order statistic of any law, by adaptive quadrature over the survival level.

X_(k:n) = isf(B) with B ~ Beta(n-k+1, k). The integral runs over s = logit(B), where the density
is log-concave with exponential tails, so that both ends of a heavy-tailed law are resolved.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dtjax.theory._checks import fail
from dtjax.theory.order_statistics.law import Law, inverse_survival, require_one

_FARTHEST = -700.0  # logit of 1e-304: binary64 ends at 1e-308
_LAST = float(np.nextafter(1.0, 0.0))
_NEGLIGIBLE = -50.0  # log of a density, relative to its peak, that can be left out
_NODES = 13
_PANELS = 4096  # halved at once, so that a law with many jumps ends
_POINTS = 4_000_000  # where refinement ends
_TOLERANCE = 1e-13  # change of a panel by halving it, relative to the whole integral
_ROUNDING = 1e-11  # the same relative to the panel: smooth there, or the law's own rounding


def _lobatto(count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the Gauss-Lobatto nodes and weights on -1..1.

    The ends are nodes, so that a jump of the law anywhere in a panel is seen.
    """
    polynomial = np.polynomial.legendre.Legendre.basis(count - 1)
    inner = np.real(polynomial.deriv().roots())
    nodes = np.concatenate([[-1.0], np.sort(inner), [1.0]])
    return nodes, 2 / (count * (count - 1) * polynomial(nodes) ** 2)


class _Density:
    """The density of s = logit(B), B ~ Beta(a, b), relative to its peak."""

    def __init__(self, n: int, k: int) -> None:
        self.a, self.b = n - k + 1.0, float(k)
        self.top = self.a / (n + 1.0)
        self.rest = self.b / (n + 1.0)
        self.peak = math.log(self.a / self.b)
        self.width = math.sqrt((n + 1.0) / (self.a * self.b))

    def log(self, s: NDArray[np.float64]) -> NDArray[np.float64]:
        d = s - self.peak
        with np.errstate(over="ignore"):
            left = np.log1p(self.rest * np.expm1(-d))
            return -self.a * left - self.b * np.log1p(self.top * np.expm1(d))

    def edges(self, left: float) -> NDArray[np.float64]:
        """Return panel edges from `left` to where the density is negligible on the right."""
        steps = list(np.arange(9.0))
        while self.log(np.asarray(self.peak + steps[-1] * self.width)) > _NEGLIGIBLE:
            steps.append(steps[-1] * 2)
        right = self.peak + np.asarray(steps) * self.width
        steps = list(np.arange(1.0, 9.0))
        while self.peak - steps[-1] * self.width > left:
            steps.append(steps[-1] * 2)
        lower = self.peak - np.asarray(steps[::-1]) * self.width
        return np.concatenate([[left], lower[lower > left], right[right > left]])


def _left_end(function: str, law: Law, density: _Density, power: int) -> tuple[float, ...]:
    """Return (left end s of the integral, isf there, tail exponent of the law there).

    The exponent is -d log isf(q) / d log q: 1/alpha for a Pareto tail, near 0 for a light one.
    Where isf(q)^power leaves the range of binary64 the integral ends early.
    """
    probes = np.arange(_FARTHEST, min(density.peak, 0.0) + 1.0, 5.0)
    values = inverse_survival(function, law, special.expit(probes))
    broken = np.flatnonzero(~(values < 1e300 ** (1 / power)))
    start = int(broken[-1]) + 1 if broken.size else 0
    if broken.size:
        bad = values[start - 1]
        matters = start == len(probes) or density.log(probes)[start - 1] > _NEGLIGIBLE
        if np.isnan(bad) and matters:
            level = float(special.expit(probes[start - 1]))
            raise fail(function, "law", f"must have a finite isf({level:.3g})", bad)
        if start + 4 >= len(probes):
            return math.nan, math.inf, math.inf
    near, far = values[start + 4], values[start]
    if near < 0 or np.any(values[start:] < 0):
        raise fail(function, "law", "must have non-negative times", float(values[start:].min()))
    exponent = math.log(far / near) / 20.0 if near > 0 else 0.0
    return float(probes[start]), float(far), exponent


def beta_expectation(function: str, law: Law, n: int, k: int, centre: float | None = None) -> float:
    """Compute E[X_(k:n)], or E[(X_(k:n) - centre)^2] where a centre is given.

    E g(X_(k:n)) = integral of g(isf(q)) q^(n-k) (1-q)^(k-1) dq / B(n-k+1, k), normalised by the
    same rule, so that no gamma function of a large n is needed. Panels are halved until halving
    changes nothing. Beyond the last level that binary64 holds, the tail is a power law.

    Args:
        function: name for the errors.
        law: one law of non-negative times.
        n: workers.
        k: rank from the smallest.
        centre: subtracted before squaring.

    Returns:
        The expectation; inf if the tail exponent of the law makes it infinite.
    """
    require_one(function, law)
    density = _Density(n, k)
    power = 1 if centre is None else 2
    left, longest, exponent = _left_end(function, law, density, power)
    decay = density.a - power * exponent
    if decay <= 1e-9:
        return math.inf

    def integrand(s: NDArray[np.float64]) -> NDArray[np.float64]:
        weight = np.exp(density.log(s))
        value = inverse_survival(function, law, np.minimum(special.expit(s), _LAST))
        if np.isnan(value[weight > 0]).any():
            level = float(special.expit(s[(weight > 0) & np.isnan(value)][0]))
            raise fail(function, "law", f"must have a finite isf({level:.3g})", math.nan)
        value = np.where(weight > 0, value, 0.0)
        return np.stack([weight, weight * (value if centre is None else (value - centre) ** 2)])

    # Levels q near 1 are rounded to 1e-16 before the law sees them.
    noise = 8 * np.finfo(np.float64).eps * n / k
    mass, total = _adaptive(integrand, density.edges(left), _TOLERANCE + noise)
    beyond = (longest if centre is None else (longest - centre) ** 2) / decay
    return float((total + beyond * np.exp(density.log(np.asarray(left)))) / mass)


def _adaptive(
    integrand: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    edges: NDArray[np.float64],
    tolerance: float,
) -> NDArray[np.float64]:
    """Integrate a vector of functions over panels, halving those that halving still changes.

    Args:
        integrand: f[m] to f[2, m].
        edges: f[p + 1], increasing.
        tolerance: largest change of one panel, relative to the whole integral.

    Returns:
        f[2], the integrals.
    """
    nodes, weights = _lobatto(_NODES)

    def panels(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        half = (high - low) / 2
        points = (low + high)[:, None] / 2 + half[:, None] * nodes
        values = integrand(points.ravel()).reshape(2, len(low), _NODES)
        return (values @ weights) * half

    low, high = edges[:-1], edges[1:]
    coarse = panels(low, high)
    done = np.zeros(2)
    points = 0
    while True:
        points += 2 * _NODES * len(low)
        middle = (low + high) / 2
        fine = panels(np.concatenate([low, middle]), np.concatenate([middle, high]))
        fine = fine.reshape(2, 2, -1)
        whole = done + fine.sum((1, 2))
        change = np.abs(fine.sum(1) - coarse)
        worst = (change / np.where(whole > 0, whole, 1.0)[:, None]).max(0)
        active = (worst > tolerance) & (change > _ROUNDING * np.abs(fine.sum(1))).any(0)
        if active.sum() > _PANELS:
            active &= worst >= np.partition(worst, -_PANELS)[-_PANELS]
        active &= points < _POINTS
        done = done + fine[:, :, ~active].sum((1, 2))
        if not active.any():
            return done
        low, high = (
            np.concatenate([low[active], middle[active]]),
            np.concatenate([middle[active], high[active]]),
        )
        coarse = fine[:, :, active].reshape(2, -1)
