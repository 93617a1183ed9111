"""Flows that share one link, against event loops in fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given

from dtjax import sharing


def one_by_one(ready: list[Fraction], seconds: list[Fraction]) -> list[Fraction]:
    done, free = [Fraction(0)] * len(ready), None
    for i in sorted(range(len(ready)), key=lambda i: (ready[i], i)):
        free = (ready[i] if free is None else max(ready[i], free)) + seconds[i]
        done[i] = free
    return done


def all_at_once(ready: list[Fraction], seconds: list[Fraction]) -> list[Fraction]:
    """Serve what is left of each flow, from event to event."""
    left, done, now = list(seconds), list(ready), min(ready)
    waiting = {i for i, s in enumerate(seconds) if s}
    while waiting:
        here = [i for i in waiting if ready[i] <= now]
        events = [ready[i] - now for i in waiting if ready[i] > now]
        events += [left[i] * len(here) for i in here]
        for i in here:
            left[i] -= min(events) / len(here)
        now += min(events)
        for i in here:
            if not left[i]:
                done[i] = now
                waiting.remove(i)
    return done


DISCIPLINES = {sharing.first_in_first_out: one_by_one, sharing.processor_sharing: all_at_once}
JITTED = {discipline: jax.jit(discipline) for discipline in DISCIPLINES}
QUARTERS = st.integers(0, 60).map(lambda i: Fraction(i, 4))
WIDEST = 9
FLOWS = st.lists(st.tuples(QUARTERS, QUARTERS), min_size=1, max_size=WIDEST)


def play(discipline: Any, flows: list[tuple[Fraction, Fraction]]) -> np.ndarray:
    """Compute when flows are done, behind some that never come and change nothing for them."""
    padded = np.full((2, WIDEST + 1), [[math.inf], [7.0]])
    padded[:, -len(flows) :] = np.array(flows, float).T
    done = np.asarray(JITTED[discipline](*padded))
    assert np.all(done[: -len(flows)] == math.inf)
    return done[-len(flows) :]


@pytest.mark.parametrize("discipline", DISCIPLINES)
@given(FLOWS)
@example([(Fraction(0), Fraction(0))])
@example([(Fraction(1), Fraction(2))] * 9)
def test_links_against_event_loops(discipline: Any, flows: list[tuple[Fraction, Fraction]]) -> None:
    exact = DISCIPLINES[discipline](*map(list, zip(*flows, strict=True)))
    done = play(discipline, flows)
    np.testing.assert_allclose(done, np.array(exact, float), rtol=3e-6, atol=1e-6)


@given(FLOWS)
def test_the_last_is_done_at_the_same_time(flows: list[tuple[Fraction, Fraction]]) -> None:
    first, shared = (play(discipline, flows) for discipline in DISCIPLINES)
    np.testing.assert_allclose(first.max(), shared.max(), rtol=3e-6)
    alone = np.array(flows, float).sum(axis=1)
    assert np.all(shared >= alone - 1e-4) and np.all(first >= alone - 1e-4)


def test_many_flows_vmap_and_jit() -> None:
    random = np.random.default_rng(5)
    ready = random.exponential(30.0, (3, 80)).round(2)
    seconds = random.exponential(1.0, (3, 80)).round(2)
    for discipline, oracle in DISCIPLINES.items():
        done = jax.jit(jax.vmap(discipline))(ready, seconds)
        for lane in range(3):
            flows = [[Fraction(str(x)) for x in row[lane]] for row in (ready, seconds)]
            np.testing.assert_allclose(done[lane], np.array(oracle(*flows), float), rtol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_equal_flows(n: int) -> None:
    seconds = 3.2e9 / 10e9
    together = np.zeros(n), np.full(n, seconds)
    first = sharing.first_in_first_out(*together)
    np.testing.assert_allclose(first, seconds * np.arange(1, n + 1), rtol=1e-6)
    shared = sharing.processor_sharing(*together)
    np.testing.assert_allclose(shared, n * seconds, rtol=1e-6)
    assert len(set(shared.tolist())) == 1


def test_ties_by_index_and_turns_of_nothing() -> None:
    assert all(discipline([], []).shape == (0,) for discipline in DISCIPLINES)
    assert sharing.first_in_first_out([5.0, 1.0, 1.0], [1.0, 2.0, 0.0]).tolist() == [6.0, 3.0, 3.0]
    assert sharing.processor_sharing([5.0, 1.0, 1.0], [1.0, 2.0, 0.0]).tolist() == [6.0, 3.0, 1.0]


def test_slopes_of_shared_links() -> None:
    """A flow's work delays another as far as that was there too: d done / d seconds."""
    ready, seconds = jnp.array([0.0, 1.0, 9.0]), jnp.array([2.0, 2.0, 1.0])
    slopes = jax.jacobian(lambda s: sharing.processor_sharing(ready, s))(seconds)
    np.testing.assert_allclose(slopes, [[2, 0, 0], [1, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize("discipline", DISCIPLINES)
@pytest.mark.parametrize(
    ("ready", "seconds", "message"),
    [
        ([0.0], [-1.0], "seconds must be non-negative and finite, got -1.0"),
        ([0.0], [math.inf], "seconds must be non-negative and finite, got inf"),
        ([math.nan], [1.0], "ready must be finite times, or inf for never, got nan"),
        ([0.0, 1.0], [1.0], r"ready and seconds must be vectors of one length, got \(\(2,\), \(1"),
        (0.0, 1.0, "ready and seconds must be vectors of one length"),
    ],
)
def test_errors_of_links(discipline: Any, ready: Any, seconds: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{discipline.__name__}: {message}"):
        discipline(ready, seconds)
