"""Sparsifiers, compositions and scopes against numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dtjax import codecs
from dtjax.cluster.transfers import transfer_table
from dtjax.compressors import (
    CONTRACTIVE,
    NEITHER,
    UNBIASED,
    bf16,
    compose,
    dense_below,
    error_feedback,
    identity,
    natural,
    qsgd,
    random_k,
    terngrad,
    threshold,
    top_k,
    whole,
)
from dtjax.compressors._largest import largest
from dtjax.compressors.top_k import count

KEY = jax.random.key(0)
EIGHT = np.array([0.3, -4.0, 1.0, 0.0, 2.0, -0.5, 5.0, -1.5], np.float32)


def kept_by_numpy(x, k):
    size = np.where(np.isnan(x), np.inf, np.abs(x))
    # numpy has no order between NaN and infinity here; lexsort puts NaN first.
    order = np.lexsort((np.arange(x.size), -size, ~np.isnan(x)))
    mask = np.zeros(x.size, bool)
    mask[order[:k]] = True
    return mask


def awkward(random, d, case):
    x = random.normal(size=d)
    with np.errstate(under="ignore"):
        x = [
            x,
            np.round(x),
            np.zeros(d),
            np.exp(15 * x),
            x * 1e-42,
            np.full(d, -np.inf),
            np.where(random.random(d) < 0.9, 0, x),
            np.where(random.random(d) < 0.2, np.nan, np.where(x > 1, np.inf, x)),
            np.repeat(random.choice([-2.0, 2.0], 1), d),
        ][case].astype(np.float32)
    return x


@pytest.mark.parametrize("d", [1, 2, 33, 300])
def test_exactly_the_k_largest_are_kept_the_first_where_they_tie(d):
    random = np.random.default_rng(d)
    x = np.stack([awkward(random, d, case) for case in range(9) for _ in range(4)])
    k = random.integers(1, d + 1, len(x))
    found = jax.jit(jax.vmap(largest))(x, k)
    np.testing.assert_array_equal(found, [kept_by_numpy(*pair) for pair in zip(x, k, strict=True)])


def test_a_quarter_of_eight_entries():
    compressor = top_k(0.25)
    found = compressor.compress((), jnp.asarray(EIGHT), KEY, 0)[1]
    np.testing.assert_array_equal(found, [0, -4, 0, 0, 0, 0, 5, 0])
    error = np.sum((found - EIGHT) ** 2)
    assert np.isclose(error, np.sum(EIGHT**2) - 16 - 25)
    assert compressor.bits(EIGHT) == 2 * 64
    assert compressor.constant((8,)) == 0.25


RATIOS = (0.001, 0.01, 0.1, 0.25, 0.29, 0.57, 0.7, 1.0)


def test_counts_are_the_floors_of_exact_products_also_if_traced():
    sizes = [*range(1, 30), 90, 99, 100, 9408, 16384, 2359296, 2050048]
    traced = jax.jit(lambda ratio: jnp.stack([count(ratio, d) for d in sizes]))
    for ratio in RATIOS:
        exact = [max(1, round(ratio * 1000) * d // 1000) for d in sizes]
        assert [count(jnp.float32(ratio), d) for d in sizes] == exact
        np.testing.assert_array_equal(traced(jnp.float32(ratio)), exact)


@pytest.mark.parametrize("ratio", [0.01, 0.1, 0.25])
def test_payload_of_tensors_of_resnet50(ratio):
    # Published bytes: 8 sum_l max(1, int(r n_l)).
    shapes = [(7, 7, 3, 64), (64,), (1, 1, 64, 256), (3, 3, 512, 512), (2048, 1001), (1001,)]
    params = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    wanted = 8 * sum(max(1, int(ratio * np.prod(shape))) for shape in shapes)
    assert top_k(ratio).bits(params) == 8 * wanted
    traced = jax.jit(lambda r: top_k(r).bits(params))(ratio)
    assert np.isclose(traced, 8 * wanted, rtol=1e-6)
    assert random_k(ratio).bits(params) == 4 * wanted


def test_a_ratio_sweeps_under_vmap():
    ratios = jnp.array([0.1, 0.25, 0.5, 1.0])
    found = jax.vmap(lambda r: top_k(r).compress((), jnp.asarray(EIGHT), KEY, 0)[1])(ratios)
    wanted = [np.where(kept_by_numpy(EIGHT, k), EIGHT, 0) for k in (1, 2, 4, 8)]
    np.testing.assert_array_equal(found, wanted)


def test_a_number_of_entries_in_place_of_a_ratio():
    compressor = top_k(k=5)
    assert [compressor.kept((d,)) for d in (3, 5, 8)] == [3, 5, 5]
    few = jnp.asarray(EIGHT[:3])
    np.testing.assert_array_equal(compressor.compress((), few, KEY, 0)[1], few)
    many = jax.vmap(lambda k: top_k(k=k).compress((), jnp.asarray(EIGHT), KEY, 0)[1])
    np.testing.assert_array_equal(jnp.sum(many(jnp.array([1, 3, 99])) != 0, 1), [1, 3, 7])


@pytest.mark.parametrize("code", codecs.INDEX_CODES)
def test_index_codes_are_counted_and_read_back(code):
    x = jnp.asarray(np.random.default_rng(0).normal(size=300), jnp.float32)
    for compressor in (top_k(0.1, code), threshold(1.5, code)):
        message = compressor.compress((), x, KEY, 0)[1]
        k, bits = int(jnp.sum(message != 0)), compressor.message_bits(message)
        head = 32 if compressor.family == NEITHER else 0
        index = len(codecs.write_indices(code, np.flatnonzero(message), 300))
        assert bits == head + index + 32 * k <= compressor.bits(x)
        assert np.isclose(jax.jit(compressor.message_bits)(message), bits)
        data = compressor.pack(x, KEY)
        assert len(data) == -(-bits // 8)
        np.testing.assert_array_equal(compressor.unpack(data, x, KEY), message)


@pytest.mark.parametrize("many", [0, 1, 20])
def test_golomb_rice_indices_of_few_entries_are_counted_exactly(many):
    x = jnp.zeros(300).at[-7 * jnp.arange(1, many + 1)].set(2.0)
    for compressor in (top_k(0.1, "golomb"), threshold(1.5, "golomb")):
        message = compressor.compress((), x, KEY, 0)[1]
        written = compressor.write((), x, KEY, 0)
        assert compressor.message_bits(message) == len(written)


def test_a_table_of_transfers_counts_as_top_k_does():
    for d, kept in ((100, 0.29), (100, 0.57), (10, 0.7), (30, 0.1), (2_359_296, 0.01)):
        bits = transfer_table(d, kept=kept).rows[-1].bits
        assert bits == top_k(kept).bits(jax.ShapeDtypeStruct((d,), jnp.float32))


def test_random_k_keeps_exactly_k_each_as_often():
    compressor, x = random_k(0.3), jnp.asarray(EIGHT) + 10
    keys = jax.random.split(KEY, 4000)
    found = jax.jit(jax.vmap(lambda key: compressor.compress((), x, key, 0)[1]))(keys)
    kept = np.asarray(found) != 0
    assert (kept.sum(1) == 2).all()
    np.testing.assert_allclose(kept.mean(0), 2 / 8, atol=6 * np.sqrt(0.25 * 0.75 / 4000))
    np.testing.assert_allclose(np.asarray(found)[kept], (4 * np.broadcast_to(x, (4000, 8)))[kept])
    # Without replacement: two given entries together as often as k (k - 1) / (d (d - 1)).
    together = (kept[:, 0] & kept[:, 5]).mean()
    assert abs(together - 2 / 56) < 6 * np.sqrt(2 / 56 / 4000)
    # E|C(x) - x|^2 = (d / k - 1) |x|^2, with equality.
    error = np.sum((found - x[None]) ** 2, 1)
    wanted = compressor.constant((8,)) * np.sum(np.square(x))
    assert abs(error.mean() - wanted) < 6 * error.std() / np.sqrt(4000)


def test_random_k_is_of_the_shared_key_only_if_it_says_so():
    shared, own = random_k(0.25), random_k(0.25, shared_seed=False)
    assert (shared.shared, shared.summable, own.shared, own.summable) == (True, True, False, False)
    assert random_k(0.25, scaled=False).family == CONTRACTIVE
    assert random_k(0.25, scaled=False).constant((8,)) == 0.25


def test_threshold_keeps_entries_of_the_level_and_above():
    compressor = threshold(1.5)
    message = compressor.compress((), jnp.asarray(EIGHT), KEY, 0)[1]
    np.testing.assert_array_equal(message, np.where(np.abs(EIGHT) >= 1.5, EIGHT, 0))
    assert np.sum((message - EIGHT) ** 2) <= 8 * 1.5**2
    assert compressor.bits(EIGHT) == 32 + 32 * 8
    assert compressor.message_bits(message) == 32 + 4 * (3 + 32)
    # Everything, and nothing.
    full = threshold(0.0).compress((), jnp.asarray(EIGHT) + 9, KEY, 0)[1]
    assert compressor.message_bits(full) == compressor.bits(full)
    none = threshold(99.0).compress((), jnp.asarray(EIGHT), KEY, 0)[1]
    assert not none.any() and compressor.message_bits(none) == 32
    np.testing.assert_array_equal(
        threshold(0.0).unpack(threshold(0.0).pack(full, KEY), full, KEY), full
    )


def test_a_composition_counts_indices_and_quantised_values():
    shape = (10, 30)
    assert compose(top_k(0.1, "packed"), natural()).size(shape) == 30 * 9 + 30 * 9
    assert compose(random_k(0.1), qsgd(3, bucket=None)).size(shape) == 32 + 30 * 3
    traced = jax.jit(lambda r: compose(random_k(r), qsgd(3, bucket=None)).size(shape))(0.1)
    assert traced == 32 + 30 * 3
    both = compose(random_k(0.1), natural())
    assert both.family == UNBIASED and np.isclose(both.constant(shape), 10 * 1.125 - 1)
    one = compose(top_k(0.1), natural())
    assert one.family == CONTRACTIVE and np.isclose(one.constant(shape), 0.1 * (1 - 1 / 8))
    assert np.isclose(compose(top_k(0.1), bf16()).constant(shape), 0.1 * (1 - 2.0**-16))
    assert compose(top_k(0.1), qsgd(1, bucket=None)).constant(shape) is None
    assert compose(random_k(0.1), bf16()).family == NEITHER


def test_compose_quantises_the_kept_entries():
    x = jnp.asarray(np.random.default_rng(3).normal(size=40), jnp.float32)
    found = compose(top_k(0.25), bf16()).compress((), x, KEY, 0)[1]
    wanted = np.where(kept_by_numpy(np.asarray(x), 10), x.astype(jnp.bfloat16), 0)
    np.testing.assert_array_equal(found, wanted.astype(np.float32))


@pytest.mark.parametrize("sparsifier", [top_k(0.25, "bitmap"), random_k(0.25)])
def test_a_composition_is_read_back_where_the_quantiser_is_deterministic(sparsifier):
    compressor, x = compose(sparsifier, bf16()), jnp.asarray(EIGHT)
    data = compressor.pack(x, KEY)
    assert len(data) == -(-compressor.bits(x) // 8)
    message = compressor.compress_tree(compressor.memory(x), x, KEY, jnp.int32(0))[1]
    np.testing.assert_array_equal(compressor.unpack(data, x, KEY), message)
    with pytest.raises(NotImplementedError, match="rounds at random"):
        compose(sparsifier, natural()).pack(x, KEY)


TREE = {"b": jnp.arange(5.0), "w": -jnp.arange(6.0).reshape(2, 3) * 10}


def send(compressor, gradient=TREE, memory=None):
    memory = compressor.memory(gradient) if memory is None else memory
    return compressor.compress_tree(memory, gradient, KEY, jnp.int32(0))


def test_whole_compresses_the_gradient_as_one_vector():
    compressor = whole(top_k(0.3))  # 3 of 11, where 1 and 1 of 5 and 6 would be kept
    message = send(compressor)[1]
    np.testing.assert_array_equal(message["b"], np.zeros(5))
    np.testing.assert_array_equal(message["w"], [[0, 0, 0], [-30, -40, -50]])
    assert compressor.bits(TREE) == 3 * 64 == compressor.message_bits(message)
    found = compressor.unpack(compressor.pack(TREE, KEY), TREE, KEY)
    assert jax.tree.all(jax.tree.map(np.array_equal, found, message))


def test_dense_below_sends_small_tensors_as_they_are():
    compressor = dense_below(top_k(0.5), 6)
    message = send(compressor)[1]
    np.testing.assert_array_equal(message["b"], TREE["b"])
    np.testing.assert_array_equal(message["w"], [[0, 0, 0], [-30, -40, -50]])
    assert compressor.bits(TREE) == 32 * 5 + 64 * 3 == compressor.message_bits(message)
    assert compressor.constant((5,)) == 1.0 and compressor.constant((6,)) == 0.5
    found = compressor.unpack(compressor.pack(TREE, KEY), TREE, KEY)
    assert jax.tree.all(jax.tree.map(np.array_equal, found, message))


def test_scopes_nest_and_stay_outside_memories():
    small = {"a": jnp.ones(2) * 99, **TREE}
    message = send(dense_below(whole(top_k(0.3)), 5), small)[1]
    np.testing.assert_array_equal(message["a"], small["a"])
    assert jax.tree.all(
        jax.tree.map(np.array_equal, {**message, "a": 0}, {**send(whole(top_k(0.3)))[1], "a": 0})
    )
    inner = error_feedback(top_k(0.3))
    assert repr(error_feedback(whole(top_k(0.3)))) == repr(whole(inner))
    assert repr(error_feedback(dense_below(top_k(0.3), 4))) == repr(dense_below(inner, 4))


def test_the_memory_of_a_whole_gradient_is_of_these_shapes():
    compressor = whole(error_feedback(top_k(0.3)))
    memory = compressor.memory(TREE)
    turned = {"b": TREE["b"], "w": TREE["w"].reshape(3, 2)}
    with pytest.raises(ValueError, match="memory must be of tensors like the gradient's"):
        send(compressor, turned, memory)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: top_k(0.0), "top_k: ratio must be above 0 and at most 1, got 0.0"),
        (lambda: top_k(1.5), "top_k: ratio must be above 0 and at most 1, got 1.5"),
        (lambda: top_k(float("nan")), "top_k: ratio must be"),
        (lambda: top_k(), "top_k: ratio or k must be given"),
        (lambda: top_k(0.5, k=3), "top_k: ratio or k must be given"),
        (lambda: top_k(k=0), "top_k: k must be an integer between 1 and 2147483647, got 0"),
        (lambda: top_k(k=10**12), "top_k: k must be an integer between 1 and 2147483647, got 10"),
        (lambda: top_k(True), "top_k: ratio must be above 0 and at most 1, got True"),
        (lambda: random_k(np.True_), "random_k: ratio must be above 0 and at most 1, got np.True_"),
        (lambda: top_k(0.5, "bitmpa"), "did you mean 'bitmap'"),
        (lambda: random_k(-1.0), "random_k: ratio must be above 0"),
        (lambda: threshold(-1.0), "threshold: level must be non-negative"),
        (lambda: compose(natural(), natural()), "compose: sparsifier must be top_k or random_k"),
        (lambda: compose(top_k(0.5), top_k(0.5)), "compose: quantiser must keep zeros"),
        (lambda: compose(top_k(0.5), qsgd(4)), r"\(qsgd: bucket=None; terngrad: clip=None\)"),
        (lambda: compose(top_k(0.5), terngrad()), r"\(qsgd: bucket=None; terngrad: clip=None\)"),
        (lambda: whole(3), "whole: compressor must be a compressor, got 3"),
        (lambda: dense_below(identity(), -1), "dense_below: size must be an integer 0 or more"),
    ],
)
def test_errors_name_the_argument(make, words):
    with pytest.raises(ValueError, match=words):
        make()
