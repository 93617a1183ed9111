"""Links and the server: payload bits become seconds.

A network says how long a pull lasts, how long each shard of a push occupies its server's ingress,
and what the server's own work costs. The queues themselves are the clock's (`dtjax.links`).
"""

from dtjax.network.all_reduce import all_gather, all_reduce
from dtjax.network.fixed import fixed
from dtjax.network.network import Network
from dtjax.network.profile import Profile
from dtjax.network.star import star

__all__ = ["Network", "Profile", "all_gather", "all_reduce", "fixed", "star"]
