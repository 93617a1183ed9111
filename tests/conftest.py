"""Settings of the whole suite: strict types and ranks, one device count, no surprise downloads."""

import os

os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
hypothesis.settings.register_profile("dtjax", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("dtjax")
