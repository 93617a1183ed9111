"""What the benchmarks share: compiling over devices, timing by turns, naming the machine."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

PACKAGES = ("dtjax", "jax", "numpy", "numba", "simpy", "ciw", "torch")


def compiled(
    function: Callable[..., Any], devices: list[jax.Device], *arguments: Any
) -> tuple[Callable[[], Any], float]:
    """Compile function(runs' keys, others), its runs spread over devices.

    By `shard_map`, so that a device asks its own runs alone whether they are over.

    Returns:
        A call that waits for the result, and the seconds of tracing and compiling.
    """
    mesh = Mesh(np.asarray(devices), ("runs",), axis_types=(AxisType.Auto,))
    runs, all_ = PartitionSpec("runs"), PartitionSpec()
    split = jax.shard_map(
        function, mesh=mesh, in_specs=(runs, all_), out_specs=runs, check_vma=False
    )
    places = (NamedSharding(mesh, runs), NamedSharding(mesh, all_))
    arguments = jax.device_put(arguments, places)
    begin = time.perf_counter()
    call = jax.jit(split).lower(*arguments).compile()
    return lambda: jax.block_until_ready(call(*arguments)), time.perf_counter() - begin


def best(
    calls: dict[str, Callable[[], Any]], repeats: int, deadline: float = math.inf
) -> dict[str, float]:
    """Return the least seconds of each call, the calls by turns, after one that does not count.

    Args:
        calls: what to time.
        repeats: how many turns; fewer, but one at least, if the deadline comes.
        deadline: a reading of `time.perf_counter`.
    """
    seconds = dict.fromkeys(calls, math.inf)
    for call in calls.values():
        call()
    for turn in range(repeats):
        if turn and time.perf_counter() > deadline:
            break
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            seconds[name] = min(seconds[name], time.perf_counter() - begin)
    return seconds


def busy(call: Callable[[], Any], least: float = 0.2) -> float:
    """Return how many cores of this process a call keeps busy: its CPU seconds in wall seconds.

    Args:
        call: what to measure.
        least: seconds through which it is called again, since clocks of CPU time are coarse.
    """
    wall, cpu = time.perf_counter(), time.process_time()
    while (seconds := time.perf_counter() - wall) < least or seconds == 0.0:
        call()
    return (time.process_time() - cpu) / seconds


def accelerated() -> bool:
    """Whether the default devices are something else than CPUs."""
    return jax.devices()[0].platform != "cpu"


def machine() -> dict[str, Any]:
    """Describe the machine and the versions."""

    def release(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    return {
        "processor": platform.machine(),
        "cores": cores(),
        "devices": [device.device_kind for device in jax.devices()],
        "python": platform.python_version(),
        **{name: release(name) for name in PACKAGES},
    }


def cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
