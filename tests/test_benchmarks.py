"""The benchmarks run at their smoke sizes, and their peers play the schedules of the oracle."""

from __future__ import annotations

import dataclasses
import importlib
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from oracle import schedule

ROOT = Path(__file__).parents[1]

N = 7
RULES = {
    "bsp": (N, True, False, np.inf),
    "asp": (1, False, False, np.inf),
    "ssp-0": (1, False, False, 0.0),
    "ssp-1": (1, False, False, 1.0),
    "k-bsp": (3, True, True, np.inf),
    "k-batch-bsp": (3, False, True, np.inf),
    "k-asp": (3, True, False, np.inf),
    "k-batch-asp": (3, False, False, np.inf),
}
PEERS = {  # and which policies they play; None: all
    "numba": None,
    "numba cores": None,
    "simpy": None,
    "numpy": None,
    "heapq": None,
    "ciw": ("asp",),
    "sort": ("bsp", "k-bsp"),
}


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.peers")


def installed(peers: Any, name: str) -> Any:
    peer = peers.load(name)
    if peer is None:
        pytest.skip(f"{name}: {peers.module(peers.MODULES[name])[1]}")
    return peer


def test_all_peers_are_tested(peers: Any) -> None:
    assert sorted(peers.MODULES) == sorted(PEERS)


@pytest.mark.parametrize("name", PEERS)
def test_peer_says_what_it_plays(peers: Any, name: str) -> None:
    peer = installed(peers, name)
    plays = {policy for policy, rule in RULES.items() if peer.plays(N, peers.Numbers(*rule))}
    assert plays == set(PEERS[name] or RULES)


@pytest.mark.parametrize(
    ("name", "policy"), [(name, policy) for name in PEERS for policy in PEERS[name] or RULES]
)
def test_peer_plays_the_oracles_schedule(peers: Any, name: str, policy: str) -> None:
    peer = installed(peers, name)
    numbers = peers.Numbers(*RULES[policy])
    updates, (k, distinct, cancel, bound) = 40, RULES[policy]
    generator = np.random.default_rng(3)
    table = generator.integers(1, 20, (N, 4 * updates)) / 64
    if not peer.ties:
        table = table + generator.permutation(table.size).reshape(table.shape) / 2.0**30
    expected = schedule(
        table.tolist(), k=k, distinct=distinct, cancel=cancel, bound=bound, updates=updates
    )
    gradients = [g for update in expected.updates for g in update.gradients]
    plays = [peer.play]
    if peers.MODULES[name] == "numba_":
        plays = [partial(peer.play, heap=heap) for heap in (False, True)]
    for play in plays:
        found = play(N, numbers, updates, table=table)
        assert found.time.tolist() == [update.time for update in expected.updates]
        assert found.worker.tolist() == [g.worker for g in gradients]
        assert found.staleness.tolist() == [g.staleness for g in gradients]


@pytest.mark.parametrize("name", PEERS)
def test_peers_draw_exponential_times(peers: Any, name: str) -> None:
    # Seconds of an update: exponential of mean 1 / n under ASP; sum of 1 / i, i to n, under BSP.
    # Keys are fixed; other keys would fail less than once in a million.
    peer = installed(peers, name)
    n, updates = 4, 2000
    asp, bsp = peers.Numbers(*RULES["asp"]), peers.Numbers(n, True, False, np.inf)
    numbers = asp if peer.plays(n, asp) else bsp
    steps = np.arange(n, n - numbers.k, -1.0)
    error = np.sqrt(np.sum(steps**-2) / updates)
    time = peer.play(n, numbers, updates, seed=5).time[-1]
    assert abs(time / updates - np.sum(1 / steps)) < 5 * error
    peer.many(n, numbers, 3, 2)  # what is timed


def test_a_peer_that_cannot_be_imported_has_a_reason(peers: Any) -> None:
    found, reason = peers.module("no_such_module")
    assert found is None
    assert "no_such_module" in reason


