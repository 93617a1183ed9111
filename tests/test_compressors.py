"""Every compressor that ships keeps to the protocol, and what it declares is true."""

import importlib
import pkgutil
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest

from dtjax import compressors
from dtjax.compressors.identity import Identity
from dtjax.testing import check_compressor

EXAMPLES = {}
for module in pkgutil.iter_modules(compressors.__path__):
    found = importlib.import_module(f"dtjax.compressors.{module.name}")
    if hasattr(found, "EXAMPLE"):
        EXAMPLES[module.name] = found.EXAMPLE


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_passes(name):
    check_compressor(EXAMPLES[name]())


def test_every_file_of_a_compressor_has_an_example():
    without = {module.name for module in pkgutil.iter_modules(compressors.__path__)} - set(EXAMPLES)
    assert {name for name in without if not name.startswith("_")} == {"compressor"}


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
def test_a_broken_one_fails(broken, words):
    kind = jax.tree_util.register_dataclass(dataclass(frozen=True)(broken))
    with pytest.raises(AssertionError, match=words):
        check_compressor(kind())
