"""Many runs: in blocks of a fixed width, on all devices, with progress.

Matrix products round differently at another width of `vmap`. So runs go in blocks of `block` lanes,
the last one padded, each block whole on one device: the bits of a run depend neither on how many
runs there are nor on how many devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from dtjax.core import checks, programs


def local_mesh() -> Mesh:
    """Return the mesh of all local devices, in one row."""
    devices = jax.local_devices()
    return jax.make_mesh((len(devices),), ("runs",), axis_types=(AxisType.Auto,), devices=devices)


def _runs(mesh: Mesh) -> PartitionSpec:
    """Return how a leading axis of runs lies on a mesh: along all of its axes."""
    return PartitionSpec(mesh.axis_names)


def spread(
    function: Callable[..., Any],
    *,
    shared: int = 0,
    donate: int | None = None,
    mesh: Mesh | None = None,
) -> Any:
    """Compile a function of one run for a wave of runs: one block on each device.

    Args:
        function: of one run; pure.
        shared: how many leading arguments are the same for all runs; the others have a leading axis
            of devices x block.
        donate: the argument whose memory may be used for the result.
        mesh: of devices, in any shape; None: all the local ones.

    Returns:
        A compiled function of the same arguments.
    """
    mesh = local_mesh() if mesh is None else mesh

    def wave(*args: Any) -> Any:
        common, own = args[:shared], args[shared:]

        def block(common: Any, own: Any) -> Any:
            return jax.vmap(lambda *mine: function(*common, *mine))(*own)

        specs = (PartitionSpec(), _runs(mesh))
        return jax.shard_map(
            block, mesh=mesh, in_specs=specs, out_specs=_runs(mesh), check_vma=False
        )(common, own)

    return jax.jit(wave, donate_argnums=() if donate is None else donate)


def waves(count: int, block: int, devices: int | None = None) -> Iterator[tuple[np.ndarray, int]]:
    """Cut runs 0..count-1 into waves: (indices, how many of them are real); padding repeats a run.

    Args:
        count: runs.
        block: lanes a device.
        devices: how many; None: all the local ones.
    """
    width = block * (len(jax.local_devices()) if devices is None else devices)
    for first in range(0, count, width):
        index = np.minimum(np.arange(first, first + width), count - 1)
        yield index, min(width, count - first)


def put(tree: Any, index: np.ndarray, mesh: Mesh | None = None) -> Any:
    """Take some runs of a batch, and lay a block of them on each device of the mesh."""
    mesh = local_mesh() if mesh is None else mesh
    place = NamedSharding(mesh, _runs(mesh))

    def take(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            data = np.asarray(jax.random.key_data(leaf))[index]
            data = jax.device_put(data, place)
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
        return jax.device_put(np.asarray(leaf)[index], place)

    return jax.tree.map(take, tree)


def join(parts: list[Any]) -> Any:
    """Put the results of waves together on the host."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def real_runs(tree: Any, count: int) -> Any:
    """Take the results of the first runs to the host."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:count], tree)


def map_runs(
    function: Callable[..., Any],
    *args: Any,
    block: int = 32,
    mesh: Mesh | None = None,
    progress: Callable[[int], None] | None = None,
) -> Any:
    """Map a function of one run over many, in blocks on all devices.

    A function is compiled once for a block and a mesh, however many runs there are; so is one that
    is written anew at each call, as long as what it encloses is the same (`programs.identity`).

    Args:
        function: of one run; pure, with results that are pytrees of arrays without keys.
        args: pytrees with a leading axis of runs.
        block: lanes a device.
        mesh: of devices; None: all the local ones. It need not divide the runs.
        progress: called with the number of runs done after each wave.

    Returns:
        The results on the host, with a leading axis of runs.

    Raises:
        ValueError: if there is no run, or arguments disagree on how many there are.

    Example:
        >>> map_runs(lambda x: x * 2.0, np.arange(5.0)).tolist()
        [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    count = count_runs("map_runs", args)
    mesh = local_mesh() if mesh is None else mesh
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), _typed(args))
    key = ("map_runs", programs.identity(function), mesh, block, programs.signature(one))
    compiled = programs.compiled(key, lambda: spread(function, mesh=mesh))
    return in_waves(compiled, (), args, count, block, mesh, progress)


def _typed(args: Any) -> Any:
    """Return arguments whose leaves all have shapes and types."""
    return jax.tree.map(lambda leaf: leaf if hasattr(leaf, "dtype") else np.asarray(leaf), args)


def in_waves(
    compiled: Any,
    shared: tuple[Any, ...],
    args: tuple[Any, ...],
    count: int,
    block: int,
    mesh: Mesh | None,
    progress: Callable[[int], None] | None,
) -> Any:
    """Call what `spread` compiled on wave after wave, and put the results together on the host."""
    devices = None if mesh is None else mesh.size
    whole: Any = None
    for index, real in waves(count, block, devices):
        with jax.set_mesh(local_mesh() if mesh is None else mesh):  # the user's may be another
            wave = compiled(*shared, *put(args, index, mesh))
        if whole is None:  # once, so that the results never lie in memory twice
            whole = jax.tree.map(lambda leaf: np.empty((count, *leaf.shape[1:]), leaf.dtype), wave)

        def keep(all_: np.ndarray, leaf: Any, first: int = index[0], real: int = real) -> None:
            all_[first : first + real] = np.asarray(leaf)[:real]

        jax.tree.map(keep, whole, wave)
        if progress is not None:
            progress(real)
    return whole


def count_runs(name: str, args: Any) -> int:
    """Return how many runs there are: the leading axis that all arguments share."""
    counts = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(args)}
    if len(counts) != 1 or counts & {(), (0,)}:
        rule = "must have one leading axis of runs, the same in all"
        raise checks.fail(name, "args", rule, sorted(counts))
    return counts.pop()[0]
