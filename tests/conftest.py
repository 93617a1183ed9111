"""Settings of the whole suite: strict types and ranks, how programs are compiled, no display.

Most of a test's time goes into compiling. So one cache of compiled programs serves the run, its
workers and the processes that tests start, and XLA optimises nothing: a program takes a third of
the time. Tests whose subject is bits, marked `bits`, run as users do: `test_bits.py` starts them in
a process of their own. By hand: `pytest -m bits`.
"""

import os
import shutil
import tempfile

import pytest

OPTIMISED = "DTJAX_TESTS_OPTIMISED"
FAST = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
os.environ.setdefault("MPLBACKEND", "Agg")
OWNS_CACHE = "JAX_COMPILATION_CACHE_DIR" not in os.environ
if OWNS_CACHE:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="dtjax-tests-")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


def pytest_configure(config: pytest.Config) -> None:
    """Choose how programs are compiled, before a device is started."""
    if config.option.markexpr == "bits":
        os.environ[OPTIMISED] = "1"
    if OPTIMISED not in os.environ:
        os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *FAST])
    import hypothesis
    import jax

    jax.config.update("jax_numpy_rank_promotion", "raise")
    hypothesis.settings.register_profile("dtjax", deadline=None, derandomize=True, print_blob=True)
    hypothesis.settings.load_profile("dtjax")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests of bits to the process that compiles as users do."""
    if OPTIMISED in os.environ:
        return
    items.sort(key=lambda item: item.path.name != "test_bits.py")  # the longest: first
    bits = [item for item in items if item.get_closest_marker("bits")]
    config.hook.pytest_deselected(items=bits)
    items[:] = [item for item in items if item not in bits]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the cache that this process made."""
    del config
    if OWNS_CACHE:
        shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
