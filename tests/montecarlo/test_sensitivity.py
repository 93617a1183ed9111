"""Gradients of the expected time to J updates, against closed forms and each other.

Samples are compared by intervals of 5 standard errors with fixed keys: of about 60 comparisons one
would fail by chance with probability 4e-5 (P(|z| > 5) = 6e-7).
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import dtjax
from dtjax import delays, policies, theory
from dtjax.clock.status import EXHAUSTED
from dtjax.montecarlo.continuity import continuous, kinds_of
from dtjax.montecarlo.sensitivity import Sensitivity, check, sensitivity
from law_samples import examples

N, J, RUNS = 4, 12, 512
MEAN, SHIFT = 2.0, 0.5
KEY = jax.random.key(3)
# One structure of the rule, so that one compilation serves all.
RULES = {
    "bsp": policies.k_bsp(N),
    "k-bsp": policies.k_bsp(2),
    "k-batch-bsp": policies.k_batch_bsp(3),
    "asp": policies.k_asp(1),
    "k-asp": policies.k_asp(2),
    "k-batch-asp": policies.k_batch_asp(3),
}


def find(law: Any, policy: Any, n: int = N, **options: Any) -> Sensitivity:
    cluster = dtjax.Cluster(n=n, delay=law)
    options = {"updates": J, "runs": RUNS, "width": N, **options}
    return sensitivity(KEY, cluster, policy, **options)


def assert_is(found: Any, error: Any, expected: float, rounding: float = 1e-4) -> None:
    assert abs(found - expected) <= 5 * error + rounding * abs(expected), (found, error, expected)


def exponential(shift: float = 0.0, by: Any = (1.0, 1.0, 1.0, 1.0)) -> Any:
    """Make one structure of the law too."""
    return delays.scaled(delays.exponential(MEAN, shift=shift), by)


# It is not known here that workers are alike: see `test_where_pathwise_is_unbiased` for k-ASP.
ALIKE: dict[str, Any] = {"method": "pathwise"}


@pytest.mark.parametrize("policy", RULES)
def test_exponential_times(policy: str) -> None:
    found = find(exponential(), RULES[policy], **ALIKE)
    seconds = {
        "bsp": theory.harmonic(N),
        "k-bsp": theory.harmonic_difference(N, 2),
        "k-batch-bsp": 3 / N,
        "asp": 1 / N,
        "k-asp": theory.harmonic_difference(N, 2),
        "k-batch-asp": 3 / N,
    }
    expected = J * float(seconds[policy])
    assert_is(found.mean.law.scale, found.error.law.scale, expected)
    assert_is(found.seconds, found.seconds_error, MEAN * expected)
    # The time is proportional to the mean, run by run.
    assert found.mean.law.scale * MEAN == pytest.approx(found.seconds, rel=1e-4)
    assert found.mean.by.sum() == pytest.approx(found.seconds, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("policy", RULES)
def test_exponential_times_with_a_shift(policy: str) -> None:
    law, rule = exponential(SHIFT), RULES[policy]
    found = find(law, rule, **ALIKE)
    euler = MEAN * found.mean.law.scale + SHIFT * found.mean.law.shift
    assert euler == pytest.approx(found.seconds, rel=1e-4)
    if policy in ("bsp", "k-bsp"):
        assert found.mean.law.shift == pytest.approx(J, rel=1e-4)
    # Jumps average out, where there are any: the differences know nothing of that.
    other = find(law, rule, method="differences", runs=1024, relative_step=0.1)
    assert other.method.law.shift == "differences"
    for name in ("scale", "shift"):
        error = np.hypot(getattr(found.error.law, name), getattr(other.error.law, name))
        assert_is(getattr(found.mean.law, name), error, getattr(other.mean.law, name), 0.01)


def second(means: np.ndarray) -> float:
    """Return the mean of the second of exponential times."""
    rates = 1 / means
    total = rates.sum()
    return float((1 / (total - rates)).sum() - (len(rates) - 1) / total)


def test_jumps_do_not_average_out_between_unequal_workers() -> None:
    by = np.array([1.0, 1.0, 1.0, 8.0])
    law, rule = exponential(by=by), RULES["k-asp"]
    found, naive = find(law, rule, runs=2048), find(law, rule, runs=2048, **ALIKE)
    assert (found.method.by, naive.method.by) == ("differences", "pathwise")
    off = []
    for worker in range(N):
        move = 1e-4 * np.eye(N)[worker]
        expected = J * MEAN * (second(by + move) - second(by - move)) / 2e-4
        assert_is(found.mean.by[worker], found.error.by[worker], expected, 0.01)
        off.append(abs(naive.mean.by[worker] - expected) / naive.error.by[worker])
    assert max(off) > 10


def test_two_kinds_of_times() -> None:
    seconds, p, factor = 2.0, 0.2, 3.3
    found = find(delays.bimodal(seconds, p, factor), RULES["bsp"], runs=1024)
    late = 1 - (1 - p) ** N
    assert vars(found.method) == {
        "seconds": "pathwise",
        "probability": "differences",
        "factor": "pathwise",
    }
    expected = {
        "seconds": 1 + late * (factor - 1),
        "factor": seconds * late,
        "probability": seconds * (factor - 1) * N * (1 - p) ** (N - 1),
    }
    for name, value in expected.items():
        assert_is(getattr(found.mean, name), getattr(found.error, name), J * value, 1e-3)


# Which estimator.


def test_where_pathwise_is_unbiased() -> None:
    alike = dtjax.Cluster(n=N, delay=delays.exponential(1.0))
    for rule in RULES.values():
        assert continuous(alike, rule)
    assert continuous(alike, policies.bsp())
    assert continuous(alike, policies.ssp(2))
    assert not continuous(alike, policies.asp(max_staleness=3))
    assert not continuous(alike, policies.k_bsp(2, preempt=False))
    assert not continuous(alike, policies.Rule(k=2, distinct=True, cancel=True, bound=1))
    assert not continuous(alike, policies.Rule(k=2, distinct=True, bound=1))

    slow = delays.regimes(delays.exponential(1.0), factor=4.0, enter=0.1, leave=0.2)
    unlike = delays.scaled(delays.exponential(1.0), [1.0, 1.0, 2.0, 2.0])
    ties = delays.bimodal(1.0, 0.1, 5.0)
    for law, k_asp, k_batch_bsp in ((slow, 0, 0), (unlike, 0, 1), (ties, 0, 0)):
        cluster = dtjax.Cluster(n=N, delay=law)
        found = {name: continuous(cluster, rule) for name, rule in RULES.items()}
        assert found == {**dict.fromkeys(RULES, True), "k-asp": k_asp, "k-batch-bsp": k_batch_bsp}
    clocked = delays.slowdowns(slow, [0, 0, 1, 1], period=3.0, probability=0.1, factor=2.0)
    assert not continuous(dtjax.Cluster(n=N, delay=clocked), RULES["asp"])


def test_present_workers_are_those_that_count() -> None:
    law, there = delays.bimodal(1.0, 0.1, 5.0), [True, True, False, False]
    assert continuous(dtjax.Cluster(n=N, delay=law, present=there), policies.k_asp(2))
    assert not continuous(dtjax.Cluster(n=N, delay=law), policies.k_asp(2))


@pytest.mark.parametrize("name", examples())
def test_every_law_says_how(name: str) -> None:
    law = examples()[name]()
    kinds = kinds_of(law)
    assert jax.tree.structure(kinds) == jax.tree.structure(law)
    assert set(jax.tree.leaves(kinds)) <= {"pathwise", "differences", "fixed"}
    if name not in ("slowdowns", "recorded"):
        assert "pathwise" in jax.tree.leaves(kinds)


def test_nested_laws() -> None:
    inner = delays.hyper_exponential([0.5, 0.5], [1.0, 3.0])
    law = delays.regimes(delays.scaled(inner, 2.0), factor=4.0, enter=0.1, leave=0.2)
    kinds: Any = kinds_of(law)
    assert (kinds.factor, kinds.enter, kinds.law.by) == ("pathwise", "differences", "pathwise")
    assert (kinds.law.law.probabilities, kinds.law.law.means) == ("differences", "pathwise")
    gamma: Any = kinds_of(delays.gamma(2.0, 1.0))
    assert (gamma.shape, gamma.scale, gamma.log_x) == ("fixed", "pathwise", "fixed")


# Arguments.


def test_keys_can_be_given() -> None:
    law, given = exponential(), jax.random.split(KEY, RUNS)
    cluster = dtjax.Cluster(n=N, delay=law)
    found = sensitivity(given, cluster, RULES["asp"], updates=J, width=N)
    assert found.method.law.scale == "pathwise"
    assert found.mean.law.scale == find(law, RULES["asp"]).mean.law.scale


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"updates": 0}, "updates must be an integer 1 or more, got 0"),
        ({"runs": 1}, "runs must be an integer 2 or more, got 1"),
        ({"method": "path"}, "method must be one of .*did you mean 'pathwise'"),
        ({"relative_step": 0.0}, "relative_step must be above 0 and below 1, got 0.0"),
        ({"width": 1}, "width must be at least k=2, got 1"),
    ],
)
def test_bad_input(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"sensitivity: {message}"):
        find(exponential(), RULES["k-asp"], **change)


def test_bad_keys() -> None:
    cluster = dtjax.Cluster(n=N, delay=delays.exponential(1.0))
    with pytest.raises(ValueError, match="runs must be the number of keys, 3, got 2"):
        sensitivity(jax.random.split(KEY, 3), cluster, RULES["asp"], updates=1, runs=2)
    bad: Any = 3
    with pytest.raises(ValueError, match="key must be one JAX random key, or several"):
        sensitivity(bad, cluster, RULES["asp"], updates=1)


def test_a_run_that_ends_too_soon() -> None:
    check(np.array([-1, -1]), 5)
    with pytest.raises(RuntimeError, match="run 1 stopped before update 5: a computation started"):
        check(np.array([-1, EXHAUSTED, -1]), 5)
