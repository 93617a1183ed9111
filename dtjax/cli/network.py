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
    parameters: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SHAPE [SHAPE ...]")] = ()
    """Shapes of the gradient's tensors: 784x128 128; 32 bits an entry without a compressor."""
    compressor: Annotated[str | None, tyro.conf.arg(metavar="NAME[:NUMBERS]")] = None
    """What makes the payload out of --parameters: one of the compressors above."""
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


COMPRESSORS = "dtjax.compressors"


def network_of(options: NetworkOptions) -> Any:
    """Make the network; None if no option of it is given.

    Raises:
        ValueError: if an option is given without what it needs, or out of its range.
    """
    from dtjax.cluster import network
    from dtjax.core import checks

    given = {name: value for name, value in vars(options).items() if value not in (None, ())}
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
    from dtjax import compressors
    from dtjax.core import checks, expressions

    if options.compressor is not None and not options.parameters:
        rule = "must not be given without --parameters"
        raise checks.fail("simulate", "compressor", rule, options.compressor)
    if (options.payload is None) == (not options.parameters):
        rule = "must be given with one of --payload and --parameters"
        number = "none" if options.payload is None else "both"
        raise checks.fail("simulate", "bandwidth", rule, f"{number} of them")
    if options.payload is not None:
        return options.payload
    compressor = compressors.identity()
    if options.compressor is not None:
        compressor = expressions.make("simulate", "compressor", COMPRESSORS, options.compressor)
    if not compressor.sized:
        rule = "must have messages whose size does not depend on the gradient: give --payload"
        raise checks.fail("simulate", "compressor", rule, options.compressor)
    return float(compressor.bits([_tensor(text) for text in options.parameters]))


def _tensor(text: str) -> Any:
    """Return the shape of one tensor."""
    import jax

    from dtjax.core import checks

    sides = text.lower().split("x")
    if not all(side.isdecimal() and int(side) for side in sides):
        rule = "must be shapes of tensors, as 784x128, or a number of entries"
        raise checks.fail("simulate", "parameters", rule, text)
    return jax.ShapeDtypeStruct(tuple(map(int, sides)), "float32")


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
