"""Ciw, as a closed network: n customers who return to the one node as soon as they are served.

A customer is a worker and its service a computation. That is ASP. Ciw's nodes and routes do not
start others when one customer leaves, nor stop a service for any reason but priority, so that it
plays no other policy.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import ciw
import numpy as np
from ciw import dists

from benchmarks.peers.schedule import Draw, Numbers, Peer, Schedule, draws, one_by_one


class _Over(Exception):
    """The last arrival has been."""


class _Computation(dists.Distribution):
    """The service times of each customer; after `limit` of them the simulation is over.

    Ciw ends at a time or after customers who leave; here nobody leaves.
    """

    def __init__(self, draw: Draw, limit: int) -> None:
        super().__init__()
        self.draw, self.left = draw, limit

    def sample(self, t: Any = None, ind: Any = None) -> float:
        """Return the seconds of a customer's next service."""
        del t
        if self.left == 0:
            raise _Over
        self.left -= 1
        return self.draw(ind.id_number - 1)


def plays(n: int, numbers: Numbers) -> bool:
    """Whether this is ASP."""
    del n
    return numbers.k == 1 and math.isinf(numbers.bound)


def play(
    n: int, numbers: Numbers, updates: int, *, table: np.ndarray | None = None, seed: int = 0
) -> Schedule:
    """Simulate one run: arguments as in the other peers. Ciw breaks ties at random."""
    del numbers
    computation = _Computation(draws(table, seed), n + updates - 1)
    network = ciw.create_network(
        arrival_distributions=[dists.Sequential([0.0, math.inf])],
        batching_distributions=[dists.Deterministic(n)],
        service_distributions=[computation],
        routing=[[1.0]],
        number_of_servers=[math.inf],
    )
    # Ciw copies the distribution for its simulation, which therefore counts from the start.
    simulation = ciw.Simulation(network)
    with contextlib.suppress(_Over):
        simulation.simulate_until_max_time(math.inf)
    records = sorted(
        (record.service_end_date, record.id_number - 1)
        for customer in simulation.nodes[1].all_individuals
        for record in customer.data_records
    )
    time, worker = zip(*records, strict=True)
    read = [0] * n
    staleness = np.empty(updates, np.int32)
    for arrival, who in enumerate(worker):
        staleness[arrival] = arrival - read[who]
        read[who] = arrival + 1
    return Schedule(np.asarray(time), np.asarray(worker), staleness)


PEERS: dict[str, Peer] = {"ciw": Peer(play, one_by_one(play), plays, ties=False, share=128)}
