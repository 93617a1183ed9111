"""The command line: its commands, one file each."""

from __future__ import annotations

from typing import Annotated, Any

import tyro

from dtjax.cli import simulate, transfers, version
from dtjax.cli.simulate import policy_of as policy_of  # studies take it from here


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and run it."""
    commands: Any = Annotated[
        Annotated[
            simulate.Simulate,
            tyro.conf.subcommand("simulate", description=simulate.description()),
        ]
        | Annotated[transfers.TransferTable, tyro.conf.subcommand("transfer-table")]
        | Annotated[version.Version, tyro.conf.subcommand("version")],
        tyro.conf.arg(name=""),
    ]
    tyro.cli(commands, prog="dtjax", args=arguments).run()
