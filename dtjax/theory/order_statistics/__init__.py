"""Order statistics of compute times."""
