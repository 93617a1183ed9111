"""When the flows that share one link are done: one after the other, or all at once.

Both disciplines send while there is something to send, so that the last flow is done at the same
time; the others are not, which matters to every policy that does not wait for all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dtjax.core import checks
from dtjax.core.checks import Numbers

_READY = ("must be finite times, or inf for never", lambda x: x > -jnp.inf)


def first_in_first_out(ready: Numbers, seconds: Numbers) -> jax.Array:
    """Compute when each flow is done on a link that sends one at a time, in order of readiness.

    With the flows sorted, done_j = max(ready_j, done_(j-1)) + seconds_j, in closed form
    done_j = C_j + max_(i<=j) (ready_i - C_(i-1)) with C_j = seconds_1 + .. + seconds_j: a running
    maximum instead of a loop. Ties by index. A flow of 0 seconds still waits for its turn.

    Args:
        ready: when each flow is there, f[n], in any order; inf if it never comes.
        seconds: that it needs if it has the link alone, f[n], 0 or more.

    Returns:
        When each is done, f[n], in the order given; inf if it never comes.

    Raises:
        ValueError: if a number is out of range or the lengths differ.

    Example:
        >>> first_in_first_out([0.0, 0.0, 9.0], [2.0, 2.0, 1.0]).tolist()
        [2.0, 4.0, 10.0]

    Reference:
        Lindley, "The theory of queues with a single server", Proc. Camb. Phil. Soc. 48, 1952.
    """
    ready, seconds = _flows("first_in_first_out", ready, seconds)
    order = jnp.argsort(ready, stable=True)
    work = jnp.cumsum(seconds[order])
    before = jnp.concatenate([jnp.zeros_like(work[:1]), work[:-1]])
    done = work + lax.cummax(ready[order] - before)
    return jnp.zeros_like(done).at[order].set(done)


class _Link(NamedTuple):
    """A link that flows share, between two events."""

    now: jax.Array  # f[]
    virtual: jax.Array  # f[], seconds of work that each flow got that was there all the time
    ready: jax.Array  # f[n], inf once it has begun
    tag: jax.Array  # f[n], the virtual time at which it will be done; inf unless it is being sent
    done: jax.Array  # f[n], inf until it is


def processor_sharing(ready: Numbers, seconds: Numbers) -> jax.Array:
    """Compute when each flow is done on a link that all flows share equally at every instant.

    While m flows are there, each is sent at 1 / m of the rate of the link; one that comes or is
    done changes the rate of the others at once: fair sharing, as of long TCP flows with equal
    round-trip times. Exact but for rounding: events are computed, time is not divided into steps.
    A flow of 0 seconds is done when it is ready.

    A virtual clock shows how much work each flow has got, and a flow is done when it shows what it
    showed at its beginning plus its seconds. The next event is the least of those, or the next
    beginning: 2 n turns of a loop, of O(n) each, without sorting; the same for every lane.

    Args:
        ready: when each flow is there, f[n], in any order; inf if it never comes.
        seconds: that it needs if it has the link alone, f[n], 0 or more.

    Returns:
        When each is done, f[n], in the order given; inf if it never comes.

    Raises:
        ValueError: if a number is out of range or the lengths differ.

    Example:
        >>> processor_sharing([0.0, 0.0, 9.0], [2.0, 2.0, 1.0]).tolist()
        [4.0, 4.0, 10.0]
        >>> processor_sharing([0.0, 1.0], [2.0, 2.0]).tolist()
        [3.0, 4.0]

    Reference:
        Kleinrock, "Time-shared systems: a theoretical treatment", J. ACM 14, 1967; the virtual
        clock: Parekh and Gallager, IEEE/ACM Trans. Netw. 1, 1993.
    """
    ready, seconds = _flows("processor_sharing", ready, seconds)
    if not len(ready):
        return ready
    never = jnp.full_like(ready, jnp.inf)
    zero = jnp.zeros_like(ready[0])
    link = _Link(zero, zero, ready, never, never)
    return lax.fori_loop(0, 2 * len(ready), lambda _, link: _event(link, seconds), link).done


def _event(link: _Link, seconds: jax.Array) -> _Link:
    """Go on to the next flow that comes or is done."""
    sending = link.tag < jnp.inf
    flows = sending.sum().astype(link.now.dtype)
    first, begin = link.tag.min(), link.ready.min()
    end = jnp.where(flows > 0, link.now + (first - link.virtual) * flows, jnp.inf)
    ends = (end <= begin) & (flows > 0)
    begins = ~ends & (begin < jnp.inf)
    # A link with nothing to send begins a new account, so that virtual time stays small. Rounding
    # must not carry it past the first to be done: that would be done before now.
    progress = jnp.minimum(link.virtual + (begin - link.now) / jnp.maximum(flows, 1), first)
    virtual = jnp.where(ends, first, jnp.where(flows > 0, progress, 0.0))
    finished = ends & (link.tag <= first)
    begun = begins & (link.ready == begin)
    return _Link(
        now=jnp.where(ends, end, jnp.where(begins, begin, link.now)),
        virtual=virtual,
        ready=jnp.where(begun, jnp.inf, link.ready),
        tag=jnp.where(finished, jnp.inf, jnp.where(begun, virtual + seconds, link.tag)),
        done=jnp.where(finished, end, link.done),
    )


def _flows(function: str, ready: Any, seconds: Any) -> tuple[jax.Array, jax.Array]:
    """Return both, checked to be vectors of one length."""
    ready = checks.real(function, "ready", ready, _READY)
    seconds = checks.real(function, "seconds", seconds, checks.NON_NEGATIVE)
    if ready.ndim != 1 or ready.shape != seconds.shape:
        rule = "must be vectors of one length"
        raise checks.fail(function, "ready and seconds", rule, (ready.shape, seconds.shape))
    return ready, seconds
