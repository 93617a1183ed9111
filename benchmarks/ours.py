"""What is timed of dtjax: many runs of one policy, and what of them is kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast

import jax
import numpy as np

import dtjax
from benchmarks.peers import Numbers
from dtjax.policies import FACTORIES, Rule

Collect = Literal["statistics", "seconds", "trace"]
"""What a run keeps: sums and a histogram; the seconds of each update; who was in each update."""

NUMBER = {"bsp": (), "asp": (), "ssp": (3,)}  # what a factory is given; all others take k


def rule(name: str, n: int) -> Rule:
    """Make a policy by its name, which `dtjax.policies.FACTORIES` must hold.

    Raises:
        ValueError: if it does not.
    """
    if name not in FACTORIES:
        raise ValueError(f"rule: name must be one of {', '.join(FACTORIES)}, got {name!r}")
    factory = cast(Callable[..., Rule], FACTORIES[name])
    return factory(*NUMBER.get(name, (max(2, n // 4),)))


def numbers(policy: Rule, n: int) -> Numbers:
    """Return a policy's numbers for the peers."""
    bound = math.inf if policy.bound is None else float(policy.bound)
    return Numbers(policy.width(n), bool(policy.distinct), bool(policy.cancel), bound)


class Work(NamedTuple):
    """A number of runs of one policy."""

    policy: str
    n: int
    updates: int
    runs: int
    collect: Collect

    @property
    def rule(self) -> Rule:
        """The policy."""
        return rule(self.policy, self.n)

    @property
    def arrivals(self) -> int:
        """Gradients that reach the server in all runs."""
        return self.runs * self.updates * self.rule.width(self.n)

    def cluster(self) -> Any:
        """Make the machines: computation times are exponential with mean 1."""
        return dtjax.Cluster(n=self.n, delay=dtjax.delays.exponential(1.0))

    def keys(self) -> jax.Array:
        """Make the runs' keys."""
        return jax.random.split(jax.random.key(0), self.runs)

    def __call__(self, runs: jax.Array, cluster: Any) -> Any:
        """Simulate the runs with these keys side by side; keep what `collect` says."""
        policy = self.rule
        if self.collect == "trace":
            return jax.vmap(lambda key: dtjax.simulate(key, cluster, policy, updates=self.updates))(
                runs
            )
        options: dict[str, Any] = {"collect": self.collect}

        def one(key: jax.Array) -> Any:
            run: Any = dtjax.simulate(key, cluster, policy, updates=self.updates, **options)
            return run.dt if self.collect == "seconds" else (run.statistics, run.accounts)

        return jax.vmap(one)(runs)

    def started(self, result: Any) -> float:
        """Return the computations started for each arrival, from a result of `__call__`.

        With `seconds` the numbers drawn: one an update, its order statistic.
        """
        if self.collect == "seconds":
            return 1 / self.rule.width(self.n)
        accounts = result.accounts if self.collect == "trace" else result[1]
        return int(np.asarray(accounts.started).sum(dtype=np.int64)) / self.arrivals

    def mean(self, result: Any) -> np.ndarray:
        """Return the mean seconds of an update of each run, f[runs]."""
        if self.collect == "statistics":
            return np.asarray(result[0].dt_mean, float)
        dt = result.trace.dt if self.collect == "trace" else result
        return np.mean(np.asarray(dt, float), axis=-1)
