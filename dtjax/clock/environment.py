"""What does not change from one arrival to the next."""

from __future__ import annotations

from typing import NamedTuple

import jax

from dtjax.clock.state import Clock
from dtjax.clock.transport.form import Transport
from dtjax.core.protocols import Delay, Policy
from dtjax.core.random import Worker


class Environment(NamedTuple):
    """What the kernel is told besides its state."""

    delay: Delay  # how long computations take
    policy: Policy  # who decides
    transport: Transport  # how gradients come to the server
    workers: Worker  # the run's workers, arrays with leading axis n
    present: jax.Array  # i[] how many of them take part
    limit: jax.Array  # i[] the version at which the run is over
    until: jax.Array  # f[] seconds since the run began; what is later does not happen

    def horizon(self, clock: Clock) -> jax.Array:
        """Return `until` relative to the clock's origin, f[]."""
        return (self.until - clock.origin[0]) - clock.origin[1]
