"""What a simulation gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from dtjax.clock.accounting import Accounts
from dtjax.clock.state import Clock
from dtjax.clock.statistics import Statistics
from dtjax.clock.status import EXHAUSTED, STATUS, STUCK, UNTIL
from dtjax.clock.trace import Trace
from dtjax.core.pytree import pytree


@pytree
@dataclass(frozen=True)
class Run:
    """What a simulation gives that keeps its trace; batches of runs have leading axes."""

    trace: Trace
    accounts: Accounts
    status: jax.Array  # i[] why the run stopped: see `dtjax.clock.status.STATUS`
    clock: Clock  # to go on from: `resume`

    def check(self, *, complete: bool = False) -> Run:
        """Raise if a run stopped for a reason that its user did not ask for; else return it.

        Args:
            complete: also raise if a run stopped at `until`: for callers who need every row.

        Raises:
            RuntimeError: naming the first such run, why it stopped and at which update.
        """
        _check(self.status, self.clock.version, complete)
        return self


@pytree
@dataclass(frozen=True)
class Summary:
    """What a simulation gives without its trace; batches of runs have leading axes.

    Attributes:
        accounts: `Accounts`, seconds of each worker by fate; None where rounds were drawn as order
            statistics.
        status: i[], why the run stopped: see `dtjax.clock.status.STATUS`.
        statistics: `Statistics`, if collected.
        dt: f[T], seconds of each update, 0 for those not made, if collected.
    """

    accounts: Any
    status: jax.Array
    statistics: Any = None
    dt: Any = None

    def check(self, *, complete: bool = False) -> Summary:
        """As `Run.check`."""
        updates = (np.asarray(self.dt) > 0).sum(-1) if self.dt is not None else None
        _check(self.status, updates if updates is not None else self.accounts.updates, complete)
        return self


def _check(status: Any, version: Any, complete: bool) -> None:
    bad = (EXHAUSTED, STUCK, UNTIL) if complete else (EXHAUSTED, STUCK)
    status = np.atleast_1d(np.asarray(status))
    found = np.argwhere(np.isin(status, bad))
    if len(found):
        place = tuple(int(i) for i in found[0])
        made = int(np.atleast_1d(np.asarray(version))[place])
        name = place[0] if len(place) == 1 else place
        reason = STATUS[int(status[place])]
        raise RuntimeError(f"run {name} stopped at update {made}: {reason}")


__all__ = ["Accounts", "Run", "Statistics", "Summary"]
