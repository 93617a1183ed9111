"""Quantisers against formulas in numpy: what they send, and how far it is from x."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from dtjax import compressors as c
from quantisers import FACTORIES, KEY, draws, gradient, sent

UNBIASED = ["qsgd", "qsgd whole", "terngrad", "natural", "int8"]


def units(name: str, x: np.ndarray) -> np.ndarray:
    """Return for each entry the distance of the two numbers that it is rounded to."""
    x = np.abs(x.astype(float).reshape(-1))
    if name == "natural":
        return np.where(x > 0, 2.0 ** np.floor(np.log2(np.where(x > 0, x, 1))), 1.0)
    if name == "terngrad":
        return np.full(x.shape, x.max())
    if name == "int8":
        return np.full(x.shape, x.max() / 127)
    bucket, levels = (16, 5) if name == "qsgd" else (x.size, 4)
    starts = range(0, x.size, bucket)
    norms = [np.linalg.norm(x[at : at + bucket]) / levels for at in starts]
    return np.repeat(norms, bucket)[: x.size]


@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased_with_the_exact_error(name: str) -> None:
    # 42 entries within 5 standard errors and 1 sum within 5: fails for 1 in 40,000 keys.
    x, n = gradient(), 20_000
    got = np.asarray(draws(FACTORIES[name](), x, jax.random.split(KEY, n)), float).reshape(n, -1)
    flat, unit = x.astype(float).reshape(-1), units(name, x)
    up = np.abs(flat) / unit % 1
    variance = up * (1 - up) * unit**2
    assert (np.abs(got - flat) <= unit * (1 + 1e-5)).all()
    rounding = np.abs(flat) * 1e-6 + unit * 2.0**-23
    assert (np.abs(got.mean(0) - flat) < 5 * np.sqrt(variance / n) + rounding).all()
    error = ((got - flat) ** 2).sum(1)
    exact = variance.sum()
    if name == "terngrad":
        exact = np.abs(flat).max() * np.abs(flat).sum() - (flat**2).sum()
    assert abs(error.mean() - exact) < 5 * error.std() / math.sqrt(n) + 1e-5 * exact
    assert exact <= FACTORIES[name]().constant(x.shape) * (flat**2).sum()
    assert (got.reshape(n, -1)[:, flat == 0] == 0).all()


def expected_error(x: np.ndarray, unit: float) -> float:
    """Return E|C(x) - x|^2 / |x|^2 of rounding to multiples of a unit."""
    up = np.abs(x) / unit % 1
    return float((up * (1 - up)).sum() * unit**2 / (x**2).sum())


@pytest.mark.parametrize("name, top", [("terngrad", 1), ("int8", 127)])
def test_omega_is_the_worst_case(name: str, top: int) -> None:
    for d in (1, 2, 50, 10_000):
        omega = FACTORIES[name]().constant((d,))
        sizes = np.linspace(1e-4, 1, 1_000)
        worst = [(d - 1) * f * (1 - f) / (top**2 + (d - 1) * f**2) for f in sizes]
        assert max(worst) <= omega + 1e-12
        assert max(worst) >= 0.999 * omega


def test_natural_omega() -> None:
    fractions = np.linspace(0, 1, 3_001)
    worst = (fractions * (1 - fractions) / (1 + fractions) ** 2).max()
    assert c.natural().constant((3,)) == pytest.approx(worst, rel=1e-6) == 0.125


def test_natural_edges() -> None:
    # 400 numbers each: what carries out of the exponent is no number, never a zero.
    def of(x: float) -> np.ndarray:
        return np.asarray(sent(c.natural(), np.full(400, x, np.float32), KEY))

    for bad in (np.nan, -np.nan, np.inf, -np.inf):
        assert np.isnan(of(bad)).all()
    assert np.isnan(of(3e38)).any() and set(np.unique(of(2.0**127))) == {2.0**127}
    np.testing.assert_array_equal(np.unique(of(-1e-39)), [-(2.0**-126), 0])
    np.testing.assert_array_equal(np.unique(of(-3.0)), [-4, -2])


def test_int8_bounds() -> None:
    x = gradient((33, 31))
    scale = np.abs(x).max() / 127
    assert scale / 4 * scale * x.size > expected_error(x, scale) * (x**2).sum()
    for key in jax.random.split(KEY, 3):
        error = np.asarray(sent(c.int8(), x, key)) - x
        assert (np.abs(error) < scale).all()
    near = np.asarray(sent(c.int8(False), x, KEY))
    np.testing.assert_allclose(near, np.round(x / scale) * scale, rtol=1e-5)
    bound = 1 - c.int8(False).constant(x.shape)
    assert ((near - x) ** 2).sum() <= bound * (x**2).sum()
    worst = np.full(1_000, 0.4999, np.float32)
    worst[0] = 127.0
    error = (np.asarray(sent(c.int8(False), worst, KEY)) - worst) ** 2
    delta = c.int8(False).constant(worst.shape)
    assert error.sum() / (worst**2).sum() == pytest.approx(1 - delta, rel=1e-3)


@pytest.mark.parametrize("levels, omega", [(64, 1.398), (128, 0.375)])
def test_qsgd_of_a_gaussian_tensor(levels: int, omega: float) -> None:
    # Published: with a memory this diverges at 64 levels and works at 128. A draw is within 1 %.
    x = np.random.default_rng(1).standard_normal(36_864).astype(np.float32)
    compressor = c.qsgd(levels, bucket=None)
    error = ((np.asarray(sent(compressor, x, KEY)) - x) ** 2).sum() / (x**2).sum()
    exact = expected_error(x.astype(float), float(np.linalg.norm(x)) / levels)
    assert exact == pytest.approx(omega, rel=0.01)
    assert error == pytest.approx(exact, rel=0.02)
    assert exact <= compressor.constant(x.shape) == min(36_864 / levels**2, 192 / levels)


def test_terngrad_clips() -> None:
    x = gradient((400,))
    limit = 1.5 * np.sqrt((x.astype(float) ** 2).mean())
    got = np.asarray(draws(c.terngrad(1.5), x, jax.random.split(KEY, 2_000)))
    np.testing.assert_allclose(np.unique(np.abs(got)), [0, limit], rtol=1e-5)
    above = np.abs(x) >= limit
    assert above.any()
    np.testing.assert_allclose(got[:, above], np.tile(np.sign(x[above]) * limit, (2_000, 1)), 1e-5)
    shared = np.asarray(draws(c.terngrad(None, 0.5), x, jax.random.split(KEY, 10)))
    assert set(np.unique(np.abs(shared))) == {0.0, 0.5}
    assert c.terngrad(None, 0.5).summable and not c.terngrad().summable
    families = [c.terngrad(*a).family for a in [(None,), (2.5,), (None, 0.5)]]
    assert families == [c.UNBIASED, c.NEITHER, c.NEITHER]


ENTRIES = st.floats(-1e6, 1e6, width=32).map(lambda x: np.float32(x) * (abs(x) > 1e-6))


@settings(max_examples=60)
@given(st.lists(ENTRIES, min_size=20, max_size=20))
def test_signs(entries: list[float]) -> None:
    x = np.array(entries, np.float32).reshape(5, 4)
    whole = x.astype(float)
    scaled = np.asarray(sent(c.scaled_sign(), x, KEY), float)
    square, size = (whole**2).sum(), np.abs(whole).sum()
    delta = size**2 / (20 * square) if square else 1.0
    error = ((scaled - whole) ** 2).sum()
    np.testing.assert_allclose(error, (1 - delta) * square, rtol=1e-4, atol=1e-5 * square)
    assert delta >= c.scaled_sign().constant(x.shape) - 1e-9
    one = np.asarray(sent(c.one_bit(), x, KEY), float)
    for j in range(4):
        for side in (whole[:, j] >= 0, whole[:, j] < 0):
            if side.any():
                mean = whole[side, j].mean()
                np.testing.assert_allclose(one[side, j], mean, rtol=1e-5, atol=1e-35)
    mean_error = ((one - whole) ** 2).sum()
    assert mean_error <= error + 1e-5 * square
    assert mean_error <= (1 - c.one_bit().constant(x.shape)) * square * (1 + 1e-5)


def test_a_dead_parameter_stays() -> None:
    # With a memory, what one bit says of a zero comes back: the sum sent of it is bounded.
    for name in ("one_bit", "scaled_sign"):
        residual, total, worst = np.zeros(3, np.float32), np.zeros(3), 0.0
        for step in range(60):
            whole = np.array([1.0, 0.0, -0.5 if step % 2 else 2.0], np.float32) + residual
            message = np.asarray(sent(FACTORIES[name](), whole, KEY))
            residual, total = whole - message, total + message
            worst = max(worst, abs(total[1]))
        assert worst <= 2.0
    zero = jnp.zeros(3)
    votes = [sent(c.majority_sign(), zero, KEY, step) for step in range(4)]
    np.testing.assert_array_equal(sum(votes), np.zeros(3))


def test_majority() -> None:
    signs = sent(c.majority_sign(), jnp.array([[3.0, -1e-30], [0.0, -2.0]]), KEY)
    np.testing.assert_array_equal(signs, [[1, -1], [1, -1]])
    vote = c.majority_sign().decode({"w": jnp.array([0.2, 0.0, -1.0, jnp.nan])})
    np.testing.assert_array_equal(vote["w"], [1, 0, -1, np.nan])


def test_majority_sign_applies_the_vote_of_the_workers() -> None:
    average = {"b": jnp.array([0.2, -0.4]), "w": jnp.array([[0.5, 0.0, -0.25]])}
    for scope in (c.whole, lambda inner: c.dense_below(inner, 1)):
        vote = scope(c.majority_sign()).decode(average)
        np.testing.assert_array_equal(vote["b"], [1, -1])
        np.testing.assert_array_equal(vote["w"], [[1, 0, -1]])
    vote = c.dense_below(c.whole(c.majority_sign()), 3).decode(average)
    np.testing.assert_array_equal(vote["b"], average["b"])
    np.testing.assert_array_equal(vote["w"], [[1, 0, -1]])
    assert not hasattr(c.whole(c.int8()), "decode")
    assert not hasattr(c.dense_below(c.int8(), 3), "decode")


FLOATS = {
    "fp16": (np.float16, 2.0**-11, 2.0**-14, 65504.0, 65520.0),
    "bf16": (jnp.bfloat16, 2.0**-8, 2.0**-126, 3.3895e38, 3.3962e38),
    "fp8_e4m3": (jnp.float8_e4m3fn, 2.0**-4, 2.0**-6, 448.0, 464.1),
    "fp8_e5m2": (jnp.float8_e5m2, 2.0**-3, 2.0**-14, 57344.0, 61440.0),
}


@pytest.mark.parametrize("name", FLOATS)
def test_floats(name: str) -> None:
    dtype, relative, least, greatest, over = FLOATS[name]
    rng = np.random.default_rng(2)
    x = rng.standard_normal(20_000) * 2.0 ** rng.uniform(-30, 18, 20_000)
    x = np.concatenate([x, [greatest, -over, over, 0.0]]).astype(np.float32)
    got = np.asarray(sent(FACTORIES[name](), x, KEY))
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(got, x.astype(dtype).astype(np.float32))
    normal = (np.abs(x) >= least) & (np.abs(x) <= greatest)
    assert (np.abs(got - x)[normal] <= relative * np.abs(x)[normal]).all()
    assert FACTORIES[name]().relative_error == relative
    assert np.isfinite(got[-4]) and not np.isfinite(got[[-3, -2]]).any()
    inside = np.isfinite(got)
    assert (np.abs(got - x)[inside] <= np.abs(x)[inside]).all()
    fused = jax.jit(lambda x: x - FACTORIES[name]().compress((), x, KEY, 0)[1])(x[:100])
    assert np.asarray(fused).any(), "the compiler merged the two conversions"
