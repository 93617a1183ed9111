"""The trainer on quadratics, in binary64, beside a naive loop that keeps every version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dtjax
import replay_oracle as oracle
from dtjax.clock.from_events import full_history
from dtjax.training.task import Task, quadratic
from replays import CURVE, KEY, ROWS, RULES, START, N, lane, pulls, runs, task, traces


@pytest.fixture(autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def replay(trace: Any, problem: Task, optimizer: Any, every: int = 1, params: Any = None) -> Any:
    """Train along one trace, in one compile."""

    def one(t: Any, p: Any) -> Any:
        return dtjax.replay(KEY, t, problem, optimizer, evaluate_every=every, params=p)

    return jax.jit(one)(trace, params)


def told(power: Any) -> Any:
    """Make an optimizer of what the trainer tells it: g / ((1 + staleness)(1 + loss^2))^power."""

    def update(updates: Any, state: Any, params: Any = None, **told: Any) -> Any:
        del params
        factor = ((1 + told["staleness"]) * (1 + told["value"] ** 2)) ** -power
        return jax.tree.map(lambda g: g * factor, updates), state

    return optax.GradientTransformationExtraArgs(lambda params: (), update)


class Numbers(NamedTuple):
    """An optimizer of the sgd family as numbers, so that all of them are lanes of one compile."""

    rate: Any
    momentum: Any
    power: Any

    def make(self) -> Any:
        sgd = optax.sgd(self.rate, momentum=self.momentum)
        return optax.chain(told(self.power), sgd)


FAMILY = {
    "sgd": Numbers(0.1, 0.0, 0.0),
    "momentum": Numbers(0.05, 0.9, 0.0),
    "told": Numbers(0.3, 0.0, 1.0),
}


def train_family(trace: Any) -> dict[str, Any]:
    """Train all the lanes of a batch of traces with each optimizer, measured at every update."""

    @jax.jit
    def all_of_them(trace: Any, numbers: Numbers) -> Any:
        def one(t: Any, mine: Numbers) -> Any:
            return dtjax.replay(KEY, t, task(), mine.make(), evaluate_every=1)

        return jax.vmap(jax.vmap(one, (0, None)), (None, 0))(trace, numbers)

    numbers = Numbers(*(jnp.array(column) for column in zip(*FAMILY.values(), strict=True)))
    found = jax.tree.map(np.asarray, all_of_them(trace, numbers))
    return {name: jax.tree.map(lambda leaf, i=i: leaf[i], found) for i, name in enumerate(FAMILY)}


@cache
def trained() -> dict[str, Any]:
    with jax.enable_x64(True):
        one = jax.vmap(lambda t: dtjax.replay(KEY, t, task(), optax.adam(0.1), evaluate_every=1))
        return train_family(traces()) | {"adam": jax.tree.map(np.asarray, jax.jit(one)(traces()))}


def reference(name: str) -> oracle.Step:
    if name == "adam":
        return oracle.adam(0.1)
    rate, momentum, power = FAMILY[name]
    sgd = oracle.sgd(rate, momentum)

    def step(gradient: np.ndarray, staleness: float, loss: float) -> np.ndarray:
        factor = ((1 + staleness) * (1 + loss**2)) ** -power
        return sgd(gradient * factor, staleness, loss)

    return step


@pytest.mark.parametrize("name", [*FAMILY, "adam"])
def test_every_version_is_that_of_a_loop_with_full_history(name: str) -> None:
    found, pull = trained()[name], pulls()
    for i, rule in enumerate(RULES):
        rows = oracle.entries(lane(i))
        played = oracle.play(rows, CURVE, START, pull, reference(name))
        made = len(rows)
        assert made < ROWS if "until" in rule else made == ROWS
        np.testing.assert_allclose(found.loss[i, :made], played.losses, rtol=1e-10, atol=1e-10)
        assert np.isnan(found.loss[i, made:]).all()
        square = found.measures["square"][i]
        np.testing.assert_allclose(square[: made + 1], played.versions**2, rtol=1e-10, atol=1e-10)
        assert (square[made:] == square[made]).all()  # nothing moves after the last update
        np.testing.assert_allclose(found.params[i], played.versions[-1], rtol=1e-10, atol=1e-10)
        assert found.updates[i].tolist() == [min(t, made) for t in range(ROWS + 1)]
        sizes = [len(row) for row in rows] + [0] * (ROWS - made)
        assert found.gradients[i].tolist() == [0, *np.cumsum(sizes)]
        assert found.diverged[i] == -1


def test_the_lanes_cover_what_can_go_wrong() -> None:
    rows = {rule: oracle.entries(lane(i)) for i, rule in enumerate(RULES)}
    twice = [row for row in rows["k-batch-bsp"] if len({e.worker for e in row}) < len(row)]
    assert twice, "no worker delivers twice in one row"
    assert any(row[0].worker == row[1].worker for row in twice), "not twice running"
    lost = dict(
        zip(
            RULES,
            zip(runs().accounts.discarded_count, runs().accounts.cancelled_count, strict=True),
            strict=True,
        )
    )
    for rule in ("asp, cut-off", "k-asp, cut-off", "k-bsp, not pre-empted"):
        assert lost[rule][0].sum() > 0, f"{rule}: nothing was discarded"
    for rule in ("k-bsp", "k-batch-bsp"):
        assert lost[rule][1].sum() > 0, f"{rule}: nothing was cancelled"
    sizes = {e.examples for row in rows["k-asp"] for e in row}
    assert len(sizes) > 2, "mini-batches are equal"


def test_full_history_gives_the_same_training() -> None:
    whole = jax.vmap(full_history)(traces())
    assert whole.slots == ROWS + 1 and traces().slots == N
    for name, history in train_family(whole).items():
        slots = trained()[name]
        np.testing.assert_allclose(slots.loss, history.loss, rtol=1e-10, atol=1e-10)
        assert (slots.params == history.params).all()  # bit for bit
        assert (slots.measures["square"] == history.measures["square"]).all()


def test_stale_gradients_are_those_of_the_version_that_was_read() -> None:
    # The first five updates of ASP with compute times 2, 5 and 7, by hand.
    read = [0, 1, 0, 2, 0]
    trace = dtjax.make_trace(
        dt=[2.0, 2.0, 1.0, 1.0, 1.0],
        worker=[[0], [0], [1], [0], [2]],
        version=[[version] for version in read],
    )
    assert dtjax.staleness(trace)[:, 0].tolist() == [0, 0, 2, 1, 4]
    a, w = 0.3, [1.0]
    for version in read:
        w.append(w[-1] - a * w[version])
    result = replay(trace, quadratic([1.0], start=1.0), optax.sgd(a))
    np.testing.assert_allclose(result.measures["square"][:, 0], np.square(w), rtol=1e-14)
    np.testing.assert_allclose(result.loss, [w[version] ** 2 / 2 for version in read], rtol=1e-14)


def test_one_worker_is_plain_sgd() -> None:
    steps = np.arange(20)[:, None]
    trace = dtjax.make_trace(dt=np.ones(20), worker=0 * steps, version=steps)
    w = [START]
    for t in range(20):
        w.append(w[-1] - 0.1 * (CURVE * w[-1] + pulls()(0, t, 1.0)))
    result = replay(trace, task(), optax.sgd(0.1))
    assert trace.slots == 1
    np.testing.assert_allclose(result.measures["square"], np.square(w), rtol=1e-12, atol=1e-14)


def classifier() -> tuple[Task, Any]:
    """Make a small task and its parameters, all in binary64."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)), rng.integers(0, 4, 60)
    data = dtjax.data.Data(x[:40], y[:40], x[40:50], y[40:50], x[50:], y[50:])
    problem = dtjax.task.classification(dtjax.models.mlp([5], 4), data, batch=6)
    params = jax.jit(problem.init)(problem.data, jax.random.key(1))
    return problem, jax.tree.map(lambda leaf: jnp.asarray(leaf, float), params)


