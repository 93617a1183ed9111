"""The quantisers under test, and what calls them."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np

from dtjax import compressors as c

KEY = jax.random.key(20)
FACTORIES: dict[str, Any] = {
    "qsgd": partial(c.qsgd, 5, 16),
    "qsgd whole": partial(c.qsgd, 4, None),
    "terngrad": partial(c.terngrad, None),
    "terngrad clipped": c.terngrad,
    "terngrad scaled": partial(c.terngrad, None, 2.0),
    "natural": c.natural,
    "int8": c.int8,
    "int8 nearest": partial(c.int8, False),
    "one_bit": c.one_bit,
    "scaled_sign": c.scaled_sign,
    "majority_sign": c.majority_sign,
    "fp16": c.fp16,
    "bf16": c.bf16,
    "fp8_e4m3": c.fp8_e4m3,
    "fp8_e5m2": c.fp8_e5m2,
    "power_sgd": partial(c.power_sgd, 2),
    "power_sgd fresh": partial(c.power_sgd, 1, False),
}


@jax.jit
def sent(compressor: Any, x: jax.Array, key: jax.Array, step: Any = 0) -> jax.Array:
    return compressor.compress(compressor.array_memory(x), x, key, step)[1]


@jax.jit
def draws(compressor: Any, x: jax.Array, keys: jax.Array) -> jax.Array:
    return jax.vmap(lambda key: compressor.compress((), x, key, 0)[1])(keys)


def gradient(shape: tuple[int, ...] = (7, 6), seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * np.exp(rng.standard_normal(shape))
    x.reshape(-1)[::9] = 0
    return x.astype(np.float32)
