"""`Cluster`: a class that checks what a user gives, and a pytree that takes any leaves."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dtjax
from dtjax import delays, network

CLUSTER: dict[str, Any] = {"n": 3, "delay": delays.exponential(1.0)}


def test_cluster_is_a_class() -> None:
    cluster = dtjax.Cluster(**CLUSTER, examples=4)
    assert isinstance(cluster, dtjax.Cluster)
    assert cluster.examples.tolist() == [4, 4, 4]
    assert cluster.present is None and cluster.network is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        cluster.n = 4  # ty: ignore[invalid-assignment]


def test_unflattening_a_cluster_checks_nothing() -> None:
    cluster = dtjax.Cluster(**CLUSTER, present=[True, False, True])
    shapes = jax.eval_shape(lambda: cluster)
    assert isinstance(shapes, dtjax.Cluster) and shapes.examples.shape == (3,)
    odd = jax.tree.map(lambda leaf: "not a number", cluster)
    assert odd.present == odd.delay.scale == "not a number"


def test_a_cluster_passes_through_jit_vmap_and_pickle() -> None:
    cluster = dtjax.Cluster(**CLUSTER, network=network.fixed(push=0.5))
    same = jax.jit(lambda c: c)(cluster)
    assert isinstance(same, dtjax.Cluster) and same.n == 3

    @jax.vmap
    def means(mean: Any) -> Any:
        return dtjax.Cluster(3, delays.exponential(mean), examples=mean).delay.mean()

    assert means(jnp.array([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert jax.tree.structure(pickle.loads(pickle.dumps(cluster))) == jax.tree.structure(cluster)


@pytest.mark.parametrize("replace", [dtjax.Cluster.replace, dataclasses.replace])
def test_replace_checks_the_new_arguments(replace: Any) -> None:
    cluster = dtjax.Cluster(**CLUSTER, examples=[1.0, 2.0, 3.0])
    other = replace(cluster, delay=delays.deterministic(2.0))
    assert isinstance(other, dtjax.Cluster) and float(other.delay.seconds) == 2.0
    assert np.array_equal(other.examples, cluster.examples)
    with pytest.raises(ValueError, match=r"Cluster: examples must have shape \(\) or \(5,\)"):
        replace(cluster, n=5)
    with pytest.raises(ValueError, match="Cluster: delay must be a law with init and draw"):
        replace(cluster, delay=1.0)
    with pytest.raises(ValueError, match="Cluster: network must be a network with push_seconds"):
        replace(cluster, network=1.0)
