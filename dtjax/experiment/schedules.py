"""Schedules of many arms under common random numbers: as few programs and calls as there can be."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from dtjax.clock.accounting import Accounts
from dtjax.clock.simulate import simulate
from dtjax.clock.status import DONE
from dtjax.clock.trace import Trace, trim
from dtjax.core import checks
from dtjax.experiment.arms import Entry
from dtjax.montecarlo.sharding import in_waves, spread
from dtjax.policies.rule import UNBOUNDED, Rule

SMALL = 2**17
"""Entries of a trace that is small: then all policies have traces of one shape, and one program."""
SIDE_BY_SIDE = 128
"""Clocks on a device."""


class Schedule(NamedTuple):
    """The runs of one arm in one world, on the host, with a leading axis of runs."""

    trace: Trace
    accounts: Accounts


class Shape(NamedTuple):
    """What decides the program of a clock, besides the structures of cluster and policy."""

    rows: int
    width: int
    policy: Any  # None: its numbers are traced


def schedules(
    entries: list[Entry],
    keys: jax.Array,
    *,
    until: float | None,
    gradients: int | None,
    mesh: Mesh | None = None,
) -> list[Schedule]:
    """Simulate every entry with every key.

    Args:
        entries: arms in worlds.
        keys: key[R]: run r has the same key in every entry.
        until: seconds of a run; None: no limit.
        gradients: used in a run, rounded to whole updates; None: no limit. One limit there must be.
        mesh: of devices; None: all the local ones.

    Raises:
        ValueError: if no update is made by `until`, or fewer gradients are asked than an update
            has.
        RuntimeError: if a run stops otherwise.
    """
    groups: dict[Any, list[int]] = defaultdict(list)
    policies = [_policy(entry) for entry in entries]
    for place, (entry, policy) in enumerate(zip(entries, policies, strict=True)):
        shape = _shape(entry, until, gradients)
        leaves, structure = jax.tree.flatten((entry.cluster, policy))
        groups[shape, structure, tuple(map(np.shape, leaves))].append(place)
    found: dict[int, Schedule] = {}
    for (shape, *_), places in groups.items():
        lanes = [(entries[place].cluster, policies[place]) for place in places]
        updates = [_updates(entries[place], shape, gradients) for place in places]
        many = _simulate(shape, lanes, updates, keys, until, gradients, mesh)
        for place, one in zip(places, many, strict=True):
            if not one.accounts.updates.any():
                rule = f"must be long enough for an update of {entries[place].arm!r}"
                raise checks.fail("compare", "until", rule, until)
            found[place] = one
    return [found[place] for place in range(len(entries))]


def _policy(entry: Entry) -> Any:
    """Return the policy with traced numbers; rules have all of them, so that one program does."""
    if not isinstance(entry.policy, Rule) or _collective(entry):
        return entry.policy
    rule = entry.policy
    return Rule(
        k=np.int32(UNBOUNDED if rule.k is None else rule.k),
        distinct=np.bool_(rule.distinct),
        cancel=np.bool_(rule.cancel),
        bound=np.int32(UNBOUNDED if rule.bound is None else rule.bound),
        max_staleness=None if rule.max_staleness is None else np.int32(rule.max_staleness),
    )


def _collective(entry: Entry) -> bool:
    network = entry.cluster.network
    return network is not None and network.collective


def _shape(entry: Entry, until: float | None, gradients: int | None) -> Shape:
    """Choose rows and width of a trace: powers of two, one shape for all where it is small."""
    most = 1024.0 if gradients is None else gradients
    mean = getattr(entry.cluster.delay, "mean", None)
    if gradients is None and until is not None and mean is not None:
        each = float(np.mean(mean()))
        most = 64 + 1.2 * until * entry.cluster.n / each if 0 < each < np.inf else most
    widest = max(entry.width, entry.cluster.n)
    rows, width = _power(most), entry.width
    if rows * widest <= SMALL:
        width = widest
    else:
        rows = _power(most / width)
    return Shape(rows, width, entry.policy if _collective(entry) else None)


def _power(size: float) -> int:
    return 1 << max(0, int(np.ceil(np.log2(max(size, 1.0)))))


def _updates(entry: Entry, shape: Shape, gradients: int | None) -> int:
    if gradients is None:
        return shape.rows
    if gradients < entry.width:
        rule = f"must be at least the {entry.width} of an update of {entry.arm!r}"
        raise checks.fail("compare", "gradients", rule, gradients)
    return gradients // entry.width


def _simulate(
    shape: Shape,
    lanes: list[Any],
    updates: list[int],
    keys: jax.Array,
    until: float | None,
    gradients: int | None,
    mesh: Mesh | None,
) -> list[Schedule]:
    """Simulate entries of one structure; rows double until they are enough for `until`."""
    runs = len(keys)
    end = jnp.asarray(np.inf if until is None else until, float)
    each = jax.tree.map(
        lambda *leaves: np.repeat(np.stack([np.asarray(x) for x in leaves]), runs, axis=0), *lanes
    )
    count = len(lanes) * runs
    own = (keys[np.tile(np.arange(runs), len(lanes))], *each)
    devices = len(jax.local_devices()) if mesh is None else mesh.size
    block = min(-(-count // devices), SIDE_BY_SIDE)
    while True:
        many = np.repeat(np.asarray(updates, np.int32), runs)
        run = in_waves(_clock(shape, mesh), (end,), (*own, many), count, block, mesh, None)
        run.check()
        if gradients is not None or not (run.status == DONE).any():
            break
        shape = shape._replace(rows=2 * shape.rows)
        updates = [shape.rows] * len(updates)

    def part(place: int) -> Schedule:
        mine = slice(place * runs, (place + 1) * runs)
        trace, accounts = jax.tree.map(lambda leaf: leaf[mine], (run.trace, run.accounts))
        return Schedule(trim(trace), accounts)

    return [part(place) for place in range(len(lanes))]


@lru_cache(maxsize=32)
def _clock(shape: Shape, mesh: Mesh | None) -> Any:
    """Compile the clock of one run."""

    def one(until: Any, key: Any, cluster: Any, policy: Any, updates: Any) -> Any:
        rule = policy if shape.policy is None else shape.policy
        run = simulate(
            key,
            cluster,
            rule,
            updates=updates,
            until=until,
            rows=shape.rows,
            width=shape.width,
        )
        return replace(run, trace=replace(run.trace, transit=None))  # training does not need it

    return spread(one, shared=1, mesh=mesh)
