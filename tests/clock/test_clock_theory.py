"""The clock by Monte Carlo against `dtjax.theory`: seconds, idle time and staleness.

Keys are fixed. Means of 128 runs are compared to 5 standard errors and distributions at a level of
1e-6: each comparison would fail by chance for about two keys in a million.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import dtjax
from dtjax import delays, policies, theory
from dtjax.core.protocols import COMPUTING
from dtjax.policies import Rule
from theory_laws import within

N, RUNS, LEVEL = 8, 128, 1e-6
SPEEDS = 1.0 / np.array([4.0, 2.0, 2.0, 1.0, 1.0, 1.0, 0.5, 0.5])  # mean seconds
EXPONENTIAL = delays.exponential(1.0)


class Setting(NamedTuple):
    """A line of the experiment: Weibull times of this shape (1: exponential), mean 1, scaled."""

    rule: Rule
    shape: float = 1.0
    unequal: bool = False
    n: int = N


class Runs(NamedTuple):
    """The runs of a setting, on the host."""

    run: dtjax.Run
    times: np.ndarray  # [RUNS, rows]
    stale: np.ndarray  # [RUNS, rows, K]


def law(shape: Any, by: Any = 1.0) -> Any:
    unit = delays.weibull(shape, 1.0)
    return delays.scaled(unit, by / unit.mean())


def play(settings: dict[str, Setting], rows: int, width: int) -> dict[str, Runs]:
    """Simulate all settings in one compile."""

    def one(key: jax.Array, shape: Any, by: Any, present: Any, rule: Rule) -> dtjax.Run:
        cluster = dtjax.Cluster(N, law(shape, by), present=present)
        return dtjax.simulate(key, cluster, rule, updates=rows, width=width)

    lines = [line for line in settings.values() for _ in range(RUNS)]
    keys = jax.random.split(jax.random.key(20260), len(lines))
    shapes = jnp.array([line.shape for line in lines])
    by = jnp.array([SPEEDS if line.unequal else np.ones(N) for line in lines], jnp.float32)
    present = jnp.array([np.arange(N) < line.n for line in lines])
    rules = policies.stack([line.rule for line in lines])
    runs = jax.jit(jax.vmap(one))(keys, shapes, by, present, rules).check(complete=True)
    times, stale = dtjax.seconds(runs.trace), np.asarray(dtjax.staleness(runs.trace))
    runs = jax.tree.map(np.asarray, runs)
    found = {}
    for i, name in enumerate(settings):
        own = slice(i * RUNS, (i + 1) * RUNS)
        part = jax.tree.map(lambda leaf, own=own: leaf[own], runs)
        found[name] = Runs(part, times[own], stale[own])
    return found


TABLE = {0: 2.7179, 1: 1.7926, 2: 1.5098, 4: 1.2964, 8: 1.1611, 16: 1.0842}
"""Seconds a clock of SSP(s), eight workers: derived and simulated independently, +-0.0001."""

SINGLES = {
    "asp": Setting(policies.asp()),
    "asp-unequal": Setting(policies.asp(), unequal=True),
    "asp-steady": Setting(policies.asp(), 2.0),
    "asp-bursty": Setting(policies.asp(), 0.5),
    **{f"ssp-{s}": Setting(policies.ssp(s)) for s in TABLE},
    **{f"pair-{s}": Setting(policies.ssp(s), n=2) for s in (0, 1, 3)},
}
SINGLE_ROWS = 3072
BURN = 1024

SEVERAL = {
    "bsp": Setting(policies.bsp()),
    "k-bsp": Setting(policies.k_bsp(4)),
    "k-batch-bsp": Setting(policies.k_batch_bsp(4)),
    "k-batch-bsp-12": Setting(policies.k_batch_bsp(12)),
    "k-asp": Setting(policies.k_asp(4)),
    "k-batch-asp": Setting(policies.k_batch_asp(4)),
    "bsp-steady": Setting(policies.bsp(), 2.0),
    "k-bsp-steady": Setting(policies.k_bsp(4), 2.0),
    "k-asp-steady": Setting(policies.k_asp(4), 2.0),
    "k-batch-asp-steady": Setting(policies.k_batch_asp(4), 2.0),
    "k-batch-asp-bursty": Setting(policies.k_batch_asp(4), 0.7),
}
SEVERAL_ROWS = 64


@cache
def every_single() -> dict[str, Runs]:
    return play(SINGLES, SINGLE_ROWS, 1)


@cache
def every_several() -> dict[str, Runs]:
    return play(SEVERAL, SEVERAL_ROWS, 12)


def singles(name: str) -> Runs:
    return every_single()[name]


def several(name: str) -> Runs:
    return every_several()[name]


EXACT = {
    "bsp": theory.bsp_seconds(EXPONENTIAL, N),
    "k-bsp": theory.k_bsp_seconds(EXPONENTIAL, N, 4),
    "k-batch-bsp": theory.exponential_k_batch_bsp_seconds(N, 4),
    "k-batch-bsp-12": theory.exponential_k_batch_bsp_seconds(N, 12),
    "k-asp": theory.exponential_k_asp_seconds(N, 4),
    "k-batch-asp": theory.k_batch_asp_seconds(EXPONENTIAL, N, 4),
    "bsp-steady": theory.bsp_seconds(law(2.0), N),
    "k-bsp-steady": theory.k_bsp_seconds(law(2.0), N, 4),
}


@pytest.mark.parametrize("name", EXACT)
def test_seconds_per_update(name: str) -> None:
    """These are exact from the first update on."""
    assert within(several(name).times[:, -1] / SEVERAL_ROWS, EXACT[name])
    assert within(several(name).times[:, 0], EXACT[name])


def test_seconds_per_update_of_asp() -> None:
    assert within(singles("asp").times[:, -1] / SINGLE_ROWS, theory.asp_seconds(EXPONENTIAL, N))
    rate = theory.unequal_asp_updates_per_second(SPEEDS)
    times = singles("asp-unequal").times
    assert within((times[:, -1] - times[:, BURN]) / (SINGLE_ROWS - 1 - BURN), 1 / rate)


@pytest.mark.parametrize("name", ["asp-steady", "asp-bursty"])
def test_fresh_start_of_asp(name: str) -> None:
    times, line = singles(name).times, law(SINGLES[name].shape)
    for updates in (64, 512):
        expected = theory.fresh_start_k_batch_asp_seconds(line, N, 1, updates)
        assert within(times[:, updates - 1], expected)
    # Without the transient it would not agree.
    assert not within(times[:, 63], 64 * theory.asp_seconds(line, N))


@pytest.mark.parametrize("name", ["k-batch-asp-steady", "k-batch-asp-bursty"])
def test_fresh_start_of_k_batch_asp(name: str) -> None:
    line = law(SEVERAL[name].shape)
    expected = theory.fresh_start_k_batch_asp_seconds(line, N, 4, SEVERAL_ROWS)
    assert within(several(name).times[:, -1], expected)


def test_steady_times_make_k_asp_no_slower_than_k_bsp() -> None:
    k_asp, k_bsp = several("k-asp-steady").times, several("k-bsp-steady").times
    assert k_asp[:, -1].mean() < k_bsp[:, -1].mean()


def test_times_of_updates_have_their_laws() -> None:
    dt = np.asarray(several("k-batch-bsp").run.trace.dt).ravel()
    cdf = lambda t: theory.exponential_k_batch_bsp_cdf(t, N, 4)  # noqa: E731
    assert stats.kstest(dt, cdf).pvalue > LEVEL
    for name, k in (("bsp", N), ("k-bsp", 4), ("k-asp", 4)):
        dt = np.asarray(several(name).run.trace.dt).ravel()
        variance = theory.exponential_order_statistic_variance(N, k)
        square = (dt - theory.exponential_order_statistic_mean(N, k)) ** 2
        assert within(square, variance)


def staleness(runs: Runs, every: int) -> np.ndarray:
    """Take one gradient of every so many updates: far enough apart to be independent."""
    rows = runs.stale[:, runs.stale.shape[1] // 4 :: every]
    place = np.arange(rows.shape[0])[:, None] + np.arange(rows.shape[1])
    used = int((np.asarray(runs.run.trace.examples[0, 0]) > 0).sum())
    return np.take_along_axis(rows, (place % used)[..., None], -1).ravel()


@pytest.mark.parametrize(
    ("runs", "every", "law"),
    [
        (lambda: singles("asp"), 256, lambda j: theory.exponential_asp_staleness_pmf(j, N)),
        (lambda: several("k-asp"), 12, lambda j: theory.exponential_k_asp_staleness_pmf(j, N, 4)),
        (
            lambda: several("k-batch-asp"),
            12,
            lambda j: theory.exponential_k_batch_asp_staleness_pmf(j, N, 4),
        ),
    ],
    ids=["asp", "k-asp", "k-batch-asp"],
)
def test_staleness_has_its_law(runs: Any, every: int, law: Any) -> None:
    found = staleness(runs(), every)
    levels = np.arange(found.max() + 2)
    expected = len(found) * law(levels)
    last = int(np.searchsorted(-expected, -20.0))  # the bins from here on are one
    expected = np.append(expected[:last], len(found) - expected[:last].sum())
    count = np.bincount(np.minimum(found, last), minlength=last + 1)
    assert stats.chisquare(count, expected).pvalue > LEVEL


@pytest.mark.parametrize(
    ("runs", "mean"),
    [
        (lambda: singles("asp"), theory.asp_mean_staleness(N)),
        (lambda: singles("asp-unequal"), theory.asp_mean_staleness(N)),
        (lambda: singles("asp-bursty"), theory.asp_mean_staleness(N)),
        (lambda: several("k-asp"), theory.k_asp_mean_staleness(N, 4)),
        (lambda: several("k-asp-steady"), theory.k_asp_mean_staleness(N, 4)),
        (lambda: several("k-batch-asp"), theory.k_batch_asp_mean_staleness(N, 4)),
        (lambda: several("k-batch-asp-steady"), theory.k_batch_asp_mean_staleness(N, 4)),
        (lambda: several("bsp"), theory.synchronous_mean_staleness(N, N)),
        (lambda: several("k-batch-bsp"), theory.synchronous_mean_staleness(N, 4)),
    ],
)
def test_mean_staleness(runs: Any, mean: float) -> None:
    made = runs()
    used = made.run.trace.valid.sum(-1)[0, 0]
    half = made.stale.shape[1] // 2
    assert within(made.stale[:, half:].sum(-1).mean(-1) / used, mean)


def test_mean_staleness_of_unequal_workers() -> None:
    trace, stale = singles("asp-unequal").run.trace, singles("asp-unequal").stale
    late = np.s_[:, BURN:, 0]
    for worker, expected in enumerate(theory.unequal_asp_mean_staleness(1 / SPEEDS)):
        own = trace.worker[late] == worker
        assert within((stale[late] * own).sum(1) / own.sum(1), expected)


NO_WAITING = [name for name in (*SINGLES, *SEVERAL) if name.startswith(("asp", "k-batch-asp"))]
K_ASP = [name for name in SEVERAL if name.startswith("k-asp")]


@pytest.mark.parametrize("name", [*NO_WAITING, *K_ASP])
def test_staleness_is_conserved(name: str) -> None:
    """On every path: what the used gradients have, and what is under way has so far."""
    run, _, stale = (singles if name in SINGLES else several)(name)
    updates = run.trace.dt.shape[1]
    _, read, _, phase = np.split(run.clock.counts, 4, axis=-1)
    lags = ((updates - read) * (phase == COMPUTING)).sum(-1)
    one = theory.asp_staleness_sum(N, updates)
    expected = theory.k_asp_staleness_sum(N, 4, updates) if name in K_ASP else one
    assert (stale.sum((1, 2)) + lags == expected).all()


def clock_seconds(runs: Runs, n: int) -> np.ndarray:
    """Return the seconds of one computation of each of n workers, after the start is forgotten."""
    return (runs.times[:, -1] - runs.times[:, BURN]) * n / (SINGLE_ROWS - 1 - BURN)


@pytest.mark.parametrize("bound", TABLE)
def test_ssp_of_eight_workers(bound: int) -> None:
    runs = singles(f"ssp-{bound}")
    found = clock_seconds(runs, N)
    error = found.std(ddof=1) / np.sqrt(RUNS)
    assert abs(found.mean() - TABLE[bound]) < 5 * error + 1e-4
    assert error < 0.01 * TABLE[bound]
    assert runs.stale.max() <= theory.ssp_staleness_bound(N, bound)
    if bound == 0:
        assert TABLE[0] == pytest.approx(
            theory.lockstep_ssp_clock_seconds(EXPONENTIAL, N), abs=1e-4
        )


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_ssp_of_two_workers(bound: int) -> None:
    runs = singles(f"pair-{bound}")
    assert within(1 / clock_seconds(runs, 2), theory.two_worker_ssp_clocks_per_second(bound))
    accounts = runs.run.accounts
    idle = accounts.waiting.sum(-1) / (2 * accounts.elapsed)
    assert within(idle, theory.two_worker_ssp_idle_fraction(bound))
    stale = runs.stale[:, BURN:, 0].mean(1)
    assert within(stale, theory.two_worker_ssp_mean_staleness(bound))


def test_utilisation_of_bsp() -> None:
    for name in ("bsp", "bsp-steady"):
        accounts = several(name).run.accounts
        share = theory.bsp_utilisation(law(SEVERAL[name].shape), N)
        useful, elapsed = accounts.useful.sum(-1), accounts.elapsed
        assert within(useful - share * N * elapsed, 0.0)
