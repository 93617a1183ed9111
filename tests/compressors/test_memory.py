"""Memories of what was not sent, against numpy and closed forms."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

from dtjax.compressors import (
    CONTRACTIVE,
    Compressor,
    dense_below,
    dgc,
    ef21,
    error_feedback,
    identity,
    majority_sign,
    natural,
    random_k,
    threshold,
    top_k,
    whole,
)
from dtjax.core.pytree import pytree
from dtjax.testing import check_compressor

KEY = jax.random.key(0)
ANY: Any = 0.1
EIGHT = np.array([0.3, -4.0, 1.0, 0.25, 2.0, -0.5, 5.0, -1.5], np.float32)


def play(compressor, gradients, key=KEY):
    """Send gradients one after another: memories and messages, by step."""
    return _play(str(jax.tree.structure(compressor)), compressor, gradients, key)


@partial(jax.jit, static_argnums=0)  # numbers are traced: one compile for each kind
def _play(kind, compressor, gradients, key):

    def one(memory, entry):
        step, x = entry
        memory, message = compressor.compress(memory, x, jax.random.fold_in(key, step), step)
        return memory, (memory, message)

    steps = jnp.arange(len(gradients), dtype=jnp.int32)
    return lax.scan(one, compressor.array_memory(gradients[0]), (steps, gradients))[1]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def norm(tree):
    return np.linalg.norm(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]))


def top_by_numpy(x, k):
    kept = np.zeros_like(x)
    places = np.argsort(-np.abs(x), kind="stable")[:k]
    kept[places] = x[places]
    return kept


def test_residual_holds_the_entries_that_were_not_sent():
    compressor = error_feedback(top_k(0.25))
    memory, message = compressor.compress(compressor.array_memory(EIGHT), EIGHT, KEY, 0)
    np.testing.assert_array_equal(message, [0, -4, 0, 0, 0, 0, 5, 0])
    np.testing.assert_array_equal(memory.residual, EIGHT - np.asarray(message))
    assert np.count_nonzero(memory.residual) == 6


@pytest.mark.parametrize("inner", [top_k(0.1), natural(), threshold(1.0), random_k(0.7)])
def test_messages_and_residual_add_up_to_the_gradients(inner):
    gradients = normal(50, 4, 5)
    memory, messages = play(error_feedback(inner), gradients)
    total = np.asarray(messages).sum(0) + np.asarray(memory.residual[-1])
    np.testing.assert_allclose(total, gradients.sum(0), atol=1e-4)


@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0])
def test_error_feedback_against_a_loop(decay):
    gradients, e = normal(20, 30), np.zeros(30, np.float32)
    messages = play(error_feedback(top_k(0.1), decay), gradients)[1]
    for g, message in zip(gradients, messages, strict=True):
        carried = g + np.float32(decay) * e
        wanted = top_by_numpy(carried, 3)
        np.testing.assert_allclose(message, wanted, atol=1e-5)
        e = carried - wanted


def test_with_a_rate_it_is_the_changes_of_the_parameters_that_add_up():
    rate = optax.exponential_decay(0.5, 1, 0.8)
    gradients, rates = normal(30, 30), 0.5 * 0.8 ** np.arange(30)
    memory, messages = play(error_feedback(top_k(0.1), rate=rate), gradients)
    sent = np.tensordot(rates, messages, 1) + memory.residual[-1]
    np.testing.assert_allclose(sent, np.tensordot(rates, gradients, 1), atol=1e-5)
    # In units of the gradient this is a residual scaled by rate(step - 1) / rate(step).
    e = np.zeros(30)
    for g, message in zip(gradients, messages, strict=True):
        carried = g + e / 0.8
        wanted = top_by_numpy(carried, 3)
        np.testing.assert_allclose(message, wanted, atol=1e-4)
        e = carried - wanted


def test_a_rate_of_zero_leaves_the_residual_where_it_is():
    warm = error_feedback(top_k(0.25), rate=lambda step: jnp.where(step % 2 == 0, 0.0, 0.1))
    gradients = normal(6, 8)
    memory, messages = play(warm, gradients)
    assert np.isfinite(messages).all()
    np.testing.assert_array_equal(memory.residual[2], memory.residual[1])
    assert not np.array_equal(memory.residual[3], memory.residual[2])


@jax.jit
def residual_squares(ratio):
    def lane(key):
        gradients = jax.random.normal(jax.random.fold_in(key, 9), (120, 96))
        return jnp.sum(play(error_feedback(random_k(ratio)), gradients, key)[0].residual ** 2, 1)

    return jnp.mean(jax.vmap(lane)(jax.random.split(KEY, 64)), 0)


def test_the_residual_of_an_unbiased_compressor_has_the_derived_size():
    # omega .6, E|g|^2 = 96: sqrt(96 x .6 / .4) = 12.
    assert np.isclose(np.sqrt(np.mean(residual_squares(0.625)[40:])), 12.0, rtol=0.02)


def test_the_residual_diverges_from_omega_one_on():
    # omega 1: E|e|^2 grows by E|g|^2 a step. Beyond, by omega a step.
    found = residual_squares(0.5)[jnp.array([24, 49, 99])]
    np.testing.assert_allclose(found, 96 * np.array([25, 50, 100]), rtol=0.15)
    assert residual_squares(0.25)[39] > 96 * 3.0**30


def test_ef21_against_a_loop():
    gradients, g = normal(20, 30), np.zeros(30, np.float32)
    memory, messages = play(ef21(top_k(0.1)), gradients)
    np.testing.assert_array_equal(memory.estimate, messages)
    for x, message in zip(gradients, messages, strict=True):
        g = g + top_by_numpy(x - g, 3)
        np.testing.assert_allclose(message, g, atol=1e-5)


def test_ef21_reaches_a_gradient_that_stays():
    gradients = np.broadcast_to(EIGHT, (4, 8))
    np.testing.assert_allclose(play(ef21(top_k(0.25)), gradients)[1][-1], EIGHT, rtol=1e-6)


@pytree
@dataclass(frozen=True)
class Fixed(Compressor):
    mask: Any

    @property
    def family(self):
        return CONTRACTIVE

    def compress(self, memory, x, key, step):
        return memory, jnp.where(self.mask, x, 0)

    def size(self, shape, step=0):
        return 32


def test_ef21_is_error_feedback_for_a_fixed_mask():
    fixed, gradients = Fixed(jnp.arange(8) % 3 == 0), normal(10, 8)
    classical, new = (play(kind(fixed), gradients)[1] for kind in (error_feedback, ef21))
    np.testing.assert_allclose(classical, new, atol=1e-6)


def dgc_by_numpy(gradients, ratio, momentum, limit, warmup):
    """The published algorithm, for one worker and one tensor."""
    u, v = np.zeros((2, *gradients[0].shape))
    for step, g in enumerate(gradients):
        norm = np.linalg.norm(g)
        g = g * limit / norm if norm > limit else g
        u = momentum * u + g
        v = v + u
        now = 0.25 * (ratio / 0.25) ** (step / warmup) if step < warmup else ratio
        message = top_by_numpy(v, max(1, int(now * v.size + 1e-9)))
        yield message
        sent = message != 0
        u, v = np.where(sent, 0, u), np.where(sent, 0, v)


@pytest.mark.parametrize(("momentum", "warmup"), [(0.0, 0), (0.9, 0), (0.9, 8)])
def test_dgc_against_a_loop(momentum, warmup):
    gradients = normal(20, 64)
    compressor = dgc(1 / 32, momentum, clip=12.0, workers=4, warmup=warmup)
    messages = play(compressor, gradients)[1]
    wanted = dgc_by_numpy(gradients, 1 / 32, momentum, 12.0 / 2, warmup)
    np.testing.assert_allclose(messages, list(wanted), atol=2e-5)


def test_dgc_without_momentum_is_error_feedback():
    gradients = normal(20, 64)
    both = dgc(0.1, 0.0), error_feedback(top_k(0.1))
    np.testing.assert_allclose(*(play(c, gradients)[1] for c in both), atol=1e-5)


def test_the_size_of_dgc_follows_the_warm_up():
    compressor, x = dgc(1 / 64, warmup=4), jnp.zeros(256)
    counts = [64 * k for k in (64, 32, 16, 8, 4, 4)]
    assert [compressor.bits(x, step) for step in range(6)] == counts
    traced = jax.jit(jax.vmap(lambda step: compressor.bits(x, step)))(jnp.arange(6))
    np.testing.assert_array_equal(traced, counts)
    data = compressor.pack(jnp.asarray(normal(256)), KEY, step=2)
    assert 8 * len(data) == counts[2]
    message = compressor.unpack(data, x, KEY, step=2)
    assert np.count_nonzero(message) == 16 and compressor.message_bits(message, 2) == counts[2]


def test_dgc_clips_by_the_norm_over_all_tensors():
    gradient = {"a": jnp.ones(9) * 3, "b": jnp.ones((4, 4))}  # a norm of 9.85
    compressor = dgc(1.0, clip=1.0)
    send = jax.jit(compressor.compress_tree)
    message = send(compressor.memory(gradient), gradient, KEY, jnp.int32(0))[1]
    assert np.isclose(norm(message), 1.0)
    found = compressor.unpack(compressor.pack(gradient, KEY), gradient, KEY)
    assert np.isclose(norm(found), 1.0)


@pytest.mark.parametrize(
    "compressor",
    [
        error_feedback(top_k(0.25)),
        error_feedback(random_k(0.25, scaled=False)),
        error_feedback(threshold(1.0), rate=lambda step: 0.1),
        ef21(top_k(0.25)),
        dgc(0.25),
    ],
)
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_nothing_is_kept_of_a_gradient_that_is_not_finite(compressor, bad):
    gradients = np.stack([EIGHT] * 3)
    gradients[1, 2:4] = bad
    memory, messages = play(compressor, gradients)
    assert np.isfinite(messages).all(1).tolist() == [True, False, True]
    for leaf in jax.tree.leaves(memory):
        assert np.isfinite(leaf).all()
        np.testing.assert_array_equal(leaf[1], leaf[0])


def test_nothing_is_kept_where_the_residual_would_overflow():
    gradients = np.zeros((3, 8), np.float32)
    gradients[:2, 2:4] = 3e38
    memory, messages = play(error_feedback(top_k(k=1)), gradients)
    assert np.isfinite(messages).all(1).tolist() == [True, False, True]
    np.testing.assert_array_equal(memory.residual[1], memory.residual[0])
    np.testing.assert_array_equal(messages[2], memory.residual[0])


@pytest.mark.parametrize("kind", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("compressor", [error_feedback(top_k(0.25)), ef21(top_k(0.25)), dgc(0.25)])
def test_a_memory_has_the_type_of_the_gradient(compressor, kind):
    gradients = jnp.asarray(normal(4, 8), kind)
    memory, messages = play(compressor, gradients)
    assert all(leaf.dtype == kind for leaf in [messages, *jax.tree.leaves(memory)])


def test_memories_and_scopes_keep_to_the_protocol():
    sparse = dense_below(whole(top_k(0.3, "golomb")), 8)
    check_compressor(error_feedback(sparse, 0.9, rate=lambda step: 0.1))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: error_feedback(identity()), "memory for a compressor that keeps none"),
        (lambda: ef21(whole(identity())), "memory for a compressor that keeps none"),
        (lambda: error_feedback(whole(majority_sign())), "its messages are votes"),
        (lambda: ef21(majority_sign()), "its messages are votes"),
        (lambda: error_feedback(error_feedback(top_k(0.5))), "must not get another"),
        (lambda: ef21(whole(error_feedback(top_k(0.5)))), "must not get another"),
        (lambda: error_feedback(dgc(0.5)), "must not get another"),
        (lambda: error_feedback(top_k(0.5), 1.5), "error_feedback: decay must be"),
        (lambda: error_feedback(top_k(0.5), rate=ANY), "rate must be a function of the step"),
        (lambda: error_feedback(3), "error_feedback: compressor must be a compressor, got 3"),
        (lambda: ef21(natural()), "ef21: compressor must be contractive, not unbiased"),
        (lambda: dgc(0.5, 1.0), "dgc: momentum must be 0 or more and below 1, got 1.0"),
        (lambda: dgc(0.5, clip=0.0), "dgc: clip must be positive"),
        (lambda: dgc(0.5, workers=0), "dgc: workers must be 1 or more"),
        (lambda: dense_below(dgc(0.5), 3), "dense_below: compressor must add no momentum"),
    ],
)
def test_errors_name_the_argument(make, words):
    with pytest.raises(ValueError, match=words):
        make()
