"""Vectorised Monte Carlo of synchronisation in distributed SGD.

Importing this loads nothing heavy: each name brings its module when it is first used.
"""

from __future__ import annotations

import importlib
import importlib.abc
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtjax import compressors as compressors
    from dtjax import policies as policies
    from dtjax.clock.from_events import make_trace as make_trace
    from dtjax.clock.results import Run as Run
    from dtjax.clock.results import Statistics as Statistics
    from dtjax.clock.results import Summary as Summary
    from dtjax.clock.simulate import resume as resume
    from dtjax.clock.simulate import simulate as simulate
    from dtjax.clock.trace import Trace as Trace
    from dtjax.clock.trace import seconds as seconds
    from dtjax.clock.trace import staleness as staleness
    from dtjax.cluster import delays as delays
    from dtjax.cluster import network as network
    from dtjax.cluster.cluster import Cluster as Cluster
    from dtjax.cluster.transfers import transfer_table as transfer_table
    from dtjax.core import protocols as protocols
    from dtjax.core.pytree import pytree as pytree
    from dtjax.experiment.arms import Arm as Arm
    from dtjax.experiment.compare import compare as compare
    from dtjax.experiment.report import report as report
    from dtjax.montecarlo.sensitivity import sensitivity as sensitivity
    from dtjax.montecarlo.simulate_many import simulate_runs as simulate_runs
    from dtjax.training import task as task
    from dtjax.training.many_runs import train_runs as train_runs
    from dtjax.training.replay import Training as Training
    from dtjax.training.replay import replay as replay
    from dtjax.training.task import Task as Task

__version__ = "0.2.0"

_NAMES = {
    "Arm": "experiment.arms",
    "Cluster": "cluster.cluster",
    "Run": "clock.results",
    "Statistics": "clock.results",
    "Summary": "clock.results",
    "Task": "training.task",
    "Trace": "clock.trace",
    "Training": "training.replay",
    "compare": "experiment.compare",
    "make_trace": "clock.from_events",
    "pytree": "core.pytree",
    "replay": "training.replay",
    "report": "experiment.report",
    "resume": "clock.simulate",
    "seconds": "clock.trace",
    "sensitivity": "montecarlo.sensitivity",
    "simulate": "clock.simulate",
    "simulate_runs": "montecarlo.simulate_many",
    "staleness": "clock.trace",
    "train_runs": "training.many_runs",
    "transfer_table": "cluster.transfers",
}
"""What `dtjax.name` brings, and from where."""

_MODULES = {
    "codecs": "compressors.codecs",
    "collectives": "cluster.collectives",
    "compressors": "compressors",
    "data": "training.data",
    "delays": "cluster.delays",
    "models": "training.models",
    "montecarlo": "montecarlo",
    "network": "cluster.network",
    "policies": "policies",
    "protocols": "core.protocols",
    "sharing": "cluster.sharing",
    "task": "training.task",
    "testing": "testing",
    "theory": "theory",
}
"""The modules that users name: `dtjax.delays` is `dtjax.cluster.delays`."""

__all__ = [*_NAMES, *_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"dtjax.{_NAMES[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"dtjax.{_MODULES[name]}")
    raise AttributeError(f"module 'dtjax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


class _Public(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `dtjax.delays` where it is, so that `import dtjax.delays` works as `dtjax.delays`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        del path, target
        top, _, public = name.partition(".")
        public, _, rest = public.partition(".")
        if top != "dtjax" or _MODULES.get(public, public) == public:
            return None
        place = f"dtjax.{_MODULES[public]}"
        if rest:  # a second name of a file would be a second copy of its classes
            raise ModuleNotFoundError(f"no module {name!r}: it is {place}.{rest}", name=name)
        return ModuleSpec(name, self, origin=place)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(str(spec.origin))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back: the import put the name's there."""
        if module.__spec__ is not None and module.__spec__.loader is self:
            module.__spec__ = module.__spec__.loader_state


sys.meta_path.insert(0, _Public())  # before the finder of files, which would load a second copy
