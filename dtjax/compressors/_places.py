"""How many bits the places of some entries take, not only their number."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dtjax.compressors import codecs
from dtjax.compressors.codecs.lengths import rice_width
from dtjax.core import checks


def places_size(code: str, kept: jax.Array) -> Any:
    """Count the bits that say which entries are kept: `codecs.index_bits`, but never a bound.

    Args:
        code: as in `dtjax.codecs.index_bits`.
        kept: b[d].

    Returns:
        What `dtjax.codecs.write_indices` writes: an int; f[] if `kept` is traced.

    Example:
        >>> places_size("golomb", jnp.arange(4) < 2), codecs.index_bits("golomb", 4, 2)
        (2, 4)
    """
    if checks.is_concrete(kept):
        places = np.flatnonzero(kept)
        if code == "golomb":
            return len(codecs.write_indices(code, places, kept.size))
        return codecs.index_bits(code, kept.size, len(places))
    many = jnp.sum(kept, dtype=jnp.int32)
    if code != "golomb":
        return codecs.index_bits(code, kept.size, many)
    at = jnp.arange(kept.size, dtype=jnp.int32)
    latest = lax.cummax(jnp.where(kept, at, -1))
    gaps = at - jnp.concatenate([jnp.full(1, -1, jnp.int32), latest[:-1]]) - 1
    width = rice_width(jnp.int32(kept.size), many)
    return jnp.sum(jnp.where(kept, 1 + width + (gaps >> width), 0).astype(float))
