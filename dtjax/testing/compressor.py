"""`check_compressor`: does a compressor keep to the protocol, and is what it declares true?"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dtjax.compressors.compressor import CONTRACTIVE, NEITHER, UNBIASED
from dtjax.core.protocols import Extras
from dtjax.testing import tools
from dtjax.testing.tools import require, stage

SHAPES = {"matrix": (6, 5), "none": (0, 3), "vector": (7,)}
STEPS, BAD = 4, 1
"""Gradients sent one after another, and which of them is not finite where one is."""

SHAPE, DRAWS = (6, 5), 2048
"""Of the arrays on which the class is checked, and how often each is compressed."""

SIGMAS = 6.0
"""Standard errors that a mean may be off. For a normal mean more has probability 2e-9; with a fixed
key the check passes always or never."""


def check_compressor(compressor: Any, *, exact: bool = True) -> None:
    """Check a compressor against the protocol `dtjax.compressors.Compressor`.

    It is a pytree of numbers whose values change under `jit` without a second compile, and sweep
    under `vmap`; its memory keeps its structure; messages look like gradients, depend on a key only
    if that is said, and on the key that is said to be shared. Messages of zeros add up to zero. A
    gradient that is not finite has a message that is not, and no effect on later ones. Bits are
    positive, the same if traced, and enough: where messages can be written, they take the bits
    that are counted, and reading gives what `compress` did, also of gradients that are mostly
    zeros. If `sized`, every message takes the bits that `bits` declares. What a server does to an
    average keeps its shapes. It is an optax transformation. On arrays random and extreme, if
    contractive, E|C(x) - x|^2 <= (1 - delta) |x|^2; if unbiased, E|C(x) - x|^2 <= omega |x|^2, and
    the mean of 2,048 messages is within six standard errors of x.

    Args:
        compressor: a `Compressor`.
        exact: whether a message takes all the bits that `message_bits` counts, or at most so many
            (Golomb-Rice indices in `ef21` and `compose`).

    Raises:
        AssertionError: naming the first property that does not hold.

    Example:
        >>> from dtjax import compressors
        >>> check_compressor(compressors.identity())
    """
    name = type(compressor).__name__
    tools.require_methods(compressor, "memory", "encode", "compress", "bits", "init", "update")
    tools.require_numbers(compressor)
    known = compressor.family in (CONTRACTIVE, UNBIASED, NEITHER)
    require(known, f"{name}: the family must be contractive, unbiased or neither")
    gradients = _gradients()
    first = jax.tree.map(lambda leaf: leaf[0], gradients)
    _check_structure(name, compressor, first)
    _check_optax(name, compressor, first)
    messages = _check_messages(name, compressor, gradients)
    sent = jax.tree.map(lambda leaf: leaf[0], messages)
    _check_bits(name, compressor, sent)
    _check_bytes(name, compressor, first, sent, exact)
    _check_sparse(name, compressor, gradients, exact)
    if compressor.family != NEITHER:
        _check_family(name, compressor)


def _gradients() -> dict[str, jax.Array]:
    random = np.random.default_rng(0)
    return {
        path: jnp.asarray(random.normal(size=(STEPS, *shape)), jnp.float32)
        for path, shape in SHAPES.items()
    }


def _encode(compressor: Any, memory: Any, gradient: Any, key: Any, shared: Any, step: Any) -> Any:
    worker = jnp.int32(0)
    extras = Extras(worker, step, jnp.int32(0), jnp.ones(()), key, shared)
    return compressor.encode(memory, gradient, extras)


_TRACES: list[str] = []  # one entry for each time that `_send` was traced


def _kind(compressor: Any) -> str:
    """Return what tells compilations apart: JAX takes dataclasses of like fields for the same."""
    return str(jax.tree.structure(compressor))


@partial(jax.jit, static_argnums=0)
def _send(kind: str, compressor: Any, gradients: Any, key: Any, shared: Any) -> tuple[Any, Any]:
    """Send gradients one after another: the messages, and whether the memory is finite after."""
    _TRACES.append(kind)

    def one(memory: Any, entry: Any) -> Any:
        step, gradient = entry
        fold = partial(jax.random.fold_in, data=step)
        memory, message = _encode(compressor, memory, gradient, fold(key), fold(shared), step)
        finite = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(memory)]
        return memory, (message, jnp.array([True, *finite]).all())

    steps = jnp.arange(STEPS, dtype=jnp.int32)
    memory = compressor.memory(jax.tree.map(lambda leaf: leaf[0], gradients))
    return lax.scan(one, memory, (steps, gradients))[1]


def _check_structure(name: str, compressor: Any, gradient: Any) -> None:
    with stage(name, "when it is traced"):
        memory = jax.eval_shape(compressor.memory, gradient)
        send = partial(_encode, compressor)
        key, step = jax.random.key(0), jnp.int32(0)
        after, message = jax.eval_shape(send, memory, gradient, key, key, step)
    before, then = tools.kinds(memory), tools.kinds(after)
    require(before == then, f"{name}: a gradient turns a memory {before} into {then}")
    wanted, found = tools.kinds(gradient), tools.kinds(message)
    require(wanted == found, f"{name}: a message must be {wanted}, not {found}")
    if hasattr(compressor, "decode"):
        with stage(name, "when its server decodes"):
            found = tools.kinds(jax.eval_shape(compressor.decode, message))
        require(wanted == found, f"{name}: what is decoded must be {wanted}, not {found}")
    some = bool(jax.tree.leaves(memory))
    require(some == compressor.remembers, f"{name}: `remembers` is not whether it has a memory")


def _check_optax(name: str, compressor: Any, gradient: Any) -> None:
    import optax

    for transformation in (compressor, compressor.transformation(jax.random.key(3))):
        chain = optax.chain(transformation, optax.sgd(0.1))
        with stage(name, "in optax.chain"):
            state = jax.eval_shape(chain.init, gradient)
            changes, after = jax.eval_shape(chain.update, gradient, state, gradient)
        same = tools.kinds(after) == tools.kinds(state)
        require(same, f"{name}: an update in optax changes the types of the state")
        like = tools.kinds(changes) == tools.kinds(gradient)
        require(like, f"{name}: an update in optax must be like the gradient")


def _check_sparse(name: str, compressor: Any, gradients: Any, exact: bool) -> None:
    """Check bits and bytes of a first message where few entries are not zero, or one, or none."""
    keys = jax.random.split(jax.random.key(1), 3)
    for start, every in ((0, 5), (20, 1000)):
        sparse = {path: _thinned(leaf, start, every) for path, leaf in gradients.items()}
        messages = _send(_kind(compressor), compressor, sparse, *keys[:2])[0]
        gradient, message = (jax.tree.map(lambda leaf: leaf[0], t) for t in (sparse, messages))
        _check_bits(name, compressor, message)
        _check_bytes(name, compressor, gradient, message, exact)


def _thinned(leaf: jax.Array, start: int, every: int) -> jax.Array:
    """Keep one of every so many entries."""
    places = jnp.arange(leaf[0].size).reshape(leaf.shape[1:])
    return jnp.where(places % every == start, leaf, 0)


def _check_messages(name: str, compressor: Any, gradients: Any) -> Any:
    """Check what is sent, and return it."""
    kind = _kind(compressor)
    key, shared, other = jax.random.split(jax.random.key(1), 3)
    with stage(name, "under jit"):
        messages, finite = _send(kind, compressor, gradients, key, shared)
    traces = len(_TRACES)

    def send(gradients: Any, key: Any = key, shared: Any = shared) -> tuple[Any, np.ndarray]:
        found, finite = _send(kind, compressor, gradients, key, shared)
        return found, np.asarray(finite)

    require(_finite(messages).all() and finite.all(), f"{name}: a message is not finite")
    free = compressor.deterministic
    if free or compressor.shared:
        said = "another key gives another message, and it says deterministic or shared"
        require(_same(messages, send(gradients, key=other)[0]), f"{name}: {said}")
    if free or not compressor.shared:
        said = "another shared key gives another message, and it does not say shared"
        require(_same(messages, send(gradients, shared=other)[0]), f"{name}: {said}")
    zeros, finite = send(jax.tree.map(jnp.zeros_like, gradients))
    # Of one bit an entry there is no zero: such messages take turns, over an even number of steps.
    still = finite.all() and not any(np.any(np.sum(leaf, 0)) for leaf in jax.tree.leaves(zeros))
    require(still, f"{name}: messages of zeros do not add up to zero")
    for bad in (jnp.nan, -jnp.inf):
        spoilt = {path: leaf.at[BAD, ..., -1:].set(bad) for path, leaf in gradients.items()}
        sent, finite = send(spoilt)
        good = _finite(sent)
        require(not good[BAD], f"{name}: a gradient with {bad} has a finite message")
        after = finite.all() and good[np.arange(STEPS) != BAD].all()
        require(after, f"{name}: a gradient with {bad} has consequences for later ones")
    singles = [_send(kind, other, gradients, key, shared)[0] for other in tools.changed(compressor)]
    require(len(_TRACES) == traces, f"{name}: a change of a number compiles anew")
    if singles:
        stacked = tools.stack(tools.changed(compressor))
        with stage(name, "under vmap over its numbers"):
            lanes = jax.vmap(partial(_send, kind), (0, None, None, None))(
                stacked, gradients, key, shared
            )[0]
        require(_same(lanes, tools.stack(singles)), f"{name}: a message is another one under vmap")
    return messages


def _finite(messages: Any) -> np.ndarray:
    """Whether all the entries of each message are finite, b[STEPS]."""
    leaves = [np.asarray(leaf).reshape(STEPS, -1) for leaf in jax.tree.leaves(messages)]
    return np.asarray(np.isfinite(np.concatenate(leaves, axis=1)).all(1))


def _same(a: Any, b: Any) -> bool:
    return all(map(tools.close, jax.tree.leaves(a), jax.tree.leaves(b)))


@partial(jax.jit, static_argnums=0)
def _traced_bits(kind: str, compressor: Any, message: Any) -> tuple[Any, Any]:
    del kind
    return compressor.bits(message), compressor.message_bits(message)


def _check_bits(name: str, compressor: Any, message: Any) -> None:
    bits, exact = compressor.bits(message), compressor.message_bits(message)
    for number, what in ((bits, "bits"), (exact, "message_bits")):
        whole = isinstance(number, int) and number > 0
        require(whole, f"{name}: {what} must be a positive int, not {number!r}")
    require(exact <= bits, f"{name}: a message has {exact} bits, more than {bits} as declared")
    fixed = exact == bits or not compressor.sized
    require(fixed, f"{name}: a message has {exact} bits, not {bits}, and it says `sized`")
    require(compressor.bits({}) == 0, f"{name}: a gradient of nothing has bits")
    with stage(name, "when its bits are traced"):
        traced = _traced_bits(_kind(compressor), compressor, message)
    same = np.allclose(traced, (bits, exact), rtol=1e-6)
    require(same, f"{name}: bits are {(bits, exact)}, but {traced} if traced")


def _check_bytes(name: str, compressor: Any, gradient: Any, message: Any, exact: bool) -> None:
    keys = jax.random.split(jax.random.key(1), 3)
    key = jax.random.fold_in(keys[1] if compressor.shared else keys[0], 0)
    try:
        data = compressor.pack(gradient, key)
    except NotImplementedError:
        return
    count, wanted = len(data), math.ceil(compressor.message_bits(message) / 8)
    enough = count == wanted if exact else count <= wanted
    require(enough, f"{name}: a message takes {count} bytes, but {wanted} are counted")
    with stage(name, "when it reads bytes"):
        found = compressor.unpack(data, jax.tree.map(jnp.zeros_like, gradient), key)
    require(_same(found, message), f"{name}: what is read out of bytes is not what was sent")


def _arrays() -> np.ndarray:
    """Make arrays random and extreme."""
    random, d = np.random.default_rng(2), math.prod(SHAPE)
    arrays = [
        random.normal(size=d),
        np.exp(3 * random.normal(size=d)) * random.choice([-1, 1], d),
        np.ones(d),
        np.eye(1, d, 3)[0],
        2.0 ** -np.arange(d),
        np.where(np.arange(d) % 3, 0, random.normal(size=d)),
        random.normal(size=d) * 1e-12,
    ]
    return np.stack(arrays).astype(np.float32).reshape(-1, *SHAPE)


def _check_family(name: str, compressor: Any) -> None:
    arrays = _arrays()
    draws = 1 if compressor.deterministic else DRAWS
    keys = jax.random.split(jax.random.key(4), draws)

    def moments(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def once(key: jax.Array) -> jax.Array:
            return compressor.compress(compressor.array_memory(x), x, key, jnp.int32(0))[1]

        error = (jax.vmap(once)(keys) - x[None]) / jnp.linalg.norm(x)  # squares may not underflow
        return jnp.mean(error, 0), jnp.sum(jnp.square(error), (1, 2))

    with stage(name, "under vmap over arrays"):
        mean, squares = (np.asarray(found) for found in jax.jit(jax.vmap(moments))(arrays))
    error = squares.mean(1)
    margin = 1e-5 + SIGMAS * squares.std(1) / math.sqrt(draws)
    number = compressor.constant(SHAPE)
    if compressor.family == UNBIASED:
        bias = np.sqrt(np.square(mean).sum((1, 2)))
        scatter = np.maximum(error - np.square(bias), 0)
        most = bias - SIGMAS * np.sqrt(scatter / draws)
        require((most < 1e-4).all(), f"{name}: the mean of messages is not x, off by {bias.max()}")
    if number is None:
        return
    bound = 1 - number if compressor.family == CONTRACTIVE else number
    sign = "1 - delta" if compressor.family == CONTRACTIVE else "omega"
    worst = (error - margin).max()
    require(worst <= bound, f"{name}: E|C(x) - x|^2 is {worst} |x|^2, but {sign} is {bound}")
