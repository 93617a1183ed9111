"""Vectorised Monte Carlo of synchronisation in distributed SGD.

Importing this loads nothing heavy: each name brings its module when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtjax import compressors as compressors
    from dtjax import delays as delays
    from dtjax import network as network
    from dtjax import policies as policies
    from dtjax import task as task
    from dtjax.batches import simulate_runs as simulate_runs
    from dtjax.clock import resume as resume
    from dtjax.clock import simulate as simulate
    from dtjax.cluster import Cluster as Cluster
    from dtjax.results import Run as Run
    from dtjax.results import Statistics as Statistics
    from dtjax.results import Summary as Summary
    from dtjax.sensitivities import sensitivity as sensitivity
    from dtjax.task import Task as Task
    from dtjax.traces import make_trace as make_trace
    from dtjax.trainer import Training as Training
    from dtjax.trainer import replay as replay
    from dtjax.transfers import transfer_table as transfer_table
    from dtjax.trees import pytree as pytree
    from dtjax.types import Trace as Trace
    from dtjax.types import seconds as seconds
    from dtjax.types import staleness as staleness

__version__ = "0.1.0"

_NAMES = {
    "Cluster": "dtjax.cluster",
    "Run": "dtjax.results",
    "Statistics": "dtjax.results",
    "Summary": "dtjax.results",
    "Trace": "dtjax.types",
    "Task": "dtjax.task",
    "Training": "dtjax.trainer",
    "make_trace": "dtjax.traces",
    "pytree": "dtjax.trees",
    "replay": "dtjax.trainer",
    "resume": "dtjax.clock",
    "seconds": "dtjax.types",
    "sensitivity": "dtjax.sensitivities",
    "simulate": "dtjax.clock",
    "simulate_runs": "dtjax.batches",
    "staleness": "dtjax.types",
    "transfer_table": "dtjax.transfers",
}
_MODULES = (
    "codecs",
    "collectives",
    "compressors",
    "data",
    "delays",
    "fleet",
    "models",
    "montecarlo",
    "network",
    "policies",
    "sharing",
    "task",
    "testing",
    "theory",
)

__all__ = [*_NAMES, *_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"dtjax.{name}")
    raise AttributeError(f"module 'dtjax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