def smoke(module: str, out: Path, *options: str) -> tuple[dict[str, Any], str]:
    # In a process of its own: the number of devices is fixed before JAX starts.
    command = [sys.executable, "-m", f"benchmarks.{module}", "--smoke", "--out", str(out)]
    done = subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text()), done.stdout


@pytest.mark.parametrize("collect", ["statistics", pytest.param("trace", marks=pytest.mark.slow)])
def test_smoke_size_of_the_clock(collect: str, tmp_path: Path) -> None:
    result, printed = smoke("clock", tmp_path / "clock.json", "--collect", collect)
    cell = result["cells"][0]
    assert cell["collect"] == collect
    assert cell["one"] > 0
    assert cell["drawn"] > 1
    assert cell["bits"] > 0
    assert cell["bytes"] > 0
    assert cell["peers"]["heapq"] > 0
    assert cell["peers"]["ciw"] is None  # it does not play k-BSP
    assert f"| {cell['policy']:>6} |" in printed
    assert result["scale"][0]["rate"] > 0
    kept = {cell["collect"] for cell in result["cells"]}
    assert "seconds" in kept


@pytest.mark.slow
def test_smoke_size_of_the_replay(tmp_path: Path) -> None:
    result, printed = smoke("replay", tmp_path / "replay.json")
    (cell,) = result["cells"]
    assert cell["replay"] > 0
    assert cell["ratio"] == pytest.approx(cell["plain"] / cell["replay"])
    assert (cell["torch"] is None) == ("PyTorch is not installed" in printed)


def test_smoke_size_of_the_compressors(tmp_path: Path) -> None:
    result, printed = smoke("compressors", tmp_path / "compressors.json")
    assert [(cell["name"], cell["memory"]) for cell in result["replays"]] == [
        ("none", False),
        ("top-k 1 %", False),
        ("top-k 1 %", True),
    ]
    assert result["replays"][0]["ratio"] == 1
    assert result["arrays"][0]["library"] > 0 and "top-k" in printed


@pytest.mark.slow
def test_smoke_size_of_the_links(tmp_path: Path) -> None:
    result, _ = smoke("links", tmp_path / "links.json")
    names = [cell["network"] for cell in result["cells"]]
    assert names[0] == "none" and "two events" in names
    assert all(cell["rate"] > 0 for cell in result["cells"])


def test_a_wrong_rate_is_noticed(peers: Any) -> None:
    agree = importlib.import_module("benchmarks.agree")
    ours = importlib.import_module("benchmarks.ours")
    work = ours.Work("k-bsp", 8, 500, 4, "seconds")
    found = installed(peers, "sort").many(8, ours.numbers(work.rule, 8), 500, 4)
    agree.check_seconds(work, found)
    with pytest.raises(RuntimeError, match="k-bsp is .* standard errors off"):
        agree.check_seconds(work, 1.3 * found)


def test_a_device_that_differs_is_noticed(peers: Any) -> None:
    agree = importlib.import_module("benchmarks.agree")
    ours = importlib.import_module("benchmarks.ours")
    work = ours.Work("asp", 4, 8, 4, "trace")
    found = jax.jit(work.__call__)(work.keys(), work.cluster())
    agree.check_device(work, found)
    trace = dataclasses.replace(found.trace, dt=1.01 * found.trace.dt)
    with pytest.raises(RuntimeError, match="differ under asp, n = 4"):
        agree.check_device(work, dataclasses.replace(found, trace=trace))


@pytest.mark.parametrize("collect", ["statistics", "seconds", "trace"])
@pytest.mark.parametrize("policy", ["bsp", "asp", "ssp", "k-bsp", "k-batch-bsp"])
def test_bytes_an_arrival_grow_with_what_it_changes(peers: Any, policy: str, collect: Any) -> None:
    del peers
    floors = importlib.import_module("benchmarks.floors")
    ours = importlib.import_module("benchmarks.ours")
    few, many = (floors.traffic(ours.Work(policy, n, 8, 4, collect)) for n in (8, 512))
    assert few > 0
    if collect == "trace":
        assert many > few
        assert floors.traffic(ours.Work(policy, 8, 8, 4, "seconds")) < few
