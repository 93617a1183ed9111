"""Collectives against schedules played step by step.

The oracles move data as well as time: a schedule that left a worker without the sum would be no
all-reduce.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dtjax import collectives

LATENCY, BANDWIDTH, BITS, REDUCE = 0.25, 8.0, 96.0, 3.0
WORKERS = [*range(1, 18), 31, 32, 33]


class Network:
    """Workers with a clock each; a message costs both ends the latency and bits / bandwidth."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.clock = [0.0] * n
        self.data = [{i} for i in range(n)]  # whose payload each has in its sum

    def step(self, pairs: list[tuple[int, int]], adds: bool) -> None:
        """Send whole payloads from one to the other of each pair, all at the same time."""
        before = [set(d) for d in self.data]
        started = list(self.clock)
        for sender, receiver in pairs:
            arrival = max(started[sender], started[receiver]) + LATENCY + BITS / BANDWIDTH
            self.clock[sender] = max(self.clock[sender], arrival)
            self.clock[receiver] = max(self.clock[receiver], arrival + REDUCE * adds)
            if adds:
                assert not before[sender] & before[receiver], "added twice"
                self.data[receiver] |= before[sender]
            else:
                self.data[receiver] = before[sender]

    def finish(self) -> float:
        assert all(d == set(range(self.n)) for d in self.data)
        return max(self.clock)


def ring(n: int) -> float:
    """Play reduce-scatter and all-gather: chunk by chunk, every worker to the next."""
    has = [[{w} for _ in range(n)] for w in range(n)]  # [worker][chunk]: whose are in the sum
    now = 0.0
    for step in range(2 * (n - 1)):
        reducing = step < n - 1
        sent = [(w, (w - step) % n, has[w][(w - step) % n]) for w in range(n)]
        for w, chunk, payload in sent:
            after = (w + 1) % n
            assert not (reducing and payload & has[after][chunk]), "added twice"
            has[after][chunk] = payload | has[after][chunk] if reducing else payload
        now += LATENCY + BITS / n / BANDWIDTH + (REDUCE / n if reducing else 0.0)
    assert all(chunk == set(range(n)) for row in has for chunk in row)
    return now


def tree(n: int) -> float:
    network = Network(n)
    distances = [2**j for j in range(20) if 2**j < n]
    for distance in distances:
        network.step([(w, w - distance) for w in range(distance, n, 2 * distance)], adds=True)
    for distance in reversed(distances):
        network.step([(w - distance, w) for w in range(distance, n, 2 * distance)], adds=False)
    return network.finish()


def recursive_doubling(n: int) -> float:
    network = Network(n)
    core = 2 ** int(math.log2(n))
    beyond = range(core, n)
    network.step([(w, w - core) for w in beyond], adds=True)
    distance = 1
    while distance < core:
        network.step([(w, w ^ distance) for w in range(core)], adds=True)
        distance *= 2
    network.step([(w - core, w) for w in beyond], adds=False)
    return network.finish()


def ring_gather(n: int) -> float:
    has = [{w} for w in range(n)]
    now = 0.0
    for step in range(n - 1):
        for w in range(n):
            has[(w + 1) % n].add((w - step) % n)
        now += LATENCY + BITS / BANDWIDTH
    assert all(h == set(range(n)) for h in has)
    return now


ALL_REDUCES = {
    collectives.ring_all_reduce: ring,
    collectives.tree_all_reduce: tree,
    collectives.recursive_doubling_all_reduce: recursive_doubling,
}


@pytest.mark.parametrize("formula", ALL_REDUCES)
def test_all_reduces_step_by_step(formula: Any) -> None:
    n = np.array(WORKERS)
    given = {"bandwidth": BANDWIDTH, "latency": LATENCY, "reduce_seconds": REDUCE}
    seconds = formula(BITS, workers=n, **given)
    np.testing.assert_allclose(seconds, [ALL_REDUCES[formula](w) for w in WORKERS], rtol=1e-6)
    swept = jax.jit(jax.vmap(lambda w: formula(BITS, workers=w, **given)))(jnp.asarray(n))
    np.testing.assert_allclose(swept, seconds, rtol=1e-6)
    assert seconds[0] == 0
    assert formula(0.0, workers=3, bandwidth=1.0, latency=1.0) > 0  # steps cost their latency


def test_all_gather_step_by_step() -> None:
    seconds = collectives.all_gather(
        BITS, workers=np.array(WORKERS), bandwidth=BANDWIDTH, latency=LATENCY
    )
    np.testing.assert_allclose(seconds, [ring_gather(w) for w in WORKERS], rtol=1e-6)
    assert seconds[0] == 0


