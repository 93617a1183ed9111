"""What networks refuse, before anything is computed."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import dtjax
from dtjax import compressors, delays, network, policies

KEY = jax.random.key(0)
WORD: Any = 3  # of no use as what it is given for

WRONG: list[tuple[str, Any]] = [
    ("bandwidth must be positive, got 0", lambda: network.star(payload=0.0, bandwidth=0.0)),
    ("bandwidth must be positive, got -1", lambda: network.star(payload=1.0, bandwidth=-1.0)),
    ("payload must be non-negative", lambda: network.star(payload=-1.0, bandwidth=1.0)),
    ("latency must be non-neg", lambda: network.star(payload=1.0, bandwidth=1.0, latency=-1.0)),
    ("latency must be non-negative", lambda: network.fixed(latency=[0.0, -1.0])),
    ("fold must be non-negative", lambda: network.fixed(fold=-0.5)),
    ("apply must be non-negative and finite", lambda: network.fixed(apply=np.nan)),
    ("push must be non-negative", lambda: network.fixed(push=[[1.0, -1.0]])),
    ("push must have shape", lambda: network.fixed(push=np.zeros((2, 2, 2)))),
    ("servers must be an integer 1", lambda: network.star(payload=1.0, bandwidth=1.0, servers=0)),
    (
        "shares must sum to 1",
        lambda: network.star(payload=1.0, bandwidth=1.0, servers=2, shares=[0.5, 0.6]),
    ),
    ("shares must have shape", lambda: network.star(payload=1.0, bandwidth=1.0, shares=[0.5, 0.5])),
    (
        "pull_change must not be given without `pull`",
        lambda: network.star(payload=1.0, bandwidth=1.0, pull_change=1.0),
    ),
    (
        "shared_egress must not be set without `pull`",
        lambda: network.star(payload=1.0, bandwidth=1.0, shared_egress=True),
    ),
    (
        "profile must be",
        lambda: network.star(payload=1.0, bandwidth=1.0, profile=([0.0, 1.0], [1.0, 0.0])),
    ),
    (
        "period must be above",
        lambda: network.star(
            payload=1.0, bandwidth=1.0, profile=([0.0, 2.0], [1.0, 2.0]), period=2.0
        ),
    ),
    ("period must not be", lambda: network.star(payload=1.0, bandwidth=1.0, period=2.0)),
    (
        "Cluster: network must be made for n=2",
        lambda: dtjax.Cluster(2, delays.exponential(1.0), network=network.fixed(pull=[0.0] * 3)),
    ),
    (
        "Cluster: network must be a network",
        lambda: dtjax.Cluster(2, delays.exponential(1.0), network=0.5),
    ),
    ("all_reduce: seconds must be non-negative", lambda: network.all_reduce(-1.0)),
    (
        "push and latency must be for one number of workers",
        lambda: network.fixed(push=[1.0, 2.0, 3.0], latency=[0.0, 5.0]),
    ),
    (
        "private and latency must be for one number of workers",
        lambda: network.star(
            payload=1.0, bandwidth=1.0, worker_bandwidth=[1.0, 1.0], latency=[0.0, 1.0, 1.0]
        ),
    ),
    ("profile must be", lambda: network.star(payload=1.0, bandwidth=1.0, profile=WORD)),
    ("all_gather: encode must be non", lambda: network.all_gather(1.0, encode=-1.0)),
    (
        "all_reduce: compressor must have messages that can be summed",
        lambda: network.all_reduce(1.0, compressor=compressors.top_k(0.1)),
    ),
]


@pytest.mark.parametrize(("words", "call"), WRONG, ids=[words for words, _ in WRONG])
def test_bad_input(words: str, call: Any) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def test_resume_rejects_the_clock_of_another_network() -> None:
    law = delays.exponential(1.0)
    plain, linked = (dtjax.Cluster(2, law, network=net) for net in (None, network.fixed(push=0.5)))
    run = dtjax.simulate(KEY, linked, policies.asp(), updates=3)
    with pytest.raises(ValueError, match="resume: clock must be of a run with this network"):
        dtjax.resume(run.clock, plain, policies.asp(), updates=3)
    with pytest.raises(ValueError, match='path must not be "fast" where there is a network'):
        dtjax.simulate(KEY, linked, policies.asp(), updates=3, collect="statistics", path="fast")
