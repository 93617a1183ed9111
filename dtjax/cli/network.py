"""The options of `dtjax simulate` that link the workers to servers, and what it prints of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import tyro


@dataclass(frozen=True)
class NetworkOptions:
    """What bytes and the server cost; nothing, if none of these is given."""

    bandwidth: float | None = None
    """Of a server's ingress, bits a second: 10e9."""
    payload: float | None = None
    """Bits of a gradient as it is sent: 3.2e9. In its place --parameters, with --compressor."""
    parameters: int | None = None
    """Entries of the gradient, as one tensor; 32 bits each if there is no compressor."""
    compressor: Annotated[str | None, tyro.conf.arg(metavar="NAME[:NUMBER]")] = None
    """What makes the payload out of --parameters: identity, fp16, bf16, fp8, int8, natural,
    terngrad, one-bit, scaled-sign, majority-sign, qsgd:LEVELS, top-k:SHARE, random-k:SHARE."""
    servers: int | None = None
    """Servers with an equal part of the model and an ingress each; 1 if not given."""
    latency: float | None = None
    """Seconds that a gradient is in the air; a pull, too, if it is not free."""
    pull: float | None = None
    """Bits of the model that a worker pulls before it computes; free if not given."""
    fold: float | None = None
    """Seconds of the server for each gradient."""
    apply: float | None = None
    """Seconds of the server for each update."""
    encode: float | None = None
    """Seconds in which a worker compresses; they count as computing."""


# The number that a compressor takes: how the help calls it, an example, its type.
LEVELS, SHARE = ("LEVELS", "4", int), ("SHARE", "0.01", float)
COMPRESSORS: dict[str, tuple[str, str, type] | None] = {
    "identity": None,
    "fp16": None,
    "bf16": None,
    "fp8": None,
    "int8": None,
    "natural": None,
    "terngrad": None,
    "one-bit": None,
    "scaled-sign": None,
    "majority-sign": None,
    "qsgd": LEVELS,
    "top-k": SHARE,
    "random-k": SHARE,
}
UNSIZED = ("power-sgd", "threshold", "dgc", "ef21")
"""Compressors whose payload is not decided by the number of entries."""


def compressor_of(text: str) -> Any:
    """Make a compressor from NAME or NAME:NUMBER.

    Raises:
        ValueError: if the name is unknown, or the number missing, unwanted or out of its range.

    Example:
        >>> import jax
        >>> compressor_of("top-k:0.01").bits(jax.ShapeDtypeStruct((1000,), "float32"))
        640
    """
    from dtjax import compressors
    from dtjax.core import checks

    name, colon, number = text.partition(":")
    if name in UNSIZED:
        rule = "must have a size that follows from the number of parameters: give --payload"
        raise checks.fail("simulate", "compressor", rule, text)
    checks.choice("simulate", "compressor", name, COMPRESSORS)
    factory, wants = getattr(compressors, name.replace("-", "_")), COMPRESSORS[name]
    if wants is None:
        if colon:
            raise checks.fail("simulate", "compressor", f"must be {name} without a number", text)
        return factory()
    word, example, kind = wants
    try:
        value = kind(number)
    except ValueError:
        rule = f"must be {name}:{word}, as {name}:{example}"
        raise checks.fail("simulate", "compressor", rule, text) from None
    return factory(value)


def network_of(options: NetworkOptions) -> Any:
    """Make the network; None if no option of it is given.

    Raises:
        ValueError: if an option is given without what it needs, or out of its range.
    """
    from dtjax.cluster import network
    from dtjax.core import checks

    given = {name: value for name, value in vars(options).items() if value is not None}
    if not given:
        return None
    if options.bandwidth is None:
        for name in ("payload", "parameters", "compressor", "servers", "pull"):
            if name in given:
                rule = "must not be given without --bandwidth"
                raise checks.fail("simulate", name, rule, given[name])
        return network.fixed(**given)
    payload = _payload(options)
    for name in ("payload", "parameters", "compressor"):
        given.pop(name, None)
    return network.star(payload=payload, **given)


def _payload(options: NetworkOptions) -> float:
    """Return the bits of a gradient."""
    import jax

    from dtjax import compressors
    from dtjax.core import checks

    if options.compressor is not None and options.parameters is None:
        rule = "must not be given without --parameters"
        raise checks.fail("simulate", "compressor", rule, options.compressor)
    if (options.payload is None) == (options.parameters is None):
        rule = "must be given with one of --payload and --parameters"
        number = "none" if options.payload is None else "both"
        raise checks.fail("simulate", "bandwidth", rule, f"{number} of them")
    if options.payload is not None:
        return options.payload
    entries = checks.integer("simulate", "parameters", options.parameters, low=1)
    compressor = compressors.identity()
    if options.compressor is not None:
        compressor = compressor_of(options.compressor)
    return float(compressor.bits(jax.ShapeDtypeStruct((entries,), "float32")))


FATES = ("communicating", "queueing")
"""What the accounts print besides, where there is a network."""


def sums(network: Any, accounts: Any) -> list[list[Any]]:
    """Return the lines that a network adds to what is printed of one run."""
    from dtjax.analysis.dataset import bits_sent

    if network is None:
        return []
    lines = [[f"{fate} seconds, share", float(accounts.share(fate))] for fate in FATES]
    bits = bits_sent(network, accounts)
    if bits is not None:
        lines.append(["bytes of a gradient", float(network.payload[-1]) / 8])
        lines.append(["bytes of the delivered gradients", float(bits) / 8])
    return lines
