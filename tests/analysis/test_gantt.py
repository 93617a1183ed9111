"""The bars of a Gantt chart agree with the accounts and with schedules made by hand."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dtjax
from dtjax import network, policies
from dtjax.analysis import gantt
from dtjax.policies.rule import UNBOUNDED, Rule

N, ROWS, LANES = 4, 24, 48


# The first and the last two keep arrivals in order; in the others gradients overtake.
NETWORKS = {
    "none": None,
    "one server": network.fixed(push=0.5, pull=0.25, latency=0.125, fold=0.25, apply=0.125),
    "free pushes": network.fixed(push=[0.0, 0.5, 0.25, 1.0], fold=0.25),
    "two servers": network.fixed(
        push=[[0.25, 0.5], [1.0, 0.0], [0.5, 0.5], [0.125, 2.0]],
        latency=[0.0, 0.5, 0.25, 0.125],
        pull=[0.0, 0.25, 1.0, 0.5],
        encode=0.25,
    ),
    "star": network.star(
        payload=[2.0, 1.0],
        bandwidth=2.0,
        servers=2,
        worker_bandwidth=8.0,
        pull=1.0,
        pull_change=0.25,
        shared_egress=True,
    ),
    "a server alone": network.fixed(fold=0.125, apply=1.0),
}


@cache
def runs(name: str) -> tuple[Rule, Any]:
    """Simulate random rules on tables of unequal workers; some runs end at a second."""
    rng = np.random.default_rng(1)
    distinct, cancel = rng.random(LANES) < 0.5, rng.random(LANES) < 0.5
    loose = rng.random(LANES) < 0.5
    rules = Rule(
        k=rng.integers(1, N + 1, LANES).astype(np.int32),
        distinct=distinct,
        cancel=cancel,
        bound=np.where(distinct | loose, UNBOUNDED, rng.integers(0, 3, LANES)),
        max_staleness=np.where(loose, UNBOUNDED, rng.integers(0, 4, LANES)),
    )
    speed = rng.choice([1, 2, 8], (LANES, N, 1))
    tables = speed * rng.integers(1, 17, (LANES, N, 30 * ROWS)) / 16
    until = np.where(rng.random(LANES) < 0.5, np.inf, 9.0)

    @jax.jit
    @jax.vmap
    def one(rule: Any, table: Any, until: Any) -> Any:
        cluster = dtjax.Cluster(n=N, delay=dtjax.delays.recorded(table), network=NETWORKS[name])
        return dtjax.simulate(jax.random.key(0), cluster, rule, updates=ROWS, until=until, width=N)

    run = one(rules, tables.astype(np.float32), until.astype(np.float32)).check()
    return rules, jax.tree.map(np.asarray, run)


QUICK = ("two servers",)
NAMES = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NETWORKS]


@pytest.mark.parametrize("name", NAMES)
def test_bars_are_the_accounts(name: str) -> None:
    rules, whole = runs(name)
    links = NETWORKS[name]
    for lane in range(LANES):
        run = jax.tree.map(lambda leaf, lane=lane: leaf[lane], whole)
        found = gantt.bars(run, holds=bool(rules.distinct[lane]), network=links)
        for w in range(N):
            agrees(run, sorted(bar for bar in found if bar.worker == w), w)
        served(run, sorted(bar for bar in found if bar.worker == N), links)


def apart(bars: list[gantt.Bar], end: float) -> None:
    for bar in bars:
        assert -1e-4 <= bar.start <= bar.end <= end + 1e-4
    for before, after in pairwise(bars):
        assert before.end <= after.start + 1e-4, (before, after)


def agrees(run: Any, mine: list[gantt.Bar], w: int) -> None:
    accounts = run.accounts
    apart(mine, float(accounts.elapsed))
    length = dict.fromkeys(gantt.NAMES, 0.0)
    for bar in mine:
        length[bar.fate] += bar.end - bar.start
    assert length["useful"] == pytest.approx(accounts.useful[w], abs=1e-3)
    assert length["open"] == pytest.approx(accounts.in_flight[w], abs=1e-3)
    # A bar of several lost ones holds what they communicated and queued, and the waits between.
    lost = accounts.cancelled[w] + accounts.discarded[w]
    talked = accounts.communicating[w] - length["pull"] - length["push"]
    queued = accounts.queueing[w] - length["queue"]
    assert min(talked, queued) >= -1e-3
    assert length["lost"] >= lost + talked + queued - 1e-3
    assert length["lost"] <= lost + talked + queued + accounts.waiting[w] + 1e-3
    if not accounts.discarded_count[w] + accounts.cancelled_count[w]:
        assert talked == pytest.approx(0, abs=1e-3)
        assert queued == pytest.approx(0, abs=1e-3)
    useful = [bar for bar in mine if bar.fate == "useful"]
    assert len(useful) == accounts.useful_count[w]
    named = sum(int(bar.label.split()[0]) for bar in mine if bar.fate == "lost")
    assert named == accounts.discarded_count[w] + accounts.cancelled_count[w]


def served(run: Any, bars: list[gantt.Bar], links: Any) -> None:
    """Check the server's time: one gradient at a time, for as long as it takes."""
    apart(bars, float(run.accounts.elapsed))
    assert all(bar.fate == "server" for bar in bars)
    if links is None:
        assert not bars
        return
    known = run.accounts.useful_count.sum() + run.accounts.buffered
    least = known * float(links.fold) + run.accounts.updates * float(links.apply)
    total = sum(bar.end - bar.start for bar in bars)
    assert least - 1e-3 <= total <= least + float(links.fold + links.apply) + 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_the_lanes_cover_every_fate(name: str) -> None:
    _, run = runs(name)
    fates = ["useful", "discarded", "cancelled", "in_flight", "waiting"]
    if name != "none":
        fates += ["queueing"]
        fates += ["communicating"] * (name != "a server alone")
    for fate in fates:
        assert (getattr(run.accounts, fate).sum(-1) > 0).sum() >= 3, fate
    assert (run.accounts.buffered > 0).any()


