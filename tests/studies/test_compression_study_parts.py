"""What the study of compressors is made of: break-evens, medians, encoders, seconds."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import dtjax
from dtjax import compressors, delays
from studies import compression_report as report
from studies import compression_runs as runs
from studies import compression_seconds as clock


def test_break_even() -> None:
    rate = np.array([1.0, 10.0, 100.0, 1000.0])
    dense = np.array([1000.0, 100.0, 20.0, 10.0])
    # Twice as fast, as fast, slower: where they meet. Between bandwidths powers are interpolated.
    assert clock.break_even(rate, dense * [0.5, 0.5, 1, 2], dense) == pytest.approx(100)
    assert clock.break_even(rate, dense * [0.5, 0.5, 2, 2], dense) == pytest.approx(10**1.5)
    assert clock.break_even(rate, dense * [0.5, 0.5, 8, 8], dense) == pytest.approx(10**1.25)
    assert clock.break_even(rate[::-1], (dense * [0.5, 0.5, 2, 2])[::-1], dense[::-1]) == (
        pytest.approx(10**1.5)
    )
    assert clock.break_even(rate, dense / 2, dense) == math.inf
    assert clock.break_even(rate, dense, dense) == 0  # no faster
    assert clock.break_even(rate, np.full(4, math.inf), dense) == 0
    assert clock.break_even(rate, dense, np.full(4, math.inf)) == math.inf
    own = np.stack([dense * [0.5, 0.5, 2, 2]] * 3, axis=-1)
    found = clock.break_evens(rate, own, np.stack([dense] * 3, axis=-1))
    np.testing.assert_allclose(found, 10**1.5)


def test_the_verdict_on_a_memory() -> None:
    def setting(updates: list[float], accuracy: float) -> Any:
        last = xr.DataArray([[accuracy]] * 4, dims=("run", "evaluation"))
        return SimpleNamespace(target_updates=xr.DataArray(updates, dims="run"), test_accuracy=last)

    never, good = setting([math.inf] * 4, 0.3), setting([8.0, 9.0, 9.0, 10.0], 0.9)
    assert report.verdict(never, good) == report.HELPS
    assert report.verdict(good, never) == report.HURTS
    assert report.verdict(good, good) == report.NEITHER
    assert report.verdict(never, setting([math.inf] * 4, 0.8)) == report.HELPS
    assert report.verdict(setting([math.inf] * 4, 0.3), never) == report.NEITHER


def test_seconds_of_bsp_in_closed_form() -> None:
    """Pull, compute and encode alike; then everyone's push through one ingress."""
    links = {
        "payload": np.array([80.0, 80.0, 8.0]),
        "bandwidth": np.array([100.0, math.inf, 100.0]),
        "encode": np.array([0.0, 0.25, 0.25]),
        "pull": np.array([50.0, 50.0, 0.0]),
    }
    keys = jax.random.split(jax.random.key(0), 2)
    found = clock.update_seconds(keys, delays.deterministic(1.0), 4, 3, **links)
    update = np.array([0.5 + 1 + 3.2, 1 + 0.25, 1 + 0.25 + 0.32])
    expected = np.broadcast_to(update[:, None, None], found.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_settings_have_the_memories_that_make_sense() -> None:
    names = ("majority-sign", "identity", "int8", "scaled-sign")
    assert runs.settings(names, ("feedback", "none", "ef21")) == (
        "identity",
        "majority-sign",
        "int8 + feedback",
        "int8",
        "scaled-sign + feedback",
        "scaled-sign",
        "scaled-sign + ef21",
    )
    assert runs.settings(("majority-sign",), ("feedback",)) == ("identity",)


GRADIENT = {"a": jnp.linspace(-1.0, 2.0, 30).reshape(10, 3), "b": jnp.array([0.5, -0.25])}
EXTRAS = dtjax.protocols.Extras(
    jnp.int32(0), jnp.int32(0), jnp.int32(0), jnp.float32(1), jax.random.key(1), jax.random.key(2)
)
ENCODED = ("identity", "top-k:0.2", "random-k:0.5", "qsgd:4", "power-sgd:1", "scaled-sign", "int8")


@pytest.mark.parametrize("text", [*ENCODED, "majority-sign"])
def test_without_a_memory_a_message_is_that_of_the_compressor(text: str) -> None:
    compressor = runs.compressor_of(text)
    encoder = runs.encoder_of(compressor, "none")
    params = {"model": GRADIENT, "probe": jnp.zeros(2)}
    memory, plain = encoder.memory(params), compressor.memory(GRADIENT)
    for turn in range(3):
        gradient = jax.tree.map(lambda x, turn=turn: x + turn, GRADIENT)
        memory, message = encoder.encode(memory, params | {"model": gradient}, EXTRAS)
        plain, expected = compressor.encode(plain, gradient, EXTRAS)
        for name, sent in expected.items():
            np.testing.assert_array_equal(message["model"][name], sent)
        lost = sum(float(jnp.sum((expected[x] - gradient[x]) ** 2)) for x in gradient)
        norm = sum(float(jnp.sum(gradient[x] ** 2)) for x in gradient)
        np.testing.assert_allclose(message["probe"], [lost / norm, 1.0], rtol=1e-5, atol=1e-7)
    assert hasattr(encoder, "decode") == hasattr(compressor, "decode")


@pytest.mark.parametrize("memory", ["feedback", "ef21"])
def test_with_a_memory_the_error_is_of_what_was_compressed(memory: str) -> None:
    compressor = compressors.top_k(0.2)
    wrap = {"feedback": compressors.error_feedback, "ef21": compressors.ef21}[memory]
    encoder, plain = runs.encoder_of(compressor, memory), wrap(compressor)
    params = {"model": GRADIENT, "probe": jnp.zeros(2)}
    mine, his = encoder.memory(params), plain.memory(GRADIENT)
    carried = jax.tree.map(jnp.zeros_like, GRADIENT)  # residual, or what the server has
    for _ in range(3):
        sign = 1.0 if memory == "feedback" else -1.0
        given = jax.tree.map(lambda g, c, sign=sign: g + sign * c, GRADIENT, carried)
        mine, message = encoder.encode(mine, params, EXTRAS)
        his, expected = plain.encode(his, GRADIENT, EXTRAS)
        _, sent = compressor.encode(compressor.memory(GRADIENT), given, EXTRAS)
        carried = jax.tree.map(jnp.subtract, given, sent)
        if memory == "ef21":
            carried = expected
        for name in GRADIENT:
            np.testing.assert_array_equal(message["model"][name], expected[name])
        trees = (jax.tree.map(jnp.subtract, given, sent), given, GRADIENT)
        square = [sum(float(jnp.sum(x**2)) for x in tree.values()) for tree in trees]
        wanted = [square[0] / square[1], math.sqrt(square[1] / square[2])]
        np.testing.assert_allclose(message["probe"], wanted, rtol=1e-5)
