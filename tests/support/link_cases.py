"""What the tests of links share: one padded shape for all, runs of a network of seconds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import dtjax
from clock_cases import KEY, ROWS, WIDTH, N, batch
from dtjax import delays, network
from dtjax.policies import Rule

SERVERS = 3


@cache
def vectors() -> list[dict[str, Any]]:
    """Return all the vectors."""
    return json.loads(Path(__file__).with_name("schedules.json").read_text())


def wide(push: Any, n: int = N, servers: int = SERVERS) -> np.ndarray:
    """Return push seconds f[workers, servers] as f[n, servers]: an ingress more is as the first."""
    rows = np.asarray(push, np.float32)
    table = np.zeros((n, servers), np.float32)
    table[: len(rows), : rows.shape[1]] = rows
    table[:, rows.shape[1] :] = table[:, :1]
    return table


def numbers(case: dict[str, Any]) -> tuple[Any, ...]:
    """Return push, pull, latency, fold and apply of a vector in the padded shapes."""
    pull = np.zeros(N, np.float32)
    pull[: len(case["pull"])] = case["pull"]
    return wide(case["push"]), pull, *(np.float32(case[x]) for x in ("latency", "fold", "apply"))


def links(given: Sequence[Any], *, ordered: bool) -> network.Network:
    push, pull, latency, fold, apply = given
    made = network.fixed(push=push, pull=pull, latency=latency, fold=fold, apply=apply)
    return replace(made, ordered=ordered)


def play(
    table: Any,
    rule: Rule,
    updates: Any,
    until: Any,
    present: Any,
    given: Sequence[Any],
    rows: int = ROWS,
    *,
    ordered: bool,
) -> dtjax.Run:
    """Simulate one run, one event a gradient (`ordered`) or two."""
    cluster = dtjax.Cluster(
        len(table),
        delays.recorded(table),
        present=present,
        network=links(given, ordered=ordered),
    )
    return dtjax.simulate(KEY, cluster, rule, updates=updates, until=until, rows=rows, width=WIDTH)


def arguments(chosen: Sequence[dict[str, Any]]) -> tuple[Any, ...]:
    """Return the arguments of `play` for several vectors, each with a leading axis."""
    given = tuple(np.stack(x) for x in zip(*map(numbers, chosen), strict=True))
    return (*batch(chosen), given)