Spans = list[tuple[str, float, float]]


def by_hand(policy: Any, links: Any, until: float, times: tuple[float, ...]) -> list[Spans]:
    """Return the bars of each worker, and of the server."""
    delay = dtjax.delays.deterministic(times)
    cluster = dtjax.Cluster(n=3, delay=delay, network=links)
    run = dtjax.simulate(jax.random.key(0), cluster, policy, updates=20, until=until)
    found = gantt.bars(run, holds=bool(policy.distinct), network=links)
    rows = [sorted(bar for bar in found if bar.worker == w) for w in range(4)]
    return [[(bar.fate, bar.start, bar.end) for bar in row] for row in rows]


def one_way(*marks: float, fate: str = "useful") -> Spans:
    """Return compute, push and queue between four seconds."""
    return list(zip((fate, "push", "queue"), marks, marks[1:], strict=False))


PUSH_AND_FOLD = network.fixed(push=1.0, fold=0.5)


def test_a_schedule_made_by_hand() -> None:
    """ASP: compute times 2, 5, 7, pushes of 1 second, folds of half a second."""
    found = by_hand(policies.asp(), PUSH_AND_FOLD, 16.25, (2.0, 5.0, 7.0))
    assert found[0] == [
        *one_way(0, 2, 3, 3.5),
        ("useful", 3.5, 5.5),
        ("queue", 5.5, 6),  # worker 1 is on the ingress
        ("push", 6, 7),
        ("queue", 7, 7.5),
        *one_way(7.5, 9.5, 10.5, 11),
        *one_way(11, 13, 14, 14.5),
        ("open", 14.5, 16.25),
    ]
    assert found[1] == [
        *one_way(0, 5, 6, 6.5),
        *one_way(6.5, 11.5, 12.5, 13),
        ("open", 13, 16.25),
    ]
    assert found[2] == [
        *one_way(0, 7, 8, 8.5),
        ("open", 8.5, 15.5),
        ("push", 15.5, 16.25),
    ]
    begins = (3, 6, 7, 8, 10.5, 12.5, 14)
    assert found[3] == [("server", begin, begin + 0.5) for begin in begins]


def test_cancelled_work_made_by_hand() -> None:
    """k-BSP with k = 2: the updates at 6.5 and 13 stop worker 2."""
    found = by_hand(policies.k_bsp(2), PUSH_AND_FOLD, 14.0, (2.0, 5.0, 7.0))
    assert found[0] == [
        *one_way(0, 2, 3, 3.5),
        *one_way(6.5, 8.5, 9.5, 10),
        ("open", 13, 14),
    ]
    assert found[1] == [*one_way(0, 5, 6, 6.5), *one_way(6.5, 11.5, 12.5, 13), ("open", 13, 14)]
    assert found[2] == [("lost", 0, 13), ("open", 13, 14)]
    assert found[3] == [("server", begin, begin + 0.5) for begin in (3, 6, 9.5, 12.5)]


@pytest.mark.parametrize("latency", [0.0, [0.0, 0.125, 0.0]])
def test_queues_at_the_end_made_by_hand(latency: Any) -> None:
    """Worker 0 is with the server, worker 1 on the ingress, worker 2 waits for it."""
    links = network.fixed(push=1.0, fold=0.5, latency=latency)
    found = by_hand(policies.asp(), links, 2.25, (1.0, 1.0, 1.0))
    assert found == [
        [("open", 0, 1), ("push", 1, 2), ("queue", 2, 2.25)],
        [("open", 0, 1), ("queue", 1, 2), ("push", 2, 2.25)],
        [("open", 0, 1), ("queue", 1, 2.25)],
        [("server", 2, 2.25)],
    ]


@pytest.mark.parametrize("until", [8.0, 7.5])
def test_all_the_workers_push_in_an_all_reduce(until: float) -> None:
    found = by_hand(policies.bsp(), network.all_reduce(1.0), until, (2.0, 5.0, 7.0))
    fate = "useful" if until == 8 else "open"
    assert found == [
        *([(fate, 0, time), ("push", 7, until)] for time in (2, 5, 7)),
        [],
    ]


def test_the_network_must_be_given() -> None:
    _, whole = runs("one server")
    run = jax.tree.map(lambda leaf: leaf[0], whole)
    with pytest.raises(ValueError, match="bars: network must be given"):
        gantt.bars(run, holds=False)


@pytest.mark.parametrize("name", ["one server", "star"])
def test_the_picture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """The legend names what there is, and the server has a row only if it takes time."""
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "close", lambda figure: None)
    delay = dtjax.delays.deterministic(jnp.array([1.0, 1.0, 2.0, 3.0]))
    cluster = dtjax.Cluster(n=N, delay=delay, network=NETWORKS[name])
    run = dtjax.simulate(jax.random.key(0), cluster, policies.asp(), updates=6)
    gantt.draw(run, tmp_path / "gantt.svg", holds=False, network=NETWORKS[name])
    figure = plt.gcf()
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    kept = ["computing, used", "computing, not used by the end", "pulling", "pushing", "queueing"]
    served = name == "one server"
    assert labels == kept + ["folding, updating"] * served
    rows = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert rows == [f"worker {w}" for w in range(N)] + ["server"] * served
    monkeypatch.undo()
    plt.close(figure)
