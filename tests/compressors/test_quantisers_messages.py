"""Quantisers: bits and bytes, extreme numbers, other types, traced numbers, bad arguments."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dtjax import compressors as c
from dtjax.compressors import _rounding
from quantisers import FACTORIES, KEY, gradient, sent

everything = pytest.mark.parametrize("name", FACTORIES)


@cache
def tree() -> dict[str, np.ndarray]:
    return {"b": gradient((5,)), "s": np.array(0.3, np.float32), "w": gradient((3, 4, 7), 1)}


def entry_bits(name: str, d: int, columns: int) -> int:
    """Return the bits of a tensor by hand; PowerSGD's are above."""
    kind = name.split()[0]
    fixed = {"natural": 9, "majority_sign": 1, "fp16": 16, "bf16": 16}
    if kind in fixed or kind.startswith("fp8"):
        return fixed.get(kind, 8) * d
    if name == "terngrad scaled":
        return 2 * d
    return {
        "qsgd": 32 * (math.ceil(d / 16) if name == "qsgd" else 1) + (1 + 3) * d,
        "terngrad": 32 + 2 * d,
        "int8": 32 + 8 * d,
        "one_bit": 64 * columns + d,
        "scaled_sign": 32 + d,
    }[kind]


@everything
def test_bytes_say_all(name: str) -> None:
    compressor, grads = FACTORIES[name](), tree()
    memory = compressor.memory(grads)
    key = jax.random.key(5)
    message = jax.jit(lambda x: compressor.compress_tree(memory, x, key, 3)[1])(grads)
    data = compressor.pack(grads, key, step=3)
    bits = compressor.bits(grads)
    assert isinstance(bits, int) and len(data) == math.ceil(bits / 8)
    if not name.startswith("power_sgd"):
        assert bits == sum(entry_bits(name, d, k) for d, k in [(5, 1), (1, 1), (84, 7)])
    assert compressor.message_bits(message) == bits
    read = compressor.unpack(data, grads, key, step=3)
    for got, expected in zip(jax.tree.leaves(read), jax.tree.leaves(message), strict=True):
        tolerance = 1e-5 if name.startswith("power_sgd") else 0.0
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def test_published_payloads() -> None:
    params = {"all": jax.ShapeDtypeStruct((25_559_081,), jnp.float32)}
    for compressor, octets in [(c.majority_sign(), 3_194_886), (c.terngrad(None, 1), 6_389_771)]:
        assert math.ceil(compressor.bits(params) / 8) == octets


@everything
def test_extremes(name: str) -> None:
    compressor = FACTORIES[name]()
    x = gradient((4, 4))
    np.testing.assert_array_equal(np.isfinite(sent(compressor, x, KEY)), True)
    zero = np.asarray(sent(compressor, np.zeros_like(x), KEY))
    np.testing.assert_array_equal(zero, np.float32(name == "majority_sign") * np.ones_like(x))
    for bad in (np.nan, np.inf, -np.inf):
        broken = x.copy()
        broken[1, 2] = bad
        assert not np.isfinite(np.asarray(sent(compressor, broken, KEY))).all()
    for size in (1e-45, 1e-38, 1e-30, 1e30, 1e36):
        y = (x.astype(float) * size).astype(np.float32)
        got = np.asarray(sent(compressor, y, KEY))
        if size < 1 or not name.startswith("fp"):
            assert np.isfinite(got).all()
        if 1e-38 < size < 1e37 and name.split()[0] in ("qsgd", "int8", "one_bit", "scaled_sign"):
            reference = np.asarray(sent(compressor, x, KEY))
            np.testing.assert_allclose(got / size, reference, rtol=1e-4)
    if compressor.keeps_zero or name in ("qsgd", "terngrad clipped"):
        assert (np.asarray(sent(compressor, x, KEY))[x == 0] == 0).all()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float64])
def test_other_types(dtype: Any) -> None:
    # One compilation for all: trees keep the type of the gradient, and stay near it.
    with jax.enable_x64(dtype == jnp.float64):
        x = {"w": jnp.asarray(gradient((4, 4)), dtype)}
        every = [make() for make in FACTORIES.values()]
        key = jax.random.key(1)
        encode = jax.jit(lambda x: [a.compress_tree(a.memory(x), x, key, 0)[1] for a in every])
        for message in encode(x):
            assert message["w"].dtype == dtype
            assert bool(jnp.isfinite(message["w"]).all())


def test_numbers_are_traced() -> None:
    x, levels = jnp.asarray(gradient((40,))), jnp.array([1, 3, 200])

    def all_of(s: Any) -> Any:
        compressor = c.qsgd(s, 16)
        message = compressor.compress((), x, KEY, 0)[1]
        return message, compressor.bits({"w": x}), compressor.constant((40,))

    got, bits, omegas = jax.jit(jax.vmap(all_of))(levels)
    for value, row in zip(levels, got, strict=True):
        np.testing.assert_array_equal(row, sent(c.qsgd(int(value), 16), x, KEY))
    assert bits.tolist() == [96 + 40 * (1 + width) for width in (1, 2, 8)]
    np.testing.assert_allclose(omegas, [4, 4 / 3, 16 / 200**2], rtol=1e-6)
    clipped = jax.jit(jax.vmap(lambda s: c.terngrad(s, s).compress((), x, KEY, 0)[1]))
    scaled = clipped(jnp.array([0.1, 9.0]))
    assert float(jnp.abs(scaled[0]).max()) == pytest.approx(0.1)


def test_uniform_numbers() -> None:
    # Two Kolmogorov-Smirnov tests at 1e-4: of many entries, and of one entry of many keys.
    many = np.asarray(jax.jit(lambda k: _rounding.fractions(k, 40_001))(KEY))
    one = jax.vmap(lambda key: _rounding.fractions(key, 9)[5])(jax.random.split(KEY, 20_000))
    for numbers in (many, np.asarray(one)):
        assert stats.kstest(numbers.astype(float) + 2.0**-25, "uniform").pvalue > 1e-4
        assert numbers.min() >= 0 and numbers.max() < 1
    low = np.asarray(one).astype(float) * 2**16 % 1
    assert stats.kstest(low + 2.0**-9, "uniform").pvalue > 1e-4


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: c.qsgd(0), "qsgd: levels must be an integer between 1 and 65536, got 0"),
        (lambda: c.qsgd(np.array([1, 2])), "qsgd: levels must be one integer"),
        (lambda: c.qsgd(4, 0), "qsgd: bucket must be an integer 1 or more, got 0"),
        (lambda: c.terngrad(0.0), "terngrad: clip must be positive and finite, got 0.0"),
        (lambda: c.terngrad(1.0, -1.0), "terngrad: scale must be non-negative and finite"),
        (lambda: c.int8(1), "int8: stochastic must be True or False, got 1"),  # ty: ignore
        (lambda: c.fp8("e4m2"), "fp8: format must be one of e4m3, e5m2"),
        (lambda: c.power_sgd(0), "power_sgd: rank must be an integer 1 or more, got 0"),
        (lambda: c.power_sgd(1, 2), "power_sgd: warm_start must be True"),  # ty: ignore
    ],
)
def test_bad_numbers(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
