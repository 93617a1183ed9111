"""Which examples a worker sees."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtjax.core import checks


class Partition(NamedTuple):
    """The examples of each worker: row w holds worker w's, the first `size[w]` entries count.

    One row for all the workers if all see everything.
    """

    index: np.ndarray  # i[n, M] or i[1, M]
    size: np.ndarray  # i[n] or i[1]


def shared(labels: np.ndarray) -> Partition:
    """Let every worker draw from all the examples.

    Args:
        labels: [N], any targets.

    Example:
        >>> shared(np.zeros(5, int)).index.shape
        (1, 5)
    """
    return _table([np.arange(len(labels))])


def sharded(labels: np.ndarray, n: int, *, seed: int = 0) -> Partition:
    """Cut the shuffled examples into n shards, as equal as can be.

    Args:
        labels: [N], any targets.
        n: workers, at most N.
        seed: of the shuffling.

    Raises:
        ValueError: if there are more workers than examples.

    Example:
        >>> sharded(np.zeros(10, int), 4).size.tolist()
        [3, 3, 2, 2]
    """
    n = checks.integer("sharded", "n", n, low=1, high=len(labels), high_name="the examples, ")
    order = np.random.default_rng(seed).permutation(len(labels))
    return _table(np.array_split(order, n))


def skewed(labels: np.ndarray, n: int, *, alpha: float, seed: int = 0) -> Partition:
    """Give each worker a mixture of classes of its own: shares drawn from a Dirichlet law.

    The examples of each class are divided in shares drawn from Dirichlet(alpha, ..., alpha). Small
    `alpha`: a worker sees few classes. A worker left with nothing gets one example from the
    largest.

    Args:
        labels: i[N].
        n: workers, at most N.
        alpha: positive; infinity divides evenly.
        seed: of the shares and the shuffling.

    Raises:
        ValueError: if labels are no integers, `alpha` is not positive, or there are more workers
            than examples.

    Example:
        >>> int(skewed(np.arange(100) % 10, 4, alpha=0.3).size.sum())
        100

    Reference:
        Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for federated
        visual classification", 2019.
    """
    n = checks.integer("skewed", "n", n, low=1, high=len(labels), high_name="the examples, ")
    if not alpha > 0:
        raise checks.fail("skewed", "alpha", "must be positive", alpha)
    if not np.issubdtype(np.asarray(labels).dtype, np.integer):
        raise checks.fail("skewed", "labels", "must be classes, integers", np.asarray(labels).dtype)
    rng = np.random.default_rng(seed)
    mine: list[list[int]] = [[] for _ in range(n)]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        shares = np.full(n, 1.0 / n) if np.isinf(alpha) else rng.dirichlet(np.full(n, alpha))
        cuts = np.round(np.cumsum(shares)[:-1] * len(members)).astype(int)
        for worker, part in enumerate(np.split(members, cuts)):
            mine[worker].extend(part.tolist())
    for worker in range(n):
        if not mine[worker]:
            mine[worker].append(max(mine, key=len).pop())
    return _table([np.array(part) for part in mine])


def _table(parts: list[np.ndarray]) -> Partition:
    size = np.array([len(part) for part in parts], np.int32)
    index = np.zeros((len(parts), int(size.max())), np.int32)
    for row, part in zip(index, parts, strict=True):
        row[: len(part)] = part
    return Partition(index, size)
