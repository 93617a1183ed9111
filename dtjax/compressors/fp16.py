"""IEEE binary16."""

from __future__ import annotations

from dtjax.compressors._floats import Floats


def fp16() -> Floats:
    """Round to IEEE binary16.

    |C(x) - x| <= 2^-11 |x| from 6.1e-5 to 65504. Below, spaced by 6.0e-8, numbers vanish at
    3.0e-8; from 65520 on they become infinite, which a run reports as it does a divergence. So
    the family is NEITHER, although |C(x) - x| <= |x| wherever nothing overflows. 16 bits an entry.

    Example:
        >>> import jax.numpy as jnp
        >>> fp16().compress((), jnp.array([1.0, 65519.0, 65520.0]), None, 0)[1].tolist()
        [1.0, 65504.0, inf]

    Reference:
        IEEE 754-2008; Micikevicius et al., "Mixed precision training", ICLR 2018.
    """
    return Floats("float16")


EXAMPLE = fp16
