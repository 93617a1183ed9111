"""How many bits the indices of k of d entries take: on the host exact, in kernels as floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax import lax

from dtjax.core import checks

LARGEST_INT32 = 2**31
"""Entries that an int32 can count, from 0 on."""


def bit_length(n: Any) -> Any:
    """Compute how many binary digits n has, 0 for 0; exact below 2^32, and below 2^53 on the host.

    A logarithm is not: it may round up to the next integer just below a power of two.
    """
    if isinstance(n, jax.Array):
        return 32 - lax.clz(n.astype(jnp.uint32)).astype(jnp.int32)
    return np.frexp(np.asarray(n, np.float64))[1].astype(np.int64)


def rice_width(d: Any, k: Any) -> Any:
    """Compute the bits that the Golomb-Rice code writes of each gap as they are.

    m = floor(log2((d - k) / k)), or 0 if that is negative: 2^m is the mean gap, rounded down to a
    power of two. It follows from d and k, so that it need not be sent.
    """
    where, maximum = (
        (jnp.where, jnp.maximum) if isinstance(d, jax.Array) else (np.where, np.maximum)
    )
    return where(k > 0, bit_length(maximum((d - k) // maximum(k, 1), 1)) - 1, 0)


# Each takes d, k, and what turns an integer into a number that cannot overflow.
_LENGTHS: dict[str, Callable[[Any, Any, Callable[[Any], Any]], Any]] = {
    "int32": lambda d, k, number: 32 * number(k),
    "packed": lambda d, k, number: number(k) * bit_length(d - (d > 0)),
    "bitmap": lambda d, k, number: number(d) + 0 * number(k),
    "golomb": lambda d, k, number: (
        number(k) * (1 + rice_width(d, k)) + (k > 0) * number((d - k) >> rice_width(d, k))
    ),
}

INDEX_CODES = tuple(_LENGTHS)
"""Names of the index codes."""


def index_bits(code: str, d: Any, k: Any) -> Any:
    """Compute how many bits the indices of k of d entries take in an index code.

    "int32": 32 k; "packed": k ceil(log2 d); "bitmap": d; "golomb": at most
    k (1 + m) + floor((d - k) / 2^m) with m = max(0, floor(log2((d - k) / k))), reached if the gaps
    are multiples of 2^m and the last entry is kept. It is a bound since each gap g takes
    1 + m + floor(g / 2^m) bits, the gaps add up to d - k at most, and a sum of floors is at most
    the floor of the sum. Random sets take some k / 2 bits less: about k (log2(d / k) + 1.5).

    Args:
        code: "int32", "packed", "bitmap" or "golomb".
        d: entries, 0 or more; an integer or integers that broadcast against k.
        k: of them kept, between 0 and d; an integer, integers, or a tracer (not checked then).

    Returns:
        Bits, the broadcast shape: exact integers for integers of Python and numpy. If d or k is a
        JAX array (both below 2^31 then), default floats: exact up to 2^24 bits in float32, above
        rounded, where int32 would overflow.

    Raises:
        ValueError: if the code is unknown, k or d is out of range, or int32 cannot index d entries.

    Example:
        >>> {code: index_bits(code, 1_000_000, 10_000) for code in INDEX_CODES}
        {'int32': 320000, 'packed': 200000, 'bitmap': 1000000, 'golomb': 85468}

    Reference:
        Golomb, "Run-length encodings", IEEE Trans. Inf. Theory 12, 1966; Rice, "Some practical
        universal noiseless coding techniques", JPL 79-22, 1979. The bound is derived.
    """
    checks.choice("index_bits", "code", code, INDEX_CODES)
    limit = LARGEST_INT32 if code == "int32" else None
    d, k = _counts("index_bits", d, k, limit)
    if isinstance(k, jax.Array):
        return jnp.asarray(_LENGTHS[code](d, k, lambda n: n.astype(float)), float)
    total = _LENGTHS[code](d, k, lambda n: n)
    return total if np.ndim(total) else int(total)


def entropy_bound(d: Any, k: Any) -> Any:
    """Compute log2 C(d, k): what any code takes on average, if all sets of k of d are as likely.

    By Stirling's formula with its remainder, whose terms do not cancel: differences of log-gamma
    functions lose all digits in float32 for d = 10^8.

    Args:
        d: entries, 0 or more; an integer or integers that broadcast against k.
        k: of them kept, between 0 and d; an integer, integers, or a tracer (not checked then).

    Returns:
        Bits, the broadcast shape: default floats if d or k is a JAX array, else binary64.

    Raises:
        ValueError: if k or d is out of range.

    Example:
        >>> round(entropy_bound(1_000_000, 10_000), 1)
        80785.2

    Reference:
        Cover and Thomas, "Elements of information theory", 2006, section 5.4.
    """
    d, k = _counts("entropy_bound", d, k, None)
    if isinstance(k, jax.Array):
        return _log2_choose(jnp, jax.scipy.special, d, k, float)
    value = _log2_choose(np, scipy.special, d, k, np.float64)
    return value if np.ndim(value) else float(value)


def _counts(function: str, d: Any, k: Any, limit: int | None) -> tuple[Any, Any]:
    """Return d and k, checked: JAX arrays if one of them is one, else i64 of numpy."""
    device = isinstance(d, jax.Array) or isinstance(k, jax.Array)
    high = 2**31 - 1 if device else limit
    checks.integer(function, "d", d, high=high)
    checks.integer(function, "k", k)
    if checks.is_concrete((d, k)):
        host_d, host_k = np.asarray(d, np.int64), np.asarray(k, np.int64)
        try:
            host_d, host_k = np.broadcast_arrays(host_d, host_k)
        except ValueError:
            got = (host_k.shape, host_d.shape)
            raise checks.fail(function, "k", "must broadcast against d", got) from None
        over = host_k > host_d
        if over.any():
            bound = int(host_d[over][0])
            rule = f"must be an integer between 0 and d={bound}"
            raise checks.fail(function, "k", rule, int(host_k[over][0]))
        if not device:
            return host_d, host_k
    shape = jnp.broadcast_shapes(jnp.shape(d), jnp.shape(k))
    d, k = (jnp.broadcast_to(jnp.asarray(x, jnp.int32), shape) for x in (d, k))
    return d, k


def _log2_choose(xp: Any, special: Any, d: Any, k: Any, dtype: Any) -> Any:
    """Compute log2 C(d, k) with numpy or jax.numpy."""
    few = xp.minimum(k, d - k)  # as integers: floats would round d - k
    # The formula holds from 1 entry on; where there is none, it is asked for 1 of 2.
    some = few > 0
    n, r = (xp.where(some, x, other).astype(dtype) for x, other in ((d, 2), (few, 1)))
    rest = xp.where(some, d - few, 1).astype(dtype)
    share = r / n
    entropy = -r * xp.log(share) - rest * xp.log1p(-share)
    root = 0.5 * (xp.log(n) - xp.log(r) - xp.log(rest) - math.log(2 * math.pi))
    tails = [_stirling_remainder(xp, special, x) for x in (n, r, rest)]
    nats = entropy + root + tails[0] - tails[1] - tails[2]
    return xp.where(some, nats / math.log(2), 0.0)


def _stirling_remainder(xp: Any, special: Any, n: Any) -> Any:
    """Compute log n! - ((n + 1/2) log n - n + log(2 pi) / 2), n at least 1."""
    small = xp.minimum(n, 16.0)
    direct = special.gammaln(small + 1) - (
        (small + 0.5) * xp.log(small) - small + 0.5 * math.log(2 * math.pi)
    )
    large = xp.maximum(n, 16.0)
    series = (1 / 12 - (1 / 360 - 1 / 1260 / large**2) / large**2) / large
    return xp.where(n > 16, series, direct)