def test_bsp_is_sgd_on_the_union_of_the_batches() -> None:
    problem, first = classifier()
    updates = 8
    trace = jax.tree.map(lambda leaf: leaf[:updates] if leaf.ndim else leaf, lane(0))
    result = replay(trace, problem, optax.sgd(0.5), every=4 * N, params=first)
    batches = jax.random.split(jax.random.wrap_key_data(KEY))[1]

    @jax.jit
    def step(params: Any, t: Any) -> Any:
        drawn = [problem.batch(problem.data, batches, w, t, w + 1.0) for w in range(N)]
        union = jax.tree.map(lambda *parts: jnp.concatenate(parts), *drawn)
        loss, gradient = jax.value_and_grad(problem.loss)(params, union)
        return loss, jax.tree.map(lambda p, g: p - 0.5 * g, params, gradient)

    params, losses = first, []
    for t in range(updates):
        loss, params = step(params, t)
        losses.append(loss)
    np.testing.assert_allclose(result.loss, losses, rtol=1e-12)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), result.params, params)
    assert result.updates.tolist() == [0, 4, 8]
    measured = jax.jit(problem.evaluate)(problem.data, params)
    np.testing.assert_allclose(result.measures["test_loss"][-1], measured["test_loss"], rtol=1e-12)


def test_a_run_that_diverges_says_when_and_harms_nobody() -> None:
    problem = quadratic(CURVE, start=START)
    trace = jax.tree.map(lambda leaf: np.repeat(leaf[1:2], 3, axis=0), traces())

    @jax.jit
    @jax.vmap
    def several(t: Any, rate: Any) -> Any:
        return dtjax.replay(KEY, t, problem, optax.sgd(rate), evaluate_every=1)

    calm = several(trace, jnp.array([0.1, 0.2, 0.3]))
    wild = several(trace, jnp.array([0.1, 1e40, 0.3]))
    for place in (0, 2):
        jax.tree.map(lambda a, b, i=place: np.testing.assert_array_equal(a[i], b[i]), calm, wild)
    assert (calm.diverged == -1).all()
    when = int(wild.diverged[1])
    assert 0 < when < ROWS
    losses, squares = wild.loss[1], wild.measures["square"][1]
    assert np.isfinite(losses[:when]).all()  # the step overflows, before or with the loss
    assert np.isfinite(wild.params[1]).all()  # the last finite version
    assert np.isnan(squares[when + 1 :]).all()
    assert not np.isnan(squares[: when + 1]).any()
    assert wild.updates[1].tolist() == list(range(ROWS + 1))


