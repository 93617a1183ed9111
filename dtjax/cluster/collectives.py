"""Seconds of collective communication, by the alpha-beta model: latency + bits / bandwidth a step.

All workers are alike, every link carries one message each way at a time, and links do not share
anything. Numbers broadcast against each other and may be traced, so that they sweep. What a worker
keeps to itself costs nothing: one worker costs 0 seconds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dtjax.core import checks
from dtjax.core.checks import Numbers


class _Link(NamedTuple):
    """What the collectives take, in one shape."""

    bits: jax.Array
    workers: jax.Array  # i32
    latency: jax.Array
    reduce: jax.Array
    seconds: jax.Array  # bits / bandwidth


def ring_all_reduce(
    bits: Numbers,
    *,
    workers: Any,
    bandwidth: Numbers,
    latency: Numbers = 0.0,
    reduce_seconds: Numbers = 0.0,
) -> jax.Array:
    """Compute the seconds of an all-reduce around a ring: reduce-scatter, then all-gather.

    2 (n - 1) latency + 2 (n - 1) / n bits / bandwidth + (n - 1) / n reduce_seconds: in each of
    2 (n - 1) steps every worker sends the n-th part of the payload to the next one. Uses the
    bandwidth best of all; the latency grows with the number of workers.

    Args:
        bits: payload of a worker, 0 or more.
        workers: n, integers of 1 or more.
        bandwidth: bits per second that a worker sends, and receives at the same time; positive.
        latency: seconds of a step besides, 0 or more.
        reduce_seconds: seconds in which a worker adds a whole payload to its own, 0 or more.

    Returns:
        Seconds, the shape that the arguments broadcast to.

    Raises:
        ValueError: if an argument is out of range or the shapes do not broadcast.

    Example:
        >>> round(float(ring_all_reduce(3.2e9, workers=8, bandwidth=10e9)), 4)
        0.56

    Reference:
        Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
        J. Parallel Distrib. Comput. 69, 2009.
    """
    link = _link("ring_all_reduce", bits, workers, bandwidth, latency, reduce_seconds)
    others = (link.workers - 1).astype(float)
    share = others / link.workers
    return 2 * (others * link.latency + share * link.seconds) + share * link.reduce


def tree_all_reduce(
    bits: Numbers,
    *,
    workers: Any,
    bandwidth: Numbers,
    latency: Numbers = 0.0,
    reduce_seconds: Numbers = 0.0,
) -> jax.Array:
    """Compute the seconds of an all-reduce along a binomial tree: up to the root, and down again.

    ceil(log2 n) (2 (latency + bits / bandwidth) + reduce_seconds), whole payloads, not pipelined.

    Args:
        bits: payload of a worker, 0 or more.
        workers: n, integers of 1 or more.
        bandwidth: bits per second that a worker sends or receives; positive.
        latency: seconds of a step besides, 0 or more.
        reduce_seconds: seconds in which a worker adds a whole payload to its own, 0 or more.

    Returns:
        Seconds, the shape that the arguments broadcast to.

    Raises:
        ValueError: if an argument is out of range or the shapes do not broadcast.

    Example:
        >>> round(float(tree_all_reduce(3.2e9, workers=8, bandwidth=10e9)), 4)
        1.92

    Reference:
        Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
        MPICH", Int. J. High Perform. Comput. Appl. 19, 2005.
    """
    link = _link("tree_all_reduce", bits, workers, bandwidth, latency, reduce_seconds)
    levels = _bit_length(link.workers - 1).astype(float)
    return levels * (2 * (link.latency + link.seconds) + link.reduce)


def recursive_doubling_all_reduce(
    bits: Numbers,
    *,
    workers: Any,
    bandwidth: Numbers,
    latency: Numbers = 0.0,
    reduce_seconds: Numbers = 0.0,
) -> jax.Array:
    """Compute the seconds of an all-reduce in which pairs at distance 1, 2, 4.. swap their sums.

    log2 n (latency + bits / bandwidth + reduce_seconds) for a power of two. Otherwise the workers
    beyond the largest power of two below n first give theirs to a partner, who adds it, and get the
    result from it in the end: floor(log2 n) such steps, one more, and one more without reducing.

    Args:
        bits: payload of a worker, 0 or more.
        workers: n, integers of 1 or more.
        bandwidth: bits per second that a worker sends, and receives at the same time; positive.
        latency: seconds of a step besides, 0 or more.
        reduce_seconds: seconds in which a worker adds a whole payload to its own, 0 or more.

    Returns:
        Seconds, the shape that the arguments broadcast to.

    Raises:
        ValueError: if an argument is out of range or the shapes do not broadcast.

    Example:
        >>> import numpy as np
        >>> eight_nine = np.array([8, 9])
        >>> recursive_doubling_all_reduce(1e9, workers=eight_nine, bandwidth=1e9).tolist()
        [3.0, 5.0]

    Reference:
        Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
        MPICH", Int. J. High Perform. Comput. Appl. 19, 2005.
    """
    name = "recursive_doubling_all_reduce"
    link = _link(name, bits, workers, bandwidth, latency, reduce_seconds)
    doublings = _bit_length(link.workers) - 1
    uneven = (1 << doublings) != link.workers
    step = link.latency + link.seconds
    swaps = (doublings + uneven).astype(float)
    return swaps * (step + link.reduce) + uneven * step


def all_gather(
    bits: Numbers, *, workers: Any, bandwidth: Numbers, latency: Numbers = 0.0
) -> jax.Array:
    """Compute the seconds in which everybody gets everybody's payload, around a ring.

    (n - 1) (latency + bits / bandwidth). For what cannot be summed on the way, such as kept entries
    at other indices in each worker, or signs: then the payload does not shrink with n.

    Args:
        bits: payload of a worker, 0 or more; the largest, if they differ.
        workers: n, integers of 1 or more.
        bandwidth: bits per second that a worker sends, and receives at the same time; positive.
        latency: seconds of a step besides, 0 or more.

    Returns:
        Seconds, the shape that the arguments broadcast to.

    Raises:
        ValueError: if an argument is out of range or the shapes do not broadcast.

    Example:
        >>> round(float(all_gather(64e6, workers=8, bandwidth=10e9)), 4)
        0.0448

    Reference:
        Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
        MPICH", Int. J. High Perform. Comput. Appl. 19, 2005.
    """
    link = _link("all_gather", bits, workers, bandwidth, latency, 0.0)
    return (link.workers - 1).astype(float) * (link.latency + link.seconds)


def parameter_server(
    bits: Numbers,
    workers: Any,
    servers: Any,
    worker_bandwidth: Numbers,
    server_bandwidth: Numbers,
) -> jax.Array:
    """Compute the least seconds in which all workers push a payload to the servers, or pull one.

    max(bits / worker_bandwidth, workers bits / (servers server_bandwidth)): the payload lies on the
    servers in equal shards, all push at once, and no schedule is faster than the busiest link. This
    is one way; an update of BSP takes a push and a pull, whose bits may differ. Unlike an
    all-reduce it costs something with one worker too, since the server is another machine.

    Args:
        bits: payload of a worker, 0 or more.
        workers: integers of 1 or more.
        servers: integers of 1 or more.
        worker_bandwidth: bits per second of a worker's link; positive.
        server_bandwidth: bits per second of a server's link; positive.

    Returns:
        Seconds, the shape that the arguments broadcast to.

    Raises:
        ValueError: if an argument is out of range or the shapes do not broadcast.

    Example:
        >>> round(float(parameter_server(3.2e9, 8, 1, 10e9, 10e9)), 4)
        2.56
    """
    name = "parameter_server"
    checks.integer(name, "workers", workers, low=1)
    checks.integer(name, "servers", servers, low=1)
    payload, senders, shards, sending, receiving = _broadcast(
        name,
        bits=checks.real(name, "bits", bits, checks.NON_NEGATIVE),
        workers=jnp.asarray(workers, float),
        servers=jnp.asarray(servers, float),
        worker_bandwidth=_bandwidth(name, "worker_bandwidth", worker_bandwidth),
        server_bandwidth=_bandwidth(name, "server_bandwidth", server_bandwidth),
    )
    return jnp.maximum(payload / sending, senders / shards * (payload / receiving))


def _link(
    function: str, bits: Any, workers: Any, bandwidth: Any, latency: Any, reduce_seconds: Any
) -> _Link:
    """Return the arguments, checked and in one shape."""
    checks.integer(function, "workers", workers, low=1)
    payload, n, rate, delay, reduce = _broadcast(
        function,
        bits=checks.real(function, "bits", bits, checks.NON_NEGATIVE),
        workers=jnp.asarray(workers, jnp.int32),
        bandwidth=_bandwidth(function, "bandwidth", bandwidth),
        latency=checks.real(function, "latency", latency, checks.NON_NEGATIVE),
        reduce_seconds=checks.real(function, "reduce_seconds", reduce_seconds, checks.NON_NEGATIVE),
    )
    return _Link(payload, n, delay, reduce, payload / rate)


def _bandwidth(function: str, argument: str, value: Any) -> jax.Array:
    """Return bits per second; inf is a link that costs its latency only."""
    return checks.real(function, argument, value, checks.NOT_NAN_POSITIVE)


def _broadcast(function: str, **arrays: jax.Array) -> list[jax.Array]:
    """Broadcast explicitly, also where JAX is told to refuse implicit ranks."""
    try:
        return jnp.broadcast_arrays(*arrays.values())
    except ValueError:
        shapes = {name: array.shape for name, array in arrays.items()}
        names = " and ".join(arrays)
        raise checks.fail(function, names, "must broadcast", shapes) from None


def _bit_length(n: jax.Array) -> jax.Array:
    """Count the binary digits of positive integers; a logarithm could round up."""
    return 32 - lax.clz(n)
