"""What dtjax is timed against: the same schedules, played in other ways, without dtjax.

A peer takes a policy as four numbers, draws computation times from a recorded table or from the
exponential law of mean 1, and writes down who contributed to each update and how stale it was.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from benchmarks.peers.schedule import Many, Numbers, Peer, Play, Schedule

MODULES = {
    "numba": "numba_",
    "numba cores": "numba_",
    "simpy": "simpy_",
    "numpy": "numpy_",
    "heapq": "heapq_",
    "ciw": "ciw_",
    "sort": "sort_",
}
"""Where each peer lives; a module's `PEERS` holds it."""


@cache
def module(name: str) -> tuple[Any, str]:
    """Import a module of this package whose package may be absent or broken.

    Returns:
        The module, or None and why it cannot be had.
    """
    try:
        return import_module(f"{__name__}.{name}"), ""
    except (ImportError, OSError) as error:  # OSError: a shared library is missing
        return None, str(error)


def load(name: str) -> Peer | None:
    """Return a peer by its name in `MODULES`; None if its package is not installed."""
    found, _ = module(MODULES[name])
    return None if found is None else found.PEERS[name]


__all__ = ["MODULES", "Many", "Numbers", "Peer", "Play", "Schedule", "load", "module"]
