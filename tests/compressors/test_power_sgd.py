"""PowerSGD: exact for low ranks, a projection, a sum, and its constant."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dtjax import compressors as c
from quantisers import KEY, draws, gradient, sent


def low_rank(rank: int, m: int = 12, n: int = 9, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))).astype(np.float32)


@pytest.mark.parametrize("warm", [True, False])
def test_power_sgd_is_exact_for_low_ranks(warm: bool) -> None:
    for rank in (1, 2, 3):
        x = low_rank(rank).reshape(4, 3, 9)
        for scale in np.array([1, 1e-30, 1e30], np.float32):
            got = np.asarray(sent(c.power_sgd(3, warm), x * scale, KEY)) / scale
            np.testing.assert_allclose(got, x, atol=2e-5 * np.abs(x).max())


def test_power_sgd_projects_and_recovers() -> None:
    compressor = c.power_sgd(2)
    step = jax.jit(lambda memory, x: compressor.compress(memory, x, KEY, 0))
    x = gradient((12, 9))
    start = compressor.array_memory(jnp.asarray(x))
    memory, message = step(start, x)
    error = np.asarray(message) - x
    assert abs((error * np.asarray(message)).sum()) < 1e-4 * (x**2).sum()
    # Zeros, or a matrix of a lower rank, leave a memory that still finds two dimensions.
    memory, message = step(start, np.zeros_like(x))
    np.testing.assert_array_equal(message, np.zeros_like(x))
    np.testing.assert_array_equal(memory, start)
    memory, _ = step(memory, low_rank(1))
    memory, _ = step(memory, low_rank(2, seed=1))
    np.testing.assert_allclose(step(memory, low_rank(2, seed=1))[1], low_rank(2, seed=1), atol=1e-4)
    for _ in range(60):
        memory, message = step(memory, x)
    u, s, v = np.linalg.svd(x.astype(float))
    np.testing.assert_allclose(message, (u[:, :2] * s[:2]) @ v[:2], atol=1e-3 * s[0])


def test_power_sgd_of_a_sum() -> None:
    gradients = np.stack([gradient((12, 9), seed) for seed in range(4)])
    for rank in (2, 5):  # products one by one, and of matrices
        compressor = c.power_sgd(rank)
        q = compressor.array_memory(jnp.zeros((12, 9)))
        total, _ = jax.jit(c.power_sgd_round)(gradients, q)
        alone = sent(compressor, gradients.sum(0), KEY)
        np.testing.assert_allclose(alone, total, atol=1e-4)
    assert compressor.shared and compressor.summable


def test_power_sgd_constant() -> None:
    # Equality for orthogonal matrices; 4,000 draws: within 5 standard errors.
    x = stats.ortho_group.rvs(8, random_state=3).astype(np.float32)
    got = np.asarray(draws(c.power_sgd(2, False), x, jax.random.split(KEY, 4_000)))
    kept = 1 - ((got - x) ** 2).sum((1, 2)) / 8
    np.testing.assert_allclose(kept, 0.25, atol=1e-4)
    skew = (x * np.linspace(0, 2, 8)).astype(np.float32)
    got = np.asarray(draws(c.power_sgd(2, False), skew, jax.random.split(KEY, 4_000)))
    assert (1 - ((got - skew) ** 2).sum((1, 2)) / (skew**2).sum()).mean() > 0.25
    assert c.power_sgd(2, False).constant((8, 8)) == 0.25


def test_power_sgd_names_the_matrix() -> None:
    params = {"b": jnp.zeros(3), "w": jnp.zeros((2, 2, 3))}
    for call in (c.power_sgd(4).memory, c.power_sgd(4).bits, c.power_sgd(4, False).memory):
        with pytest.raises(
            ValueError, match=r"4 x 3 matrix of a tensor of shape \(2, 2, 3\), got 4"
        ):
            call(params)
    assert c.power_sgd(3).bits(params) == 32 * (3 + 3 * (4 + 3))
