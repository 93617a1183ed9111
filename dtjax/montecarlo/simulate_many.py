"""Many runs of the clock at once: compiled once for any number of runs, on all devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh
from jax.typing import ArrayLike

from dtjax.clock.results import Run, Summary
from dtjax.clock.simulate import Job, cut, execute, prepare, widened
from dtjax.core import checks, programs, random
from dtjax.montecarlo.sharding import count_runs, in_waves, local_mesh, spread

CACHED = 2**14
"""Workers x lanes on a CPU device whose state stays in its cache."""


def lanes(n: int, platform: str = "cpu") -> int:
    """Return how many runs of n workers a device does best side by side."""
    return max(16, min(256, CACHED // n)) if platform == "cpu" else 2**16


def simulate_runs(
    keys: jax.Array,
    cluster: Any,
    policy: Any,
    *,
    updates: Any = None,
    until: ArrayLike | None = None,
    width: int | None = None,
    rows: int | None = None,
    collect: str = "statistics",
    bins: int | None = None,
    path: str = "auto",
    block: int | None = None,
    mesh: Mesh | None = None,
    progress: Callable[[int], None] | None = None,
) -> Any:
    """Simulate many runs: `simulate` for each key, in blocks on all devices. A loop on the host.

    The same bits as `simulate` under `vmap`, whatever the block and the mesh. The numbers of the
    law compile nothing anew; nor does the number of keys within a factor of four, nor do k and the
    number of updates within a factor of two.

    Args:
        keys: key[R], one a run.
        cluster: as in `simulate`, the same for all runs.
        policy: as in `simulate`.
        updates: as in `simulate`.
        until: as in `simulate`.
        width: as in `simulate`.
        rows: as in `simulate`.
        collect: as in `simulate`, but "statistics" by default.
        bins: as in `simulate`.
        path: as in `simulate`.
        block: runs side by side on a device; None: 16, 64, 256, ... as there are runs, on CPU as
            many as its cache holds at most.
        mesh: of devices, in any shape; None: all the local ones. It need not divide the runs.
        progress: called with the number of runs done after each wave.

    Returns:
        A `Run` or a `Summary` as `simulate`, on the host, with a leading axis of runs.

    Raises:
        ValueError: as in `simulate`, and if `keys` is not a vector of keys.

    Example:
        >>> import dtjax
        >>> cluster = dtjax.Cluster(n=4, delay=dtjax.delays.exponential(1.0))
        >>> keys = jax.random.split(jax.random.key(0), 10)
        >>> many = simulate_runs(keys, cluster, dtjax.policies.asp(), updates=1000)
        >>> many.statistics.dt_mean.shape, round(float(many.statistics.dt_mean.mean()), 2)
        ((10,), 0.25)
    """
    name = "simulate_runs"
    if not random.are_keys(keys):
        shape = getattr(keys, "shape", type(keys).__name__)
        rule = "must be a vector of JAX random keys, as of jax.random.split"
        raise checks.fail(name, "keys", rule, f"shape {shape}")
    count = count_runs(name, keys)
    job, policy, until, updates = prepare(
        name,
        cluster,
        policy,
        updates=updates,
        until=until,
        width=width,
        rows=rows,
        collect=collect,
        bins=bins,
        path=path,
    )
    mesh = local_mesh() if mesh is None else mesh
    if not isinstance(mesh, Mesh):
        raise checks.fail(name, "mesh", "must be a jax.sharding.Mesh", mesh)
    if block is None:
        most = lanes(cluster.n, mesh.devices.flat[0].platform)
        block = min(most, _few(-(-count // mesh.size)))
    block = checks.integer(name, "block", block, low=1)
    shared, wide = (cluster, policy, until, updates), widened(job)
    key = (name, wide, mesh, block, programs.signature(shared), keys.shape[1:], keys.dtype)
    compiled = programs.compiled(key, lambda: _compiled(wide, mesh))
    many = in_waves(compiled, shared, (keys,), count, block, mesh, progress)
    return cut(many, job, wide)


def _few(count: int) -> int:
    """Return the least of 16, 64, 256, ... that is at least the count."""
    power = programs.power_of_two(max(16, count))
    return power if power.bit_length() % 2 else 2 * power


def _compiled(job: Job, mesh: Mesh) -> Any:
    def one(cluster: Any, policy: Any, until: Any, updates: Any, key: Any) -> Run | Summary:
        return execute(key, cluster, policy, until, updates, job)

    return spread(one, shared=4, mesh=mesh)
