"""Second moments of stale SGD on one coordinate of a quadratic, as an affine map an update.

Each gradient is eigenvalue x (version read) + noise. With `a` = rate x eigenvalue and
`v` = rate^2 x (variance of the noise), the moments (A, B, C, D) = E (w^2, w v_i, v_i^2, v_i v_j),
v_i the version that worker i works on and j another worker, close under each policy: workers are
alike, and who delivers is independent of what was read. A map is the 5 x 5 matrix of one update
on (A, B, C, D, 1), taken just after the updates.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

SIZE = 5


def _rows(shape: tuple[int, ...], *rows: list[Any]) -> NDArray[np.float64]:
    """Stack rows of numbers or f[...] arrays to matrices f[..., m, m]."""
    return np.stack(
        [np.stack([np.broadcast_to(x, shape) for x in row], axis=-1) for row in rows], axis=-2
    ).astype(np.float64)


def _broadcast(a: ArrayLike, v: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    both = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(v, np.float64))
    return both[0], both[1]


def _mix(*parts: tuple[float, list[Any]]) -> list[Any]:
    """Return the sum of rows with their probabilities."""
    return [
        sum(p * x for p, x in zip([p for p, _ in parts], column, strict=True))
        for column in zip(*[row for _, row in parts], strict=True)
    ]


def synchronous(a: ArrayLike, v: ArrayLike, n: int, k: int) -> NDArray[np.float64]:
    """Return the map of an update of k gradients that were all read at the newest version."""
    del n
    a, v = _broadcast(a, v)
    fresh = [(1 - a) ** 2, 0, 0, 0, v / k]
    return _rows(a.shape, fresh, fresh, fresh, fresh, [0, 0, 0, 0, 1])


def k_asp(a: ArrayLike, v: ArrayLike, n: int, k: int) -> NDArray[np.float64]:
    """Return the map of an update of k of n workers, each set of k with the same probability.

    w' = w - (a/k) sum of v_i over the set - noise; the set then reads w'.
    """
    a, v = _broadcast(a, v)
    new = [1, -2 * a, a * a / k, a * a * (k - 1) / k, v / k]  # E w'^2
    mixed = [0, 1, 0, -a, 0]  # E w' v_j of a worker that did not deliver
    share = k / n
    pairs = max(n * (n - 1), 1)  # of one worker there is no pair, and D counts nowhere
    both, one, none = k * (k - 1) / pairs, 2 * k * (n - k) / pairs, (n - k) * (n - k - 1) / pairs
    return _rows(
        a.shape,
        new,
        _mix((share, new), (1 - share, mixed)),
        _mix((share, new), (1 - share, [0, 0, 1, 0, 0])),
        _mix((both, new), (one, mixed), (none, [0, 0, 0, 1, 0])),
        [0, 0, 0, 0, 1],
    )


def k_batch_asp(a: ArrayLike, v: ArrayLike, n: int, k: int) -> NDArray[np.float64]:
    """Return the map of an update of k arrivals, each of any worker with probability 1/n.

    An arrival adds its gradient to the buffer, b' = b + (a/k) v_i + noise, and its worker reads
    the newest version; the last one makes w' = w - b' first. Between updates the moments
    F = E w b, G = E v_i b and H = E b^2 join the others.
    """
    a, v = _broadcast(a, v)
    c, one = a / k, 1 / n
    stay, pair = 1 - one, (2 / n, 1 - 2 / n) if n > 1 else (0.0, 0.0)
    # Columns A B C D F G H 1; the buffer after an arrival, with w and with itself.
    with_w = [0, c, 0, 0, 1, 0, 0, 0]
    with_itself = [0, 0, c * c, 0, 0, 2 * c, 1, v / k**2]
    with_another = [0, 0, 0, c, 0, 1, 0, 0]  # with v_j of a worker that did not deliver
    w_w, w_v = [1, 0, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 0]
    v_v, v_u = [0, 0, 1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0, 0]
    nothing, constant = [0] * 8, [0, 0, 0, 0, 0, 0, 0, 1]
    arrival = _rows(
        a.shape,
        w_w,
        _mix((one, w_w), (stay, w_v)),
        _mix((one, w_w), (stay, v_v)),
        _mix((pair[0], w_v), (pair[1], v_u)),
        with_w,
        _mix((one, with_w), (stay, with_another)),
        with_itself,
        constant,
    )
    new = _mix((1, w_w), (-2, with_w), (1, with_itself))  # E w'^2
    mixed = _mix((1, w_v), (-1, with_another))  # E w' v_j of a worker that did not deliver
    last = _rows(
        a.shape,
        new,
        _mix((one, new), (stay, mixed)),
        _mix((one, new), (stay, v_v)),
        _mix((pair[0], mixed), (pair[1], v_u)),
        nothing,
        nothing,
        nothing,
        constant,
    )
    whole = last @ np.linalg.matrix_power(arrival, k - 1)
    kept = [0, 1, 2, 3, 7]  # the buffer is empty after an update
    return whole[..., kept, :][..., kept]


def from_start(start: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the moments f[..., 5] where all have read w_0 = start."""
    square = np.broadcast_to(np.square(np.asarray(start, np.float64)), shape)
    return np.stack([square] * 4 + [np.ones(shape)], axis=-1)


