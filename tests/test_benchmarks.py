"""The benchmark runs at its smoke size, and its peers play the schedules of the oracle."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("peer", ["simpy", "numba"])
def test_peer_plays_the_oracles_schedule(
    peer: str, rule: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(peer)
    monkeypatch.syspath_prepend(str(ROOT))
    peers = importlib.import_module("benchmarks.peers")
    k, distinct, cancel, bound = rule
    updates = 40
    table = np.random.default_rng(3).integers(1, 20, (N, 4 * updates)) / 64
    play: Any = peers.installed()[peer]
    found = play(N, peers.Numbers(*rule), updates, table=table)
    expected = schedule(
        table.tolist(), k=k, distinct=distinct, cancel=cancel, bound=bound, updates=updates
    )
    gradients = [g for update in expected.updates for g in update.gradients]
    assert found.time.tolist() == [update.time for update in expected.updates]
    assert found.worker.tolist() == [g.worker for g in gradients]
    assert found.staleness.tolist() == [g.staleness for g in gradients]


def test_smoke_size(tmp_path: Path) -> None:
    # In a process of its own: the number of devices is fixed before JAX starts.
    out = tmp_path / "clock.json"
    command = [sys.executable, "-m", "benchmarks.clock", "--smoke", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (cell,) = json.loads(out.read_text())["cells"]
    assert cell["one"] > 0
    assert cell["drawn"] > 1
    assert f"| {cell['policy']:>6} |" in done.stdout
