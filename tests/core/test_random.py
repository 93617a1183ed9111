"""Random bits: the words of a key, uniform numbers with a fine grid near 0, other generators."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dtjax
from dtjax.clock.engine import start as _start
from dtjax.cluster.delays.law import BEFORE
from dtjax.core import random
from law_samples import BITS, exact, survivals


def test_survival_keeps_its_digits_near_zero_and_stays_below_one() -> None:
    found = survivals(BITS)
    assert found[:5] == pytest.approx([exact(bits) for bits in BITS[:5]], rel=2**-23)
    assert found[0] == 2.0**-65
    assert (found[5:] == 1 - 2.0**-24).all()
    random = np.random.default_rng(0).integers(0, 2**32, (10_000, 2), dtype=np.uint64)
    random[:, 0] >>= random[:, 1] % 32  # of all magnitudes
    numbers = (random[:, 0] * 2.0**32 + random[:, 1] + 0.5) / 2.0**64
    assert survivals(random) == pytest.approx(numbers, rel=2**-23)


@pytest.mark.parametrize("seed", [0, 7, 2**31])
def test_words_are_those_of_fold_in(seed: int) -> None:
    key = jax.random.key(seed)
    for counter in (0, 1, 12345, BEFORE):
        folded = jax.random.fold_in(key, counter)
        words = random.words(key, jnp.uint32(counter))
        assert (words == jax.random.key_data(folded)).all()
        salted = random.words(key, jnp.uint32(counter), 3)
        assert (salted == jax.random.key_data(jax.random.fold_in(folded, 3))).all()
        assert (jax.random.key_data(random.fold(key, counter, 3)) == salted).all()


def test_keys_of_other_generators() -> None:
    key = jax.random.key(0, impl="rbg")
    first, again = (random.words(key, jnp.uint32(i)) for i in (5, 5))
    other = random.words(key, jnp.uint32(6))
    assert (first == again).all() and (first != other).any()
    assert (random.words(key, jnp.uint32(5), 1) != first).any()
    plain = random.plain(key)
    assert jax.random.key_impl(plain) == jax.random.key_impl(jax.random.key(0))
    many = jax.random.split(key, 3)
    alone = [jax.random.key_data(random.plain(key)) for key in many]
    assert (jax.random.key_data(jax.vmap(random.plain)(many)) == jnp.stack(alone)).all()
    data = jax.random.key_data(jax.random.key(4))
    assert (jax.random.key_data(random.plain(data)) == data).all()


def test_a_run_takes_typed_and_old_keys_of_any_generator() -> None:
    cluster, policy = dtjax.Cluster(3, dtjax.delays.exponential(1.0)), dtjax.policies.asp()

    def first(key: jax.Array) -> list[float]:
        """Return when the first computations end."""
        return _start(key, cluster, policy, 1).due.tolist()

    assert first(jax.random.key(3)) == first(jax.random.PRNGKey(3))
    other = jax.random.key(3, impl="rbg")
    assert first(other) == first(random.plain(other)) != first(jax.random.key(3))
