"""Networks from bandwidths: a plain loop of its own plays what `fixed` cannot say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dtjax
from dtjax import collectives, delays, network, policies
from dtjax.clock.accounting import FATES
from dtjax.compressors import identity, top_k

KEY = jax.random.key(0)
N, STEPS = 4, 40


def table(seed: int = 0) -> np.ndarray:
    """Return multiples of 1/64, exact in binary32, without ties."""
    return (
        np.random.default_rng(seed).integers(20, 200, (N, STEPS)) / 64 + np.arange(N)[:, None] / 512
    )


class Plain:
    """One run of ASP, or of k-BSP, whose gradients arrive in the order in which they get ready."""

    def __init__(self, durations: np.ndarray, k: int, cancel: bool, **numbers: Any) -> None:
        """Take the times, the policy and what `star` is given, as seconds."""
        self.durations, self.k, self.cancel = durations, k, cancel
        get = numbers.get
        self.push, self.private = get("push", lambda step: 1.0), get("private", lambda step: 0.0)
        self.rate, self.encode = get("rate", lambda t: 1.0), get("encode", 0.0)
        self.pull, self.change, self.shared = get("pull", 0.0), get("change"), get("shared", False)
        self.latency, self.pull_latency = get("latency", 0.0), get("pull_latency", 0.0)
        self.free = self.egress = 0.0
        self.version, self.step = 0, [0] * N
        self.has: list[Any] = [None] * N
        self.ready: dict[int, float] = {}

    def start(self, workers: list[int], now: float) -> None:
        for w in sorted(workers):
            pull = self.pull
            if self.change is not None and self.has[w] is not None:
                pull = min(pull, (self.version - self.has[w]) * self.change)
            begin = max(now, self.egress) if self.shared else now
            self.egress = begin + pull
            step, self.has[w] = self.step[w], self.version
            own = self.durations[w, step] + self.encode
            computing = begin + pull + self.pull_latency
            self.ready[w] = computing + own + self.private(step)
            self.step[w] += 1

    def sent(self, begin: float, step: int) -> float:
        """Send in little pieces, each at the rate of its moment."""
        left, t, piece = self.push(step), begin, 1 / 512
        while left > 1e-12:
            done = min(left, piece * self.rate(t + 1e-9))
            left, t = left - done, t + (piece if done < left else piece * (done / max(done, 1e-30)))
            if left <= 1e-12:
                t -= piece - done / max(self.rate(t - piece / 2), 1e-30)
        return t

    def play(self, updates: int) -> list[float]:
        self.start(list(range(N)), 0.0)
        times, delivered = [], []
        while len(times) < updates:
            w = min(self.ready, key=lambda w: (self.ready[w], w))
            begin = max(self.ready.pop(w), self.free)
            self.free = self.sent(begin, self.step[w] - 1)
            now = self.free + self.latency
            delivered.append(w)
            if len(delivered) < self.k:
                continue
            times.append(now)
            self.version += 1
            again = delivered
            if self.cancel:
                self.ready, self.free, self.egress = {}, now, min(self.egress, now)
                again = list(range(N))
            delivered = []
            self.start(again, now)
        return times


POLICIES = {
    "asp": (policies.asp(), 1, False),
    "k-bsp": (policies.k_bsp(2), 2, True),
    "bsp": (policies.bsp(), N, False),
}
UPDATES = 12


def together(net: Any) -> np.ndarray:
    """Return the seconds of the updates of each policy, as lanes of one compile."""
    cluster = dtjax.Cluster(n=N, delay=delays.recorded(table()), network=net)
    rules = policies.stack([rule for rule, _, _ in POLICIES.values()])

    def one(cluster: Any, rule: Any) -> dtjax.Run:
        return dtjax.simulate(KEY, cluster, rule, updates=UPDATES, width=N)

    run = jax.jit(jax.vmap(one, in_axes=(None, 0)))(cluster, rules).check(complete=True)
    total = np.sum([getattr(run.accounts, fate) for fate in FATES], axis=0)
    elapsed = np.broadcast_to(np.asarray(run.accounts.elapsed)[:, None], total.shape)
    np.testing.assert_allclose(total, elapsed, rtol=1e-5)
    return dtjax.seconds(run.trace)


STARS: dict[str, tuple[Any, Any]] = {
    "payload by step": (
        {"payload": [64.0, 32.0, 16.0]},
        {"push": lambda step: [1.0, 0.5, 0.25][min(step, 2)]},
    ),
    "own links": ({"worker_bandwidth": 128.0}, {"private": lambda step: 0.5}),
    "own links by step": (
        {"payload": [64.0, 32.0], "worker_bandwidth": 128.0},
        {
            "push": lambda step: [1.0, 0.5][min(step, 1)],
            "private": lambda step: [0.5, 0.25][min(step, 1)],
        },
    ),
    "pulls": ({"pull": 128.0, "latency": 0.25}, {"pull": 2.0, "latency": 0.25}),
    "pulls of changes": (
        {"pull": 128.0, "pull_change": 32.0},
        {"pull": 2.0, "change": 0.5},
    ),
    "shared egress": ({"pull": 64.0, "shared_egress": True}, {"pull": 1.0, "shared": True}),
    "shared egress of changes": (
        {"pull": 128.0, "pull_change": 32.0, "shared_egress": True},
        {"pull": 2.0, "change": 0.5, "shared": True},
    ),
    "encoding": ({"encode": 0.5, "overhead": 0.5}, {"encode": 0.5, "push": lambda step: 1.5}),
    "a slow hour": (
        {"profile": ([0.0, 3.0, 5.0], [1.0, 0.25, 2.0])},
        {"rate": lambda t: 1.0 if t < 3 else 0.25 if t < 5 else 2.0},
    ),
    "an outage each day": (
        {"profile": ([0.0, 3.0, 5.0], [1.0, 0.0, 2.0]), "period": 8.0},
        {"rate": lambda t: 1.0 if t % 8 < 3 else 0.0 if t % 8 < 5 else 2.0},
    ),
}


SLOW = ("own links", "pulls", "encoding", "a slow hour", "shared egress")
NAMES = [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in STARS]


@pytest.mark.parametrize("star", NAMES)
def test_a_plain_loop_gives_the_same_seconds(star: str) -> None:
    given, plain = STARS[star]
    if "pull" in plain and "latency" in plain:
        plain = plain | {"pull_latency": plain["latency"]}
    settings: dict[str, Any] = {"payload": 64.0, "bandwidth": 64.0} | given
    net = network.star(**settings)
    rough = 0.02 if "profile" in given else 2e-5  # of the pieces that the loop sends in
    times = together(net)
    for row, (_, k, cancel) in zip(times, POLICIES.values(), strict=True):
        wanted = Plain(table(), k, cancel, **plain).play(UPDATES)
        np.testing.assert_allclose(row, wanted, atol=rough)


@pytest.mark.slow
def test_two_events_a_gradient_give_the_schedule_of_one() -> None:
    net = network.star(
        payload=[64.0, 32.0],
        bandwidth=[64.0, 32.0, 16.0],
        servers=3,
        shares=[0.5, 0.25, 0.25],
        worker_bandwidth=[128.0, 64.0, 32.0, 128.0],
        pull=96.0,
        pull_bandwidth=96.0,
        pull_change=24.0,
        latency=0.125,
    )
    assert net.ordered
    np.testing.assert_allclose(together(net), together(replace(net, ordered=False)), rtol=1e-6)


@pytest.mark.slow
def test_no_payload_and_no_bandwidth_limit_cost_nothing() -> None:
    free = together(None)
    for net in (
        network.star(payload=0.0, bandwidth=1.0),
        network.star(payload=64.0, bandwidth=np.inf, pull=64.0),
    ):
        assert np.array_equal(together(net), free)


def test_one_ingress_sets_the_pace_of_asp() -> None:
    """Where the link is the bottleneck an update takes a push, exactly: utilisation of the link."""
    net = network.star(payload=1e6, bandwidth=1e6)
    cluster = dtjax.Cluster(n=16, delay=delays.exponential(1.0), network=net)
    run = dtjax.simulate(KEY, cluster, policies.asp(), updates=400)
    assert np.allclose(np.asarray(run.trace.dt)[50:], 1.0, atol=1e-3)
    queueing = np.asarray(run.accounts.queueing).sum() / float(run.accounts.total)
    assert 0.8 < queueing < 0.95


def test_eight_senders_share_an_ingress() -> None:
    """100 million entries, 10 Gb/s: 320 ms each, 2,560 ms for eight that are ready at once."""
    dense = identity().bits({"w": jax.ShapeDtypeStruct((100_000_000,), jnp.float32)})
    net = network.star(payload=dense, bandwidth=10e9)
    cluster = dtjax.Cluster(n=8, delay=delays.deterministic(1.0), network=net)
    run = dtjax.simulate(KEY, cluster, policies.bsp(), updates=1)
    assert float(run.trace.dt[0]) == pytest.approx(1 + 2.56, rel=1e-6)
    arrival = 3.56 - np.asarray(run.trace.arrival[0])
    np.testing.assert_allclose(arrival, 1 + 0.32 * np.arange(1, 9), rtol=1e-6)


def test_an_all_reduce_is_communication_of_all() -> None:
    ring = collectives.ring_all_reduce(64e6, workers=3, bandwidth=64e6, latency=0.125)
    net = network.all_reduce(ring)
    cluster = dtjax.Cluster(n=3, delay=delays.deterministic([2.0, 5.0, 7.0]), network=net)
    run = dtjax.simulate(KEY, cluster, policies.bsp(), updates=3)
    cost = 2 * 2 * 0.125 + 2 * 2 / 3
    assert dtjax.seconds(run.trace) == pytest.approx([(7 + cost) * i for i in (1, 2, 3)])
    accounts = run.accounts
    np.testing.assert_allclose(accounts.communicating, [3 * cost] * 3, rtol=1e-5)
    np.testing.assert_allclose(accounts.waiting, [15.0, 6.0, 0.0], atol=1e-4)
    np.testing.assert_allclose(accounts.queueing, 0.0, atol=1e-5)
    until = dtjax.simulate(KEY, cluster, policies.bsp(), updates=3, until=8.0).accounts
    np.testing.assert_allclose(until.communicating, [1.0] * 3, atol=1e-5)
    np.testing.assert_allclose(until.waiting, [5.0, 2.0, 0.0], atol=1e-5)
    for policy in (policies.asp(), policies.k_bsp(2), policies.k_asp(2)):
        with pytest.raises(ValueError, match="simulate: policy must be bsp"):
            dtjax.simulate(KEY, cluster, policy, updates=3)


def test_numbers_sweep_in_one_compile() -> None:
    traces = []

    @jax.jit
    def times(bandwidth: Any, ratio: Any) -> Any:
        traces.append(1)
        shapes = {"w": jax.ShapeDtypeStruct((1000,), jnp.float32)}
        net = network.star(payload=top_k(ratio).bits(shapes), bandwidth=bandwidth)
        cluster = dtjax.Cluster(n=N, delay=delays.exponential(1.0), network=net)
        return dtjax.simulate(KEY, cluster, policies.asp(), updates=30).trace.dt.sum()

    slow, fast, sparse = times(1e4, 0.5), times(1e6, 0.5), times(1e4, 0.01)
    assert len(traces) == 1 and float(slow) > float(fast) and float(slow) > float(sparse)
    both = jax.vmap(times)(jnp.array([1e4, 1e6]), jnp.array([0.5, 0.5]))
    np.testing.assert_array_equal(both, jnp.stack([slow, fast]))
