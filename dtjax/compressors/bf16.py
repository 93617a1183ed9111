"""bfloat16: the range of binary32 in 16 bits."""

from __future__ import annotations

from dtjax.compressors._floats import Floats


def bf16() -> Floats:
    """Round to bfloat16: the range of binary32 with 8 bits.

    |C(x) - x| <= 2^-8 |x| for normal numbers, delta = 1 - 2^-16. 16 bits an entry. Above 3.39e38
    numbers become infinite.

    Example:
        >>> import jax.numpy as jnp
        >>> bf16().compress((), jnp.array([1.0, 1.01]), None, 0)[1].tolist()
        [1.0, 1.0078125]

    Reference:
        Kalamkar et al., "A study of BFLOAT16 for deep learning training", 2019.
    """
    return Floats("bfloat16")


EXAMPLE = bf16
