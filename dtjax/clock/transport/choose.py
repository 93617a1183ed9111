"""Which transport a network needs."""

from __future__ import annotations

from dtjax.clock.transport.form import Transport
from dtjax.clock.transport.instant import Instant
from dtjax.clock.transport.ordered import Ordered
from dtjax.clock.transport.queued import Queued
from dtjax.clock.transport.sharded import Sharded
from dtjax.core.protocols import Network


def transport_of(network: Network | None, *, traced: bool = True) -> Transport:
    """Choose the form of transport, by what is static of a cluster's network.

    Args:
        network: `cluster.network`; None: bytes cost nothing.
        traced: whether a trace keeps the ways of the gradients.
    """
    return Instant() if network is None else queued(network, traced=traced)


def queued(network: Network, *, traced: bool = True) -> Queued:
    """Choose among the forms that have queues."""
    form = Ordered if network.ordered else Sharded
    return form(network, traced=traced)
