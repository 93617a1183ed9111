"""Many runs: the same bits in any block and on any mesh, one compile, clear errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import dtjax
from dtjax import delays
from dtjax.core import programs
from path_cases import POLICIES

KEYS = jax.random.split(jax.random.key(3), 11)
CLUSTER = dtjax.Cluster(n=9, delay=delays.exponential(1.0, shift=0.2))


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(a: Any, b: Any) -> None:
    for x, y in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.bits
@pytest.mark.parametrize("name", ["k-batch-asp", "k-batch-bsp", "ssp", "k-bsp"])
def test_the_block_changes_no_bit(name: str) -> None:
    """The compiler sums in another order, and fuses otherwise, for another number of lanes."""
    whole, single = (
        dtjax.simulate_runs(KEYS, CLUSTER, POLICIES[name], updates=300, until=90.0, block=block)
        for block in (None, 1)
    )
    same(whole, single)


def played() -> list[np.ndarray]:
    """Return the bits of a few policies."""
    jobs = (("ssp", "statistics"), ("k-bsp", "seconds"), ("k-asp", "trace"))
    runs = [
        dtjax.simulate_runs(KEYS, CLUSTER, POLICIES[name], updates=100, until=60.0, collect=kept)
        for name, kept in jobs
    ]
    return leaves(runs)


def write(path: str) -> None:
    """Save the bits: what `test_devices_and_meshes_change_no_bit` runs elsewhere."""
    mesh = jax.make_mesh((2, 4), ("rack", "board"), axis_types=2 * (jax.sharding.AxisType.Auto,))
    grid = dtjax.simulate_runs(KEYS, CLUSTER, POLICIES["ssp"], updates=100, mesh=mesh, block=1)
    pair = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    two = dtjax.simulate_runs(KEYS, CLUSTER, POLICIES["ssp"], updates=100, mesh=pair)
    same(grid, two)
    np.savez(path, *played())


@pytest.mark.bits
def test_devices_and_meshes_change_no_bit(tmp_path: Path) -> None:
    """Eight devices in a row, a grid of 2 x 4 and a mesh of two of them; 11 runs, which is odd."""
    path = tmp_path / "bits.npz"
    program = f"""
import jax
jax.config.update("jax_num_cpu_devices", 8)
import test_simulate_many
assert len(jax.local_devices()) == 8
test_simulate_many.write({str(path)!r})
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    with np.load(path) as there:
        for a, b in zip(played(), there.values(), strict=True):
            np.testing.assert_array_equal(a, b)


def test_numbers_and_counts_compile_nothing_anew() -> None:
    def play(mean: float, count: int, updates: int) -> None:
        cluster = dtjax.Cluster(n=4, delay=delays.exponential(mean))
        dtjax.simulate_runs(KEYS[:count], cluster, POLICIES["asp"], updates=updates, block=4)

    play(1.0, 4, 65)
    before = programs.count()
    for mean, count, updates in ((2.0, 4, 100), (0.5, 11, 128)):
        play(mean, count, updates)
        assert programs.count() == before


def test_progress_counts_real_runs() -> None:
    seen: list[int] = []
    dtjax.simulate_runs(KEYS, CLUSTER, POLICIES["asp"], updates=4, block=4, progress=seen.append)
    assert sum(seen) == len(KEYS)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"keys": jax.random.key(0)}, "simulate_runs: keys must be a vector of JAX random keys"),
        ({"keys": KEYS[:0]}, "simulate_runs: keys must be a vector of JAX random keys"),
        ({"keys": np.arange(3)}, "simulate_runs: keys must be a vector of JAX random keys"),
        ({"block": 0}, "simulate_runs: block must be"),
        ({"updates": 0}, "simulate_runs: updates must be"),
        ({"collect": "some"}, "simulate_runs: collect must be one of"),
    ],
)
def test_bad_input(wrong: dict[str, Any], message: str) -> None:
    usual = {"keys": KEYS, "cluster": CLUSTER, "policy": POLICIES["asp"], "updates": 3}
    given: dict[str, Any] = usual | wrong
    with pytest.raises(ValueError, match=message):
        dtjax.simulate_runs(**given)
