"""Several numbers a worker in one flat table, f[C n] or i[C n], field after field.

One look-up and one write a worker, while a field of all the workers is one contiguous slice.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp


class Layout:
    """Where the fields of a NamedTuple lie in a table: the only place that knows.

    Args:
        fields: the NamedTuple's class.
        wide: how many numbers a worker has in a field that has an axis of its own; others have one.

    Example:
        >>> from typing import NamedTuple
        >>> class Pair(NamedTuple):
        ...     step: jax.Array
        ...     read: jax.Array
        >>> layout = Layout(Pair)
        >>> table = layout.join(Pair(jnp.array([5, 6, 7]), jnp.array([1, 2, 3])))
        >>> layout.row(table, jnp.int32(2))
        Pair(step=Array(7, dtype=int32), read=Array(3, dtype=int32))
    """

    def __init__(self, fields: Any, wide: dict[str, int] | None = None) -> None:
        """Lay the fields out."""
        self.fields = fields
        self.wide = wide or {}
        counts = [self.wide.get(name, 1) for name in fields._fields]
        self.ends = dict(zip(fields._fields, accumulate(counts), strict=True))
        self.count = sum(counts)

    def columns(self, table: jax.Array) -> Any:
        """Return the fields of all the workers, each [..., n] or [..., C, n]."""
        return self._split(table, table.shape[-1] // self.count, one=False)

    def column(self, table: jax.Array, name: str) -> jax.Array:
        """Return one field that has one number a worker, [..., n]."""
        n, end = table.shape[-1] // self.count, self.ends[name]
        return table[..., n * (end - 1) : n * end]

    def row(self, table: jax.Array, index: jax.Array) -> Any:
        """Return the fields of one worker, each [] or [C]."""
        return self._split(self.first(table, index, self.count), 1, one=True)

    def first(self, table: jax.Array, index: jax.Array, count: int) -> jax.Array:
        """Return one worker's numbers in the first fields, [count]."""
        n = table.shape[0] // self.count
        return table[index + n * jnp.arange(count, dtype=jnp.int32)]

    def number(self, table: jax.Array, name: str, index: jax.Array) -> jax.Array:
        """Return one worker's number in a field that has one, []."""
        n = table.shape[0] // self.count
        return table[index + n * (self.ends[name] - 1)]

    def join(self, fields: Any) -> jax.Array:
        """Return the table of these fields, each [n] or [C, n]; or one worker's row."""
        return jnp.concatenate([field.reshape(-1) for field in fields])

    def put(self, table: jax.Array, index: jax.Array, fields: Any) -> jax.Array:
        """Set the fields of one worker; index n sets nothing."""
        n = table.shape[0] // self.count
        places = index + n * jnp.arange(self.count, dtype=jnp.int32)
        places = jnp.where(index < n, places, table.shape[0])
        return table.at[places].set(self.join(fields), mode="drop")

    def put_column(self, table: jax.Array, name: str, values: jax.Array) -> jax.Array:
        """Set one field of all the workers, [n]."""
        n, end = table.shape[0] // self.count, self.ends[name]
        return table.at[n * (end - self.wide.get(name, 1)) : n * end].set(values.reshape(-1))

    def _split(self, table: jax.Array, n: int, *, one: bool) -> Any:
        """Take a table of n workers apart; `one`: without the axis of the workers."""
        parts = jnp.split(table, [n * end for end in self.ends.values()][:-1], axis=-1)
        shapes = [(self.wide[name],) if name in self.wide else () for name in self.ends]
        workers = () if one else (n,)
        batch = table.shape[:-1]
        return self.fields(
            *(
                part.reshape(*batch, *shape, *workers)
                for part, shape in zip(parts, shapes, strict=True)
            )
        )
