"""`dtjax.testing`: every law and policy that ships passes, and broken ones fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dtjax
from clock_cases import full
from dtjax import delays, policies
from dtjax.cluster.delays import Memoryless
from dtjax.core import plugins
from dtjax.core.protocols import COMPUTING, HELD, Decision
from dtjax.core.pytree import pytree
from dtjax.testing import check_delay, check_policy
from law_samples import examples


@pytest.mark.parametrize("name", examples())
def test_every_law_that_ships_passes(name: str) -> None:
    check_delay(examples()[name]())


RULES = {
    **{name: make() for name, make in plugins.examples("dtjax.policies").items()},
    "k-bsp-ignore": policies.k_bsp(2, preempt=False),
    "k-batch-bsp-ignore": policies.k_batch_bsp(3, preempt=False),
    "k-batch-bsp-wide": policies.k_batch_bsp(7),
    "k-batch-asp-wide": policies.k_batch_asp(7),
    "asp-cutoff": policies.asp(2),
    "ssp-cutoff": policies.ssp(1, 1),
    "k-asp-cutoff": policies.k_asp(2, 1),
    "k-batch-asp-cutoff": policies.k_batch_asp(3, 1),
}


VARIANTS = ("-ignore", "-wide", "-cutoff")
NAMES = [pytest.param(n, marks=pytest.mark.slow) if n.endswith(VARIANTS) else n for n in RULES]


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_that_ships_passes(name: str) -> None:
    check_policy(RULES[name])


def simulate(policy: Any) -> dtjax.Run:
    """Play what `check_policy` plays, so that nothing compiles again."""
    cluster = dtjax.Cluster(4, delays.exponential(1.0))
    key = jax.random.key(1)
    return dtjax.simulate(key, cluster, policy, updates=12, until=1000.0, rows=12, width=8)


@pytest.mark.parametrize("name", RULES)
def test_rules_with_none_give_the_run_of_rules_with_numbers(name: str) -> None:
    """The same run as with numbers that stand for no limit, and for all workers."""
    rule = RULES[name]
    with_none, with_numbers = simulate(rule), simulate(full(rule))
    for field in ("accounts", "status"):
        a, b = (jax.tree.leaves(getattr(run, field)) for run in (with_none, with_numbers))
        assert all(map(np.array_equal, a, b))
    for field in ("dt", "worker", "step", "version", "examples", "arrival", "compute"):
        a, b = (getattr(run.trace, field) for run in (with_none, with_numbers))
        assert np.array_equal(a, b)
    fresh = with_none.trace.slots == 1  # known to need one version only where nothing is traced
    assert fresh == (rule.form in ("rounds", "cancelled"))
    assert fresh or np.array_equal(with_none.trace.slot, with_numbers.trace.slot)


# Laws and policies that break one rule each.


@pytree
@dataclass(frozen=True)
class Law(Memoryless):
    """1 + scale E."""

    scale: Any

    def mean(self) -> Any:
        return 1.0 + self.scale

    def sf(self, t: Any) -> Any:
        return jnp.exp(-(t - 1.0) / self.scale)

    def isf(self, q: Any) -> Any:
        return 1.0 - self.scale * jnp.log(q)


@dataclass(frozen=True)
class Unregistered(Law):
    pass


def broken(**methods: Any) -> Any:
    """Return such a law with other methods."""
    cls = type("Broken", (Law,), methods)
    return pytree(cls)(jnp.float32(0.5))


def drawn(seconds: Callable[..., Any], init: Any = (), moved: Any = ()) -> Any:
    """Return a law that draws seconds(scale, worker, step, now)."""

    def draw(self: Any, state: Any, worker: Any, step: Any, now: Any) -> Any:
        return moved, seconds(self.scale, worker, step, now)

    return broken(init=lambda self, worker: init, draw=draw)


LAWS = [
    (object(), "object has no method init"),
    (Unregistered(0.5), r"Unregistered must be a pytree of numbers, .*register the class"),
    (drawn(lambda scale, *_: scale if scale > 0 else 1.0), "Broken fails when it is traced"),
    (drawn(lambda scale, *_: scale, 0, 1.5), "a draw turns a state"),
    (drawn(lambda scale, worker, step, now: step), "a draw must be one floating number"),
    (drawn(lambda scale, *_: scale[None]), "a draw must be one floating number"),
    (drawn(lambda scale, *_: scale - 0.5), "a draw is not positive"),
    (drawn(lambda scale, *_: scale * jnp.nan), "first draw is NaN"),
    (drawn(lambda scale, worker, step, now: scale + now), "depend on `now`"),
    (broken(isf=lambda self, q: 1.0 + self.scale * q), "isf rises"),
    (broken(sf=lambda self, t: 1.1 * Law.sf(self, t)), r"sf\(isf\(q\)\) is more than q"),
    (broken(sf=lambda self, t: 0.9 * Law.sf(self, t)), r"sf\(isf\(q\)\) is less than q"),
    (broken(cdf=lambda self, t: 0.9 - Law.sf(self, t)), r"cdf\(isf\(q\)\) is not 1 - q"),
    (broken(mean=lambda self: 1.6), r"mean is 1\.6, the integral over isf 1\.[45]"),
    (broken(jumps=("rate",)), r"jumps names \['rate'\], which are no fields"),
    (broken(variance=lambda self: 0.5), r"variance is 0\.5, the integral over isf 0\.2[45]"),
]


def test_check_delay_passes_a_users_law() -> None:
    check_delay(Law(jnp.float32(0.5)))


@pytest.mark.parametrize(("law", "sentence"), LAWS, ids=[sentence for _, sentence in LAWS])
def test_check_delay_names_the_broken_rule(law: Any, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_delay(law)


def test_a_draw_that_is_not_an_entry_of_a_table() -> None:
    calls = itertools.count()

    def count(scale: Any, worker: Any, step: Any, now: Any) -> Any:
        kind = jax.ShapeDtypeStruct((), scale.dtype)
        return jax.pure_callback(
            lambda s: s + np.float32(next(calls)), kind, scale, vmap_method="sequential"
        )

    with pytest.raises(AssertionError, match="first draw is another one|more than its worker"):
        check_delay(drawn(count))


@pytree
@dataclass(frozen=True)
class Custom:
    """No rule: its k-th update waits for k gradients, `most` at most; or it does nothing right."""

    most: Any
    uses: Any = True
    commits: Any = True

    def init(self, n: int) -> jax.Array:
        return jnp.int32(1)

    def width(self, n: int) -> int:
        return 3

    def decide(self, state: jax.Array, view: Any, event: Any) -> tuple[jax.Array, Decision]:
        commit = (view.pending + 1 >= state) & self.commits
        state = jnp.where(commit, jnp.minimum(state + 1, self.most), state)
        phase = jnp.where(commit, COMPUTING, HELD).astype(jnp.int32)
        return state, Decision(jnp.asarray(self.uses), commit, phase, commit)

    def sweep(self, state: Any, view: Any, event: Any, decision: Decision) -> Any:
        start = decision.commit & (view.phase == HELD)
        return jnp.zeros_like(start), start


def other(**methods: Any) -> Any:
    """Return such a policy with other methods."""
    cls = type("Other", (Custom,), methods)
    return pytree(cls)(3)


def decide(**fields: Any) -> Callable[..., Any]:
    """Return a `decide` whose answer has other fields."""

    def method(self: Any, state: Any, view: Any, event: Any) -> Any:
        state, decision = Custom.decide(self, state, view, event)
        return state, decision._replace(**fields)

    return method


POLICIES = [
    (object(), "object has no method init"),
    (other(width=lambda self, n: 0), "width must be 1 or more, not 0"),
    (other(init=lambda self, n: jnp.uint8(1)), "a decision turns a state"),
    (other(decide=lambda self, s, v, e: s if self.most > 2 else v), "fails when it is traced"),
    (other(decide=decide(commit=jnp.int32(1))), r"a decision must be \{.*'commit': 'bool\[\]'"),
    (other(decide=decide(phase=jnp.int32(7))), "phase of a decision must be COMPUTING, HELD"),
    (other(sweep=lambda self, *given: (jnp.bool_(True),) * 2), "sweep must give"),
    (Custom(3, commits=False), "no update was made in 1000"),
    (Custom(3, uses=False), "an update was made of nothing"),
]


def test_check_policy_passes_a_users_policy() -> None:
    check_policy(Custom(3))
    run = simulate(Custom(3))
    assert run.trace.valid.sum(1).tolist() == [1, 2, *[3] * 10]


@pytest.mark.parametrize(("policy", "sentence"), POLICIES, ids=[text for _, text in POLICIES])
def test_check_policy_names_the_broken_rule(policy: Any, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_policy(policy)