def test_an_update_that_overflows_is_a_divergence() -> None:
    # The gradient is finite, the step is not: the parameters must not become infinite unseen.
    trace = dtjax.make_trace(dt=[1.0], worker=[[0]], version=[[0]])
    result = replay(trace, quadratic([1.0], start=1e100), optax.sgd(1e250))
    assert np.isfinite(result.loss[0])
    assert int(result.diverged) == 0
    assert float(result.params[0]) == 1e100
    assert np.isnan(result.measures["loss"][-1])


def test_a_gradient_that_the_optimizer_mends_is_no_divergence() -> None:
    # The slope of |w| as sqrt(w^2) is NaN at 0, its value is not.
    plain = quadratic([1.0], start=0.0)
    problem = replace(plain, loss=lambda w, batch: jnp.sum(jnp.sqrt(w**2)))
    trace = dtjax.make_trace(dt=[1.0, 1.0], worker=[[0], [0]], version=[[0], [1]])

    @jax.jit
    def both(trace: Any) -> Any:
        mending = optax.chain(optax.zero_nans(), optax.sgd(0.1))
        return [
            dtjax.replay(KEY, trace, problem, optimizer, evaluate_every=1)
            for optimizer in (optax.sgd(0.1), mending)
        ]

    broken, mended = both(trace)
    assert (int(broken.diverged), int(mended.diverged)) == (0, -1)
    assert broken.params.tolist() == mended.params.tolist() == [0.0]
    assert np.isfinite(mended.measures["loss"]).all()


@pytest.mark.parametrize(("every", "rows"), [(2 * N + 3, 2), (10_000, ROWS)])
def test_evaluations_come_after_whole_rows(every: int, rows: int) -> None:
    trace = lane(0)  # BSP: N gradients a row
    result = replay(trace, task(), optax.sgd(0.1), every)
    assert result.updates.tolist() == [*range(0, ROWS, rows), ROWS]
    assert result.gradients.tolist() == [N * u for u in result.updates.tolist()]
    assert result.loss.shape == (ROWS,)


def test_bad_input() -> None:
    def go(trace: Any, every: Any) -> None:
        dtjax.replay(KEY, trace, task(), optax.sgd(0.1), evaluate_every=every)

    with pytest.raises(ValueError, match=r"replay: evaluate_every must be .* 1 or more, got 0"):
        go(lane(0), 0)
    with pytest.raises(ValueError, match=r"replay: trace must be one run"):
        go(traces(), 1)
    with pytest.raises(ValueError, match=r"replay: trace must start at version 0, got 4"):
        go(replace(lane(0), start=jnp.int32(4)), 1)
