"""Every compressor that ships keeps to the protocol, and what it declares is true."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest

from dtjax import compressors
from dtjax.compressors.identity import Identity
from dtjax.core import plugins
from dtjax.core.pytree import pytree
from dtjax.testing import check_compressor

EXAMPLES = plugins.examples("dtjax.compressors")


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_compressor_that_ships_passes(name):
    check_compressor(EXAMPLES[name]())


@pytest.mark.parametrize("make", [compressors.bf16, compressors.fp8_e4m3, compressors.fp8_e5m2])
def test_every_format_of_floats_passes(make):
    check_compressor(make())


class Shrinks(Identity):
    def compress(self, memory, x, key, step):
        return memory, 0.5 * x


class Mute(Shrinks):
    def write(self, memory, x, key, step):
        raise NotImplementedError


class Biased(Mute):
    @property
    def family(self):
        return compressors.UNBIASED

    def constant(self, shape):
        return 1.0


class HidesNaN(Identity):
    def compress(self, memory, x, key, step):
        return memory, jnp.nan_to_num(x, posinf=0, neginf=0)


class Random(Identity):
    def compress(self, memory, x, key, step):
        return memory, jnp.where(jax.random.bernoulli(key, shape=x.shape), x, 0.5 * x)


class Shared(Random):
    @property
    def deterministic(self):
        return False

    def encode(self, memory, gradient, extras):
        return self.compress_tree(memory, gradient, extras.shared, extras.step)


class TooFewBits(Identity):
    def size(self, shape, step=0):
        return 31 * len(shape)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (Shrinks, "what is read out of bytes is not what was sent"),
        (Mute, "is 0.249.* but 1 - delta is 0.0"),
        (Biased, "the mean of messages is not x"),
        (HidesNaN, "a gradient with nan has a finite message"),
        (Random, "another key gives another message"),
        (Shared, "another shared key gives another message"),
        (TooFewBits, "bytes, but 12 are counted"),
    ],
)
def test_check_compressor_names_the_broken_rule(broken, words):
    kind = pytree(dataclass(frozen=True)(broken))
    with pytest.raises(AssertionError, match=words):
        check_compressor(kind())


def test_zeros_that_dgc_sends_to_fill_k_are_counted():
    compressor, x = compressors.dgc(0.5), jnp.eye(1, 8, 3)[0]
    message = compressor.compress(compressor.array_memory(x), x, None, jnp.int32(0))[1]
    data = compressor.pack(x, jax.random.key(0))
    assert compressor.message_bits(message) == 4 * 64 == 8 * len(data)


def test_a_memory_is_kept_by_the_paths_of_the_tensors():
    params = {"layer": {"w": jnp.zeros((2, 3)), "b": jnp.zeros(3)}}
    compressor = compressors.error_feedback(compressors.top_k(0.25))
    memory = compressor.memory(params)
    assert set(memory) == {"['layer']['w']", "['layer']['b']"}
    turned = {"layer": {"w": jnp.zeros((3, 2)), "b": jnp.zeros(3)}}
    for call in (
        lambda: compressor.compress_tree(memory, turned, jax.random.key(0), jnp.int32(0)),
        lambda: compressor.pack(turned, jax.random.key(0), memory=memory),
    ):
        with pytest.raises(ValueError, match="ErrorFeedback: memory must be of tensors like"):
            call()
