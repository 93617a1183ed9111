"""`dtjax version`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Version:
    """Print the version."""

    def run(self) -> None:
        """Run the command."""
        import dtjax

        print(dtjax.__version__)
