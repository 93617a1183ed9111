"""The best rate and the best switch on quadratics, against exhaustive and global searches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from dtjax import theory
from test_theory_frontier import LAW, POLICIES, N, arguments

NOISY: dict[str, Any] = {"eigenvalues": [0.1, 1.0], "noise": 0.5, "start": 3.0}


def test_best_rate_without_noise_is_newtons() -> None:
    best = theory.best_rate("bsp", LAW, N, eigenvalues=[4.0], deadline=20.0)
    assert best.rate == pytest.approx(0.25, abs=1e-5)
    assert best.updates == math.floor(20 / (2 * theory.harmonic(N)))
    assert best.seconds <= 20
    assert best.loss == pytest.approx(0.0, abs=1e-20)


@pytest.mark.parametrize("policy", POLICIES)
def test_best_rate_is_that_of_a_fine_grid(policy: str) -> None:
    best = theory.best_rate(*arguments(policy), deadline=40.0, **NOISY)
    edge = float(theory.stability_map([policy], [N], k=POLICIES[policy])[0, 0])

    def after(rate: float, updates: int) -> float:
        curve = theory.frontier(*arguments(policy), rate=rate, updates=updates, **NOISY)
        return float(curve.loss[-1])

    grid = np.geomspace(1e-3, 0.999, 300) * edge
    losses = [after(rate, best.updates) for rate in grid]
    assert best.loss <= min(losses) * (1 + 1e-12)
    assert best.loss == pytest.approx(min(losses), rel=1e-3)
    assert best.loss == pytest.approx(after(best.rate, best.updates), rel=1e-9)
    assert best.seconds <= 40.0 < best.seconds * (1 + 1 / best.updates) + 1e-9
    # Soonest at a target: one update less does not do for any rate.
    soonest = theory.best_rate(*arguments(policy), target=2 * best.loss, **NOISY)
    assert soonest.loss <= 2 * best.loss < min(after(s, soonest.updates - 1) for s in grid[::10])
    assert soonest.seconds < best.seconds


def test_no_update_and_no_way() -> None:
    for find in (theory.best_rate, theory.best_switch):
        none: Any = find("asp", LAW, N, deadline=0.1, **NOISY)
        assert (none.updates, none.seconds, none.loss) == (0, 0.0, 0.5 * 1.1 * 9)
        there: Any = find("asp", LAW, N, target=100.0, **NOISY)
        assert (there.updates, there.seconds) == (0, 0.0)
        never: Any = find("asp", LAW, N, target=1e-3, deadline=10.0, **NOISY)
        assert never.seconds == math.inf
        assert never.updates == 20
        assert never.loss > 1e-3


@pytest.mark.parametrize(("policy", "deadline"), [("bsp", 60.0), ("asp", 30.0), ("k-asp", 40.0)])
def test_best_switch_is_that_of_a_global_search(policy: str, deadline: float) -> None:
    best = theory.best_switch(*arguments(policy), deadline=deadline, **NOISY)
    fixed = theory.best_rate(*arguments(policy), deadline=deadline, **NOISY)
    edge = float(theory.stability_map([policy], [N], k=POLICIES[policy])[0, 0])
    assert best.updates == fixed.updates
    assert best.loss < 0.9 * fixed.loss
    assert best.after < fixed.rate < best.before < edge
    assert best.switch_seconds < best.seconds <= deadline

    def loss(x: np.ndarray) -> float:
        return two_rates(policy, math.exp(x[0]), math.exp(x[1]), round(x[2]), best.updates)

    own = np.array([math.log(best.before), math.log(best.after), best.switch_updates])
    assert loss(own) == pytest.approx(best.loss, rel=1e-9)
    rates = (math.log(1e-2 * edge), math.log(edge))
    found = optimize.differential_evolution(
        loss, [rates, rates, (0, best.updates)], rng=1, maxiter=25, popsize=8, polish=False
    )
    assert best.loss <= found.fun * (1 + 1e-7)


def two_rates(policy: str, before: float, after: float, when: int, updates: int) -> float:
    """Return the loss of two rates, iterating the maps one update after the other."""
    from dtjax.theory.quadratic import by_policy

    rule, n, k = by_policy.resolve("test", policy, N, POLICIES[policy])
    problem = by_policy.problem("test", NOISY["eigenvalues"], NOISY["noise"], NOISY["start"])
    first, second = (by_policy.maps(rule, problem, n, k, rate) for rate in (before, after))
    state = np.stack([[9.0] * 4 + [1.0]] * 2)
    for t in range(updates):
        state = np.einsum("dij,dj->di", first if t < when else second, state)
    return float(0.5 * state[:, 0] @ np.array(NOISY["eigenvalues"]))


def test_best_switch_reaches_a_target_sooner() -> None:
    fixed = theory.best_rate("asp", LAW, N, target=0.1, **NOISY)
    best = theory.best_switch("asp", LAW, N, target=0.1, **NOISY)
    assert best.loss <= 0.1
    assert best.seconds < fixed.seconds
    less = theory.best_switch(
        "asp", LAW, N, deadline=best.seconds * (1 - 0.9 / best.updates), **NOISY
    )
    assert less.updates == best.updates - 1
    assert less.loss > 0.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: theory.best_rate("asp", LAW, 4, eigenvalues=[1.0]),
            "best_rate: deadline or target must be given, got None",
        ),
        (
            lambda: theory.best_switch("asp", LAW, 4, eigenvalues=[1.0], deadline=-1.0),
            "best_switch: deadline must be non-negative and finite, got -1.0",
        ),
    ],
)
def test_bad_input(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
