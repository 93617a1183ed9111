"""The encoder's seam: what workers do to their gradients, with a memory for each, in binary64."""

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

import replay_oracle as oracle
from dtjax.training.replay import advance, begin
from dtjax.training.task import Task
from dtjax.training.update import rows_of
from replays import CURVE, KEY, RULES, START, N, lane, pulls, task, traces


@pytest.fixture(autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


class Memory(NamedTuple):
    """What the encoder of these tests keeps of a worker."""

    residual: jax.Array  # f[d]
    sent: jax.Array  # f[d] the sum of its messages
    last: jax.Array  # f[3] step, staleness and examples of its last gradient


class TopK(NamedTuple):
    """Top-k with error feedback."""

    k: int

    def memory(self, params: jax.Array) -> Memory:
        return Memory(jnp.zeros_like(params), jnp.zeros_like(params), jnp.full(3, -1.0))

    def encode(self, state: Memory, gradient: jax.Array, extras: Any) -> Any:
        whole = gradient + state.residual
        kept = jax.lax.top_k(jnp.abs(whole), self.k)[1]
        message = jnp.zeros_like(whole).at[kept].set(whole[kept])
        last = jnp.stack([extras.step, extras.staleness, extras.examples]).astype(float)
        return Memory(whole - message, state.sent + message, last), message


class Identity(NamedTuple):
    """Send gradients as they are."""

    def memory(self, params: Any) -> tuple[()]:
        return ()

    def encode(self, state: tuple[()], gradient: Any, extras: Any) -> Any:
        return state, gradient


def state_after(problem: Task, optimizer: Any, trace: Any, encoder: Any = None) -> Any:
    """Train all the lanes and return everything that the next update would need."""

    def one(t: Any) -> Any:
        state = begin(KEY, problem, optimizer, t.workers, t.slots, encoder)
        return advance(KEY, state, rows_of(t), problem, optimizer, encoder)[0]

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(trace))


@cache
def compressed() -> Any:
    with jax.enable_x64(True):
        return state_after(task(), optax.adam(0.1), traces(), TopK(1))


def test_error_feedback_loses_nothing_under_any_policy() -> None:
    state, pull = compressed(), pulls()
    for i, rule in enumerate(RULES):
        rows, memory = oracle.entries(lane(i)), {}
        encode = oracle.top_k(1, memory)
        played = oracle.play(rows, CURVE, START, pull, oracle.adam(0.1), encode)
        np.testing.assert_allclose(state.params[i], played.versions[-1], atol=1e-10, err_msg=rule)
        for worker in range(N):
            residual, sent, last = (leaf[i, worker] for leaf in state.memory)
            mine = [(t, e) for t, row in enumerate(rows) for e in row if e.worker == worker]
            if not mine:  # all its work was cancelled or discarded: as if it had never happened
                assert not residual.any() and not sent.any() and (last == -1).all()
                continue
            np.testing.assert_allclose(residual, memory[worker], atol=1e-10, err_msg=rule)
            np.testing.assert_allclose(sent + residual, played.used[worker], atol=1e-10)
            t, entry = mine[-1]
            assert last.tolist() == [entry.step, t - entry.version, entry.examples]


def test_the_identity_encoder_changes_no_bit() -> None:
    problem = task()
    plain = state_after(problem, optax.adam(0.1), traces())
    encoded = state_after(problem, optax.adam(0.1), traces(), Identity())
    jax.tree.map(np.testing.assert_array_equal, plain, encoded)


def test_what_stands_in_padding_does_not_matter() -> None:
    # Steps of 10,000 and more give NaN; they stand in padding alone.
    clean = task()

    def batch(*args: Any) -> Any:
        curve, pull = clean.batch(*args)
        return curve, jnp.where(args[3] >= 10_000, jnp.nan, pull)

    dirty = replace(clean, batch=batch)
    trace = traces()
    pad = ~trace.valid
    garbage = replace(
        trace,
        worker=np.where(pad, N - 1, trace.worker),
        step=np.where(pad, 10_000, trace.step),
        version=np.where(pad, 77, trace.version),
        slot=np.where(pad, N - 1, trace.slot),
        into=np.where(trace.made, trace.into, 0),
    )
    before, after = compressed(), state_after(dirty, optax.adam(0.1), garbage, TopK(1))
    jax.tree.map(np.testing.assert_array_equal, before, after)
    made = trace.made.sum(-1)
    assert before.optimizer[0].count.tolist() == made.tolist() == before.version.tolist()
    assert (before.gradients == trace.valid.sum((-1, -2))).all()
