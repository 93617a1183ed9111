"""Many runs: blocks on all devices, and what they say about a law."""

from dtjax.montecarlo.sharding import local_mesh, map_runs

__all__ = ["local_mesh", "map_runs"]
