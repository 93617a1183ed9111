"""A study that takes no time: sums of powers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import xarray as xr

from dtjax.core import checks
from dtjax.experiment import Analysis, Grid, OneOf, Progress, Range, Smoke, Study, main

computed: list[dict[str, Any]] = []


@dataclass(frozen=True)
class TinyPowers(Study):
    """Do powers grow?"""

    bases: Annotated[tuple[int, ...], Range(1, 99), Grid("base", ordered=True)] = (2, 3)
    """Of the powers."""
    kinds: Annotated[tuple[str, ...], OneOf(("plain", "negated")), Grid("kind")] = (
        "plain",
        "negated",
    )
    """Which sign."""
    terms: Annotated[int, Range(1, 10), Smoke(2)] = 3
    """How many powers."""
    target: Annotated[float, Range(), Analysis()] = 5.0
    """To be passed."""
    bad: str = ""
    """What a cell does wrong: an error, an interruption, or reading a setting."""

    def check(self) -> None:
        """Refuse a base of 13."""
        if 13 in self.bases:
            raise checks.fail(self.name(), "bases", "must not hold 13", self.bases)

    def compute(self, cell: dict[str, Any], progress: Progress) -> xr.Dataset:
        """Compute powers."""
        computed.append(cell)
        progress.note("powers")
        if self.bad and cell == {"base": 3, "kind": "plain"}:
            if self.bad == "error":
                raise RuntimeError("powers: too\nlarge")
            if self.bad == "interruption":
                raise KeyboardInterrupt
            print(getattr(self, self.bad))
        progress.share(0.5)
        sign = 1.0 if cell["kind"] == "plain" else -1.0
        return xr.Dataset(
            {"power": ("term", sign * cell["base"] ** np.arange(1.0, 1 + self.terms))}
        )

    def analyse(self, whole: xr.Dataset) -> xr.Dataset:
        """Find what passes the target."""
        return whole.assign(passed=(whole.power > self.target).any("term"))

    def report(self, whole: xr.Dataset) -> str:
        """Count what passes the target."""
        return f"{int(whole.passed.sum())} pass {self.target:g}"


if __name__ == "__main__":
    main(TinyPowers)