def after(
    matrix: NDArray[np.float64], state: NDArray[np.float64], updates: int
) -> NDArray[np.float64]:
    """Return the moments f[..., 5] after some updates; inf where they leave binary64."""
    with np.errstate(over="ignore", invalid="ignore"):
        power = np.linalg.matrix_power(matrix, updates)
        found = (power @ state[..., None])[..., 0]
    return np.where(np.isfinite(found), found, np.inf)


def second_moment(state: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return E w^2 of a state: not negative, whatever rounding did; inf where it is not finite."""
    square = state[..., 0]
    return np.where(np.isfinite(square), np.maximum(square, 0.0), np.inf)


def radius(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the spectral radius of the map without its constant, f[...]."""
    return np.abs(np.linalg.eigvals(matrix[..., :4, :4])).max(axis=-1)


def fixed_point(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the E w^2 that a map leads to, f[...]; inf unless its spectral radius is below 1."""
    known = np.asarray(np.isfinite(matrix).all(axis=(-2, -1)))
    stable = known & (radius(np.where(known[..., None, None], matrix, 0.0)) < 1)
    inner = np.where(stable[..., None, None], matrix[..., :4, :4], 0.0)
    drive = np.where(stable[..., None], matrix[..., :4, 4], 0.0)
    found = np.linalg.solve(np.eye(4) - inner, drive[..., None])[..., 0, 0]
    return np.where(stable, np.maximum(found, 0.0), np.inf)


def age_slope(n: NDArray[np.float64], k: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 2 (n/k) (n - k) / (2 n - k - 1), 0 for k = n: what k-ASP's stationary state needs."""
    held = n - k
    return np.asarray(2 * (n / k) * held / np.maximum(held + n - 1, 1))


def batch_terms(
    n: NDArray[np.float64], k: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return u, theta, phi of k-batch-ASP's stationary state.

    By hand from the recursion: with r = 1 - 1/n and s = 1 - 2/n, after m of the k arrivals
    A - B = r^m beta, A - D = 2 r^m beta + s^m epsilon, C = A, and the sums over m are geometric.
    The updates then give epsilon and beta as multiples of A, and 2 F = H the stationary A.
    """
    n, k = np.broadcast_arrays(n, k)
    with np.errstate(divide="ignore"):  # one worker, or two: nothing of log 0 is left
        u = -np.expm1(k * np.log1p(-1 / n))
        w = -np.expm1(k * np.log1p(-np.minimum(2 / n, 1.0)))
    others = np.maximum(n - 2, 0)
    theta = (n - 1) * u + k * (1 - u) - 2 * others * u * (1 - u / w)
    phi = k - 1 - others * (2 * u / w - 1)
    return u, theta, phi
