"""Slow, readable reference of stale-gradient SGD on quadratics: numpy, one run, all versions kept.

It imports no kernel. Gradients are `curve * w + pull`, the pulls of (worker, step) are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

Step = Callable[[np.ndarray, float, float], np.ndarray]  # (gradient, staleness, loss) -> change
Encode = Callable[[int, np.ndarray], np.ndarray]  # (worker, gradient) -> message


class Entry(NamedTuple):
    """One gradient of a row, in order of arrival."""

    worker: int
    step: int
    version: int
    examples: float


class Played(NamedTuple):
    """What the reference did."""

    versions: np.ndarray  # f[T + 1, d]
    losses: np.ndarray  # f[T]
    gradients: int  # used
    used: dict[int, np.ndarray]  # the sum of each worker's gradients
    sent: dict[int, np.ndarray]  # the sum of each worker's messages


def entries(trace: object) -> list[list[Entry]]:
    """Read the rows of one concrete trace; rows that were not made are left out."""
    names = ("worker", "step", "version", "examples")
    worker, step, version, examples = (np.asarray(getattr(trace, name)) for name in names)
    return [
        [
            Entry(int(worker[t, j]), int(step[t, j]), int(version[t, j]), float(examples[t, j]))
            for j in np.flatnonzero(examples[t])
        ]
        for t in np.flatnonzero((examples > 0).any(-1))
    ]


def play(
    rows: Iterable[list[Entry]],
    curve: np.ndarray,
    start: np.ndarray,
    pull: Callable[[int, int, float], np.ndarray],
    step: Step,
    encode: Encode = lambda worker, gradient: gradient,
) -> Played:
    """Make the updates one after another."""
    versions, losses, count = [start], [], 0
    used: dict[int, np.ndarray] = {}
    sent: dict[int, np.ndarray] = {}
    for t, row in enumerate(rows):
        total, average, loss, stale = 0.0, np.zeros_like(start), 0.0, 0.0
        for worker, number, version, examples in row:
            w, noise = versions[version], pull(worker, number, examples)
            gradient = curve * w + noise
            message = encode(worker, gradient)
            used[worker] = used.get(worker, 0.0) + gradient
            sent[worker] = sent.get(worker, 0.0) + message
            average = average + examples * message
            loss += examples * float(np.sum(0.5 * curve * w**2 + noise * w))
            total += examples
            stale += t - version
            count += 1
        losses.append(loss / total)
        versions.append(versions[-1] + step(average / total, stale / len(row), losses[-1]))
    return Played(np.stack(versions), np.array(losses), count, used, sent)


def sgd(rate: float, momentum: float = 0.0) -> Step:
    """Make the heavy ball of `optax.sgd`."""
    kept = np.zeros(())

    def step(gradient: np.ndarray, staleness: float, loss: float) -> np.ndarray:
        nonlocal kept
        kept = gradient + momentum * kept
        return -rate * kept

    return step


def adam(rate: float) -> Step:
    """Make Adam with its usual constants."""
    first, second, count = np.zeros(()), np.zeros(()), 0

    def step(gradient: np.ndarray, staleness: float, loss: float) -> np.ndarray:
        nonlocal first, second, count
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        count += 1
        corrected = first / (1 - 0.9**count), second / (1 - 0.999**count)
        return -rate * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)

    return step


def top_k(k: int, memory: dict[int, np.ndarray]) -> Encode:
    """Make top-k with error feedback: what is not sent is added to the next gradient."""

    def encode(worker: int, gradient: np.ndarray) -> np.ndarray:
        whole = gradient + memory.get(worker, 0.0)
        message = np.zeros_like(whole)
        largest = np.argsort(-np.abs(whole), kind="stable")[:k]
        message[largest] = whole[largest]
        memory[worker] = whole - message
        return message

    return encode