def test_powers_of_two_and_the_bit_above() -> None:
    n = np.array([2**20 - 1, 2**20, 2**20 + 1, 2**24 + 1])
    doubling = collectives.recursive_doubling_all_reduce(1.0, workers=n, bandwidth=1.0)
    assert doubling.tolist() == [21, 20, 22, 26]
    assert collectives.tree_all_reduce(1.0, workers=n, bandwidth=1.0).tolist() == [40, 40, 42, 50]


def test_arguments_broadcast_under_strict_ranks() -> None:
    bits, rates = np.array([[1e6], [2e6], [0.0]]), np.array([1e9, 1e10, math.inf, 5.0])
    seconds = collectives.ring_all_reduce(bits, workers=2, bandwidth=rates)
    np.testing.assert_allclose(seconds, bits / rates, rtol=1e-6)
    pushes = collectives.parameter_server(bits, np.array([1, 2, 3, 4]), 2, rates, rates)
    assert pushes.shape == (3, 4)
    assert float(collectives.all_gather(3_200_000_000, workers=2, bandwidth=10**10)) > 0.3


def packets(workers: int, servers: int, sends: int, takes: int, shard: int) -> int:
    """Play a push by packets: ticks until all shards have arrived, each link as busy as it can."""
    left = np.full((workers, servers), shard)
    ticks = 0
    while left.any():
        can_send, can_take = np.full(workers, sends), np.full(servers, takes)
        while True:  # the fullest pair of links first
            room = (left > 0) * (can_send[:, None] > 0) * (can_take > 0)[None, :]
            weight = room * (left.sum(1)[:, None] + left.sum(0)[None, :])
            if not room.any():
                break
            w, s = np.unravel_index(weight.argmax(), weight.shape)
            left[w, s] -= 1
            can_send[w] -= 1
            can_take[s] -= 1
        ticks += 1
    return ticks


@pytest.mark.parametrize("case", [(1, 1, 2, 1), (4, 2, 1, 1), (3, 4, 1, 2), (5, 2, 1, 4)])
def test_parameter_server_bound_is_attained_by_packets(case: tuple[int, int, int, int]) -> None:
    workers, servers, sends, takes = case
    shard = 24
    bound = collectives.parameter_server(shard * servers, workers, servers, sends, takes)
    ticks = packets(*case, shard)
    assert bound <= ticks <= 1.1 * float(bound) + 1
    ingress = collectives.parameter_server(3.2e9, 8, np.array([1, 16]), 10e9, 10e9)
    np.testing.assert_allclose(ingress, [2.56, 0.32], rtol=1e-6)


FINE = {"workers": 2, "bandwidth": 1.0}


@pytest.mark.parametrize("formula", [*ALL_REDUCES, collectives.all_gather])
@pytest.mark.parametrize(
    ("bits", "arguments", "message"),
    [
        (-1.0, FINE, "bits must be non-negative and finite, got -1.0"),
        (1.0, FINE | {"workers": 0}, "workers must be an integer 1 or more, got 0"),
        (1.0, FINE | {"workers": 2.5}, "workers must be an integer 1 or more, got 2.5"),
        (math.nan, FINE, "bits must be non-negative and finite, got nan"),
        (1.0, FINE | {"bandwidth": -1.0}, "bandwidth must be positive, got -1.0"),
        (1.0, FINE | {"bandwidth": 0.0}, "bandwidth must be positive, got 0.0"),
        (1.0, FINE | {"latency": -1.0}, "latency must be non-negative and finite, got -1.0"),
        (np.ones(2), FINE | {"bandwidth": np.ones(3)}, r"bits and .* must broadcast, got .*\(3,"),
    ],
)
def test_errors_of_collectives(formula: Any, bits: Any, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{formula.__name__}: {message}"):
        formula(bits, **arguments)


def test_other_errors_of_collectives() -> None:
    with pytest.raises(ValueError, match="ring_all_reduce: reduce_seconds must be non-neg"):
        collectives.ring_all_reduce(1.0, workers=2, bandwidth=1.0, reduce_seconds=-1.0)
    for wrong, name in (((0, 1, 1.0, 1.0), "workers"), ((1, 0, 1.0, 1.0), "servers")):
        with pytest.raises(ValueError, match=f"parameter_server: {name} must be an integer"):
            collectives.parameter_server(1.0, *wrong)
    with pytest.raises(ValueError, match="parameter_server: server_bandwidth must be positive"):
        collectives.parameter_server(1.0, 1, 1, 1.0, 0.0)
