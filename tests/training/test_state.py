"""Models with running statistics and random masks, beside the loops that users write."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import dtjax
from dtjax import models
from dtjax.training.replay import advance, begin
from dtjax.training.task import Version
from dtjax.training.update import rows_of
from stateful import ROWS, LinenNet, Net, X, adamw, alone, close, keys, problem, train


def test_one_worker_is_the_training_loop_of_an_nnx_user() -> None:
    task, (_, first, batches) = problem(Net), keys()
    result = train(task, alone(), adamw())

    model = Net(rngs=nnx.Rngs(first))
    optimizer = nnx.Optimizer(model, adamw(), wrt=nnx.Param)

    @nnx.jit
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        loss, gradient = nnx.value_and_grad(lambda m: jnp.mean((m(x) - y) ** 2))(model)
        optimizer.update(model, gradient)
        return loss

    draw, losses = jax.jit(task.batch), []
    model.train()
    for t in range(ROWS):
        x, y, _, _ = draw(task.data, batches, 0, t, 16.0)
        losses.append(step(model, optimizer, x, y))
    close(result.loss, jnp.stack(losses))
    close(result.params.params, nnx.state(model, nnx.Param))
    close(result.params.state, nnx.state(model, nnx.BatchStat))
    model.eval()
    sets = task.data[0]
    tested = jnp.mean((model(sets.x_test) - sets.y_test) ** 2)
    close(result.measures["test_loss"][-1], tested)
    assert abs(float(result.loss[-1] / losses[0]) - 1) > 0.1  # something was learned


def linen_loop(task: dtjax.Task, first: Any, batches: Any) -> Any:
    """Train a Linen module as its documents do."""
    model, optimizer = LinenNet(), adamw()

    @jax.jit
    def step(params: Any, state: Any, memory: Any, drawn: Any) -> Any:
        x, y, _, _ = drawn

        def loss(params: Any) -> Any:
            kept = {"params": params, "batch_stats": state}
            out, after = model.apply(kept, x, train=True, mutable=["batch_stats"])
            return jnp.mean((out - y) ** 2), after["batch_stats"]

        (_, state), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        change, memory = optimizer.update(gradient, memory, params)
        return optax.apply_updates(params, change), state, memory

    variables = model.init(first, X[:1], train=False)
    params, state = variables["params"], variables["batch_stats"]
    memory, draw = optimizer.init(params), jax.jit(task.batch)
    for t in range(ROWS):
        params, state, memory = step(params, state, memory, draw(task.data, batches, 0, t, 16.0))
    return params, state


@pytest.mark.slow
def test_one_worker_is_the_training_loop_of_a_linen_user() -> None:
    task, (_, first, batches) = problem(LinenNet()), keys()
    result = train(task, alone(), adamw())
    params, state = linen_loop(task, first, batches)
    close(result.params.params, params)
    close(result.params.state["batch_stats"], state)


def statistics(version: Version) -> tuple[np.ndarray, np.ndarray]:
    norm = version.state["norm"]
    return np.asarray(norm["mean"][...], np.float64), np.asarray(norm["var"][...], np.float64)


@cache
def stale() -> tuple[dtjax.Task, Any, Any]:
    """Train along a trace of two workers with stale rows of two gradients of unequal sizes."""
    task = problem(Net)
    trace = dtjax.make_trace(
        dt=np.ones(4),
        worker=[[0, 1], [0, 1], [1, 0], [1, 0]],
        version=[[0, 0], [0, 1], [1, 0], [0, 3]],
        examples=[[16, 4], [8, 16], [16, 0], [3, 12]],
    )
    return task, trace, train(task, trace, optax.sgd(0.05), evaluate_every=2)


def test_the_server_keeps_the_running_mean_of_the_batches_that_it_uses() -> None:
    # Worked out from the statistics of the mini-batches alone, at the versions that were read.
    task, trace, result = stale()
    _, first, batches = keys()
    optimizer = optax.sgd(0.05)
    state = begin(keys()[0], task, optimizer, trace.workers, trace.slots)
    turn = jax.jit(lambda state, row: advance(keys()[0], state, row, task, optimizer)[0])
    versions = [jax.jit(task.init)(task.data, first).params]
    for t in range(3):  # the parameters of each version: their updates are tested elsewhere
        state = turn(state, jax.tree.map(lambda x, t=t: x[t : t + 1], rows_of(trace)))
        versions.append(state.params.params)
    draw = jax.jit(task.batch)
    mean, var = np.zeros(8), np.ones(8)
    for t in range(4):
        means, variances, sizes = [], [], np.asarray(trace.examples[t])
        for j in range(2):
            who, step = int(trace.worker[t, j]), int(trace.step[t, j])
            x = np.asarray(draw(task.data, batches, who, step, 16.0)[0], np.float64)
            read = versions[int(trace.version[t, j])]["first"]
            hidden = x @ np.asarray(read["kernel"][...])
            means.append(hidden.mean(0))
            variances.append(hidden.var(0))
        weights = sizes / sizes.sum()
        mean = 0.8 * mean + 0.2 * (weights @ np.array(means))
        var = 0.8 * var + 0.2 * (weights @ np.array(variances))
    found = statistics(result.params)
    np.testing.assert_allclose(found[0], mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], var, rtol=1e-4)


@pytest.mark.slow
def test_statistics_stay_positive_where_staleness_is_long() -> None:
    # Differences to the version read, added up, would swing: 0.2 x 40 updates of staleness.
    t = np.arange(160)[:, None]
    trace = dtjax.make_trace(
        dt=np.ones(160), worker=t % 41, version=np.maximum(t - 40, 0), examples=16.0
    )
    result = train(problem(Net), trace, optax.sgd(0.001), evaluate_every=160)
    assert int(result.diverged) == -1
    mean, var = statistics(result.params)
    assert (var > 0).all() and var.max() < 30 and np.abs(mean).max() < 10


@pytest.mark.parametrize(
    ("made", "plain"),
    [(partial(Net, 0.5), Net), (LinenNet(0.5), LinenNet())],
    ids=["NNX", "Linen"],
)
def test_masks_are_drawn_for_each_worker_and_step_and_not_in_evaluation(
    made: Any, plain: Any
) -> None:
    model = models.from_flax(made)
    task, (_, first, batches) = problem(model), keys()
    version, x = jax.jit(task.init)(task.data, first), jnp.asarray(X[:16])

    @jax.jit
    def run(worker: Any, step: Any, seed: Any) -> Any:
        drawn = task.batch(task.data, jax.random.fold_in(batches, seed), worker, step, 16.0)
        assert model.train is not None
        return model.train(version, x, drawn[3])[0]

    names = [(0, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 1)]
    outputs = [np.asarray(run(*name)).tobytes() for name in names]
    assert len(set(outputs)) == 4
    assert outputs == [np.asarray(run(*name)).tobytes() for name in names]
    close(model.apply(version, x), models.from_flax(plain).apply(version, x))


def test_masks_of_two_layers_and_of_the_draw_are_their_own() -> None:
    class Two(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.one = nnx.Dropout(0.5, rngs=rngs)
            self.two = nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            return jnp.stack([self.one(x), self.two(x)])

    model = models.from_flax(Two)
    assert model.train is not None
    version = model.init(jax.random.key(0), jnp.ones((1, 3)))
    many = jax.vmap(lambda key: model.train(version, jnp.ones((50, 8)), key)[0])
    kept = np.asarray(jax.jit(many)(jax.random.split(jax.random.key(1), 40))) > 0
    # 16,000 fair coins each; five standard deviations of their means, 0.004: 1 in 10^6.
    for coins in (kept[:, 0], kept[:, 1], kept[:, 0] == kept[:, 1], kept[1:, 0] == kept[:-1, 0]):
        assert abs(coins.mean() - 0.5) < 5 * 0.5 / np.sqrt(coins.size)


def test_evaluation_takes_the_running_statistics() -> None:
    task, _, result = stale()
    mean, var = statistics(result.params)
    p = jax.tree.map(np.asarray, nnx.to_pure_dict(result.params.params))
    x, y = task.data[0].x_test, task.data[0].y_test
    hidden = np.asarray(x) @ p["first"]["kernel"]
    normal = (hidden - mean) / np.sqrt(var + 1e-5) * p["norm"]["scale"] + p["norm"]["bias"]
    out = np.maximum(normal, 0) @ p["last"]["kernel"] + p["last"]["bias"]
    np.testing.assert_allclose(
        result.measures["test_loss"][-1], np.mean((out - np.asarray(y)) ** 2), rtol=1e-4
    )


def test_compressors_see_gradients_alone() -> None:
    task, trace, plain = stale()
    silent = dtjax.compressors.error_feedback(dtjax.compressors.top_k(1.0))
    result = train(task, trace, optax.sgd(0.05), evaluate_every=2, encoder=silent, downlink=silent)
    close(plain, result)
    shapes = jax.eval_shape(task.init, task.data, keys()[0]).params
    memory = jax.eval_shape(silent.memory, shapes)
    assert len(jax.tree.leaves(memory)) == len(jax.tree.leaves(shapes))


def test_a_training_goes_on_from_its_last_version() -> None:
    task, trace, result = stale()
    more = train(task, trace, optax.sgd(0.05), params=result.params)
    close(more.measures["test_loss"][0], result.measures["test_loss"][-1])


def test_an_nnx_module_that_is_made_starts_every_run() -> None:
    module = Net(0.5, rngs=nnx.Rngs(7))
    own = nnx.state(module, nnx.Param)
    task = problem(module)
    for seed in (0, 1):
        version = jax.jit(task.init)(task.data, jax.random.key(seed))
        jax.tree.map(np.testing.assert_array_equal, version.params, own)
    assert not module.drop.deterministic  # the user's module keeps its mode
    result = train(task, alone(), optax.sgd(0.05))
    assert float(result.measures["test_loss"][-1]) < float(result.measures["test_loss"][0])
    other = problem(Net(0.5, rngs=nnx.Rngs(8)))
    assert jax.tree.structure(task) == jax.tree.structure(other)  # its values are no structure
