"""Links and the server: payload bits become seconds.

A network says how long a pull lasts, how long each shard of a push occupies its server's ingress,
and what the server's own work costs. The queues are the clock's: `dtjax.clock.transport`.
"""

from dtjax.cluster.network.all_reduce import all_gather, all_reduce
from dtjax.cluster.network.fixed import fixed
from dtjax.cluster.network.network import Network
from dtjax.cluster.network.profile import Profile
from dtjax.cluster.network.star import star

__all__ = ["Network", "Profile", "all_gather", "all_reduce", "fixed", "star"]
