"""Laws of compute times and one event loop for the tests of `dtjax.theory`; no import of dtjax."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class Exponential:
    rate: Any
    shift: Any = 0.0

    def mean(self):
        return self.shift + 1 / self.rate

    def variance(self):
        return 1 / self.rate**2

    def isf(self, q):
        return self.shift - jnp.log(q) / self.rate


@pytree
@dataclass(frozen=True)
class Uniform:
    low: Any
    high: Any

    def mean(self):
        return (self.low + self.high) / 2

    def variance(self):
        return (self.high - self.low) ** 2 / 12

    def isf(self, q):
        return self.high - (self.high - self.low) * q


@pytree
@dataclass(frozen=True)
class Pareto:
    shape: Any
    scale: Any = 1.0

    def mean(self):
        return jnp.where(self.shape > 1, self.shape * self.scale / (self.shape - 1), jnp.inf)

    def variance(self):
        c = self.shape
        return jnp.where(c > 2, self.scale**2 * c / ((c - 1) ** 2 * (c - 2)), jnp.inf)

    def isf(self, q):
        return self.scale * q ** (-1 / self.shape)


@pytree
@dataclass(frozen=True)
class Weibull:
    shape: Any

    def mean(self):
        return jnp.exp(jax.lax.lgamma(1 + 1 / self.shape))

    def variance(self):
        return jnp.exp(jax.lax.lgamma(1 + 2 / self.shape)) - self.mean() ** 2

    def isf(self, q):
        return (-jnp.log(q)) ** (1 / self.shape)


@pytree
@dataclass(frozen=True)
class Discrete:
    values: Any  # f[m] increasing
    beyond: Any  # f[m] P(X > value)

    def mean(self):
        return -(jnp.diff(self.beyond, prepend=1.0) * self.values).sum()

    def variance(self):
        square = (self.values - self.mean()) ** 2
        return -(jnp.diff(self.beyond, prepend=1.0) * square).sum()

    def isf(self, q):
        return self.values[jnp.searchsorted(-self.beyond, -q, method="compare_all")]


def discrete(values, probabilities):
    tail = np.cumsum(np.asarray(probabilities)[::-1])[::-1]
    return Discrete(np.asarray(values, float), np.append(tail[1:], 0.0))


@dataclass(frozen=True)
class Moments:
    """Not a registered pytree: laws need not be."""

    first: float
    second: float

    def mean(self):
        return self.first

    def variance(self):
        return self.second

    def isf(self, q):
        raise NotImplementedError


@dataclass
class Run:
    times: np.ndarray  # [J] of the updates
    used: list[list[tuple[int, int]]]  # (worker, staleness) of the gradients of each update
    lags: int  # updates since the read, summed over what is in flight after the last update
    waiting: float  # worker seconds spent blocked by the SSP bound
    arrivals: int


def simulate(draw, n, k, updates, distinct=False, cancel=False, bound=math.inf) -> Run:
    """The rules of the policies, one arrival at a time; `draw(worker)` gives seconds."""
    flying = [(draw(p), p, 0) for p in range(n)]
    heapq.heapify(flying)
    done, held, blocked, pending = [0] * n, [], {}, []
    times, used, waiting, arrivals = [], [], 0.0, 0
    while len(times) < updates:
        now, p, read = heapq.heappop(flying)
        arrivals += 1
        done[p] += 1
        pending.append((p, len(times) - read))
        ready = [p]
        if len(pending) == k:
            times.append(now)
            used.append(pending)
            pending, ready, held = [], [*held, p], []
            if cancel:
                flying, ready = [], list(range(n))
        elif distinct:
            held.append(p)
            ready = []
        slowest = min(done)
        for q in sorted([*ready, *blocked]):
            if done[q] - slowest <= bound:
                waiting += now - blocked.pop(q, now)
                heapq.heappush(flying, (now + draw(q), q, len(times)))
            else:
                blocked.setdefault(q, now)
    lags = sum(updates - read for _, _, read in flying)
    return Run(np.array(times), used, lags, waiting, arrivals)


def exponential(seed, rates=None):
    rng = np.random.default_rng(seed)
    if rates is None:
        return lambda p: rng.exponential()
    return lambda p: rng.exponential() / rates[p]


def within(samples, expected):
    """Whether independent samples have this mean, to 5 standard errors."""
    samples = np.asarray(samples, dtype=float)
    error = samples.std(axis=0, ddof=1) / math.sqrt(len(samples))
    return bool(np.all(np.abs(samples.mean(axis=0) - expected) <= 5 * error + 1e-12))
