"""`dtjax transfer-table`: how long a gradient is on the wire, by format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

CODES = "{int32,packed,bitmap,golomb}"


@dataclass(frozen=True)
class TransferTable:
    """Print how long a gradient is on the wire in each format, and on a shared ingress."""

    parameters: tuple[int, ...] = (100_000_000,)
    """Entries of the gradient; or several numbers, the sizes of its tensors."""
    bandwidth: float = 10e9
    """Bits per second."""
    senders: int = 8
    """Workers that send to one server at once."""
    tensors: int = 1
    """Number of tensors, if their sizes are not given: a scale each with --scales."""
    scales: bool = False
    """Whether quantised formats send a scale of 32 bits a tensor."""
    indices: Annotated[str, tyro.conf.arg(metavar=CODES)] = "int32"
    """Code of the indices of kept entries; for golomb its upper bound is counted."""
    kept: float = 0.01
    """Share of the entries that the sparse format keeps, above 0, at most 1."""
    overhead: float = 0.0
    """Of the protocol, as a share of the payload: 0.05 is 5 % more bits."""

    def run(self) -> None:
        """Run the command.

        Raises:
            ValueError: if an option is out of range.
        """
        from dtjax.cluster.transfers import transfer_table
        from dtjax.core import checks

        given = self.parameters
        if not given:
            raise checks.fail("transfer_table", "parameters", "must hold a number", given)
        table = transfer_table(
            given[0] if len(given) == 1 else given,
            bandwidth=self.bandwidth,
            senders=self.senders,
            tensors=self.tensors,
            scales=self.scales,
            indices=self.indices,
            kept=self.kept,
            overhead=self.overhead,
        )
        print(table)
