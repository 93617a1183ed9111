"""Compiled programs of public calls: made once for what is static, kept while there is room.

XLA keeps a few hundred memory maps for each compiled program, and a process may have 65,530 of
them: beyond that the compiler dies. So each program hangs on a `jax.jit` of its own, and those that
were not used for longest are let go before the limit. Nobody else's programs are touched.
"""

from __future__ import annotations

import gc
import types
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import cache, partial
from pathlib import Path
from threading import RLock, Thread
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

MOST = 96
"""Programs that are kept, at most."""

SHARE = 0.5
"""Share of the process's memory maps, everybody's, from which on programs are let go."""

_LIMIT, _MAPS = Path("/proc/sys/vm/max_map_count"), Path("/proc/self/maps")

_kept: OrderedDict[Hashable, Any] = OrderedDict()  # the least recently used first
_lock = RLock()


def compiled(key: Hashable, make: Callable[[], Any]) -> Any:
    """Return the program of a key, made by `make` if it is not there: a `jax.jit` of its own.

    Args:
        key: all that decides what is compiled: static arguments, and the `signature` of others.
        make: returns the result of `jax.jit`. Nobody else may hold it.
    """
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
        _make_room()
        _kept[key] = made = make()
        return made


def count() -> int:
    """Return how many programs are kept."""
    return len(_kept)


def _make_room() -> None:
    """Let the older half go where there are too many: collecting garbage takes .2 s each time."""
    if len(_kept) < MOST and used_share() < SHARE:
        return
    for _ in range(-(-len(_kept) // 2)):
        _kept.popitem(last=False)[1].clear_cache()
    gc.collect()


def used_share() -> float:
    """Return the share of its memory maps that this process uses; 0 where it is not known."""
    try:
        limit = int(_LIMIT.read_text())
        with _MAPS.open("rb") as lines:
            return sum(1 for _ in lines) / limit
    except OSError:
        return 0.0


def signature(tree: Any) -> Hashable:
    """Return what decides a program of the arguments: their structure, shapes and types."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple(jax.typeof(leaf) for leaf in leaves)


def is_arrays(tree: Any) -> bool:
    """Whether every leaf of a tree can be an argument of a program."""
    numbers = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)
    return all(isinstance(leaf, numbers) for leaf in jax.tree.leaves(tree))


def is_staged() -> bool:
    """Whether this is called while a program of the caller is traced: inside `jit`, or a scan."""
    return isinstance(jnp.zeros(()), Tracer)


def is_eager() -> bool:
    """Whether this is called outside all of `jit`, `vmap` and `grad`."""
    return jax.extend.core.get_opaque_trace_state() == _outermost()


@cache
def _outermost() -> Any:
    """Return the state outside of all transformations: that of a new thread."""
    found: list[Any] = []
    ask = Thread(target=lambda: found.append(jax.extend.core.get_opaque_trace_state()))
    ask.start()
    ask.join()
    return found[0]


def power_of_two(size: int) -> int:
    """Return the least power of two that is at least the size."""
    return 1 << (size - 1).bit_length()


def ladder(size: int) -> int:
    """Return a size that is at least as large and one of few: every one to 16, then 8 an octave.

    Example:
        >>> [ladder(size) for size in (1, 13, 17, 100, 1000)]
        [1, 13, 18, 104, 1024]
    """
    unit = max(1, power_of_two(size) // 16)
    return -(-size // unit) * unit


class _Itself:
    """An object that equals itself alone. Holds it, so that no other gets its place in memory."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


def identity(thing: Any) -> Hashable:
    """Return what a function does, as a key: that of another with the same code is equal.

    Two functions are alike if they have the same code, defaults and globals, and enclose equal
    values: numbers, strings, tuples, and functions that are alike. Whatever else they enclose (an
    array, a cluster) must be the same object. So `optax.sgd(0.1)` made twice is alike.

    Example:
        >>> def scale(factor):
        ...     return lambda x: factor * x
        >>> identity(scale(2.0)) == identity(scale(2.0)), identity(scale(2)) == identity(scale(2.0))
        (True, False)
    """
    return _identity(thing, ())


def _identity(thing: Any, around: tuple[int, ...]) -> Hashable:
    if thing is None or isinstance(thing, (bool, int, float, complex, str, bytes, type)):
        return type(thing), repr(thing) if isinstance(thing, float) else thing
    if id(thing) in around:  # a function that calls itself
        return "around", around.index(id(thing))
    around = (*around, id(thing))
    if isinstance(thing, tuple):
        return type(thing), tuple(_identity(part, around) for part in thing)
    if type(thing) is partial:
        names = tuple(thing.keywords)
        parts = (thing.func, thing.args, tuple(thing.keywords.values()))
        return partial, names, _identity(parts, around)
    if isinstance(thing, types.FunctionType):
        try:
            cells = tuple(cell.cell_contents for cell in thing.__closure__ or ())
        except ValueError:  # a cell that is not filled yet
            return _Itself(thing)
        named = thing.__kwdefaults__ or {}
        parts = (cells, thing.__defaults__, tuple(named.values()))
        own = (thing.__code__, _Itself(thing.__globals__), tuple(named), _hung_on(thing))
        return *own, _identity(parts, around)
    return _Itself(thing)


def _hung_on(function: Any) -> Hashable:
    """Return what was hung on a function, such as the function that it wraps."""
    return tuple((name, _Itself(value)) for name, value in vars(function).items())
