"""What a network adds to datasets: the bits that the server has received."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import dtjax
from dtjax import network
from dtjax.analysis.dataset import bits_sent, label
from dtjax.training.result import Training


@pytest.mark.slow
def test_bits_of_many_runs() -> None:
    links = network.star(payload=80.0, bandwidth=160.0)
    delay = dtjax.delays.exponential(1.0)
    cluster = dtjax.Cluster(n=4, delay=delay, network=links)
    keys = jax.random.split(jax.random.key(0), 5)
    policy = dtjax.policies.k_asp(3, max_staleness=0)
    accounts = dtjax.simulate_runs(keys, cluster, policy, until=12.0).accounts
    bits = bits_sent(links, accounts)
    delivered = accounts.useful_count.sum(-1) + accounts.discarded_count.sum(-1) + accounts.buffered
    assert bits is not None and bits.dtype == np.float64
    assert bits.tolist() == [80.0 * count for count in delivered]
    assert accounts.discarded_count.sum() > 0 and accounts.buffered.sum() > 0


@pytest.mark.parametrize(
    "links", [network.fixed(push=1.0), network.star(payload=[80.0, 8.0], bandwidth=1.0), None]
)
def test_bits_that_are_not_known(links: network.Network | None) -> None:
    assert bits_sent(links, None) is None


@pytest.mark.parametrize("payload", [8.0, [8.0, 16.0]])
def test_labels_say_bits_only_with_a_network(payload: list[float] | float) -> None:
    links = network.star(payload=payload, bandwidth=80.0)
    cluster = dtjax.Cluster(n=2, delay=dtjax.delays.deterministic(1.0), network=links)
    run = dtjax.simulate(jax.random.key(0), cluster, dtjax.policies.asp(), updates=3)
    run = jax.tree.map(lambda leaf: np.asarray(leaf)[None], run)
    zero = np.zeros((1, 1), int)
    training = Training(zero, {}, zero, zero, np.full(1, -1), None, np.ones((1, 1)))  # ty: ignore
    assert "bits_sent" not in label(run, training)
    found = label(run, training, network=links)
    expected = 24.0 if payload == 8.0 else np.nan
    np.testing.assert_array_equal(found.bits_sent, [expected])
    assert found.bits_sent.attrs["units"] == "bit"
