"""The process of a study: how JAX is set up, and figures drawn in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def prepare(*, devices: int | None = None, cache: bool = True) -> None:
    """Set up JAX for a script: one CPU device a core, and a cache of compiled programs.

    To be called before anything is computed. A library does not do this, a command line may.

    Args:
        devices: CPU devices; None: as many as this process has cores.
        cache: keep compiled programs in the user's cache folder, so that a second run starts fast,
            unless JAX was told another one.
    """
    import jax

    settings: Any = jax.config
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    jax.config.update("jax_num_cpu_devices", devices or cores or 1)
    if cache and not settings.jax_compilation_cache_dir:
        home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(Path(home) / "dtjax" / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def draw(figure: Path, *arguments: str) -> None:
    """Run a figure's script on a result file, in a process of its own.

    Raises:
        RuntimeError: with what it printed last, if it fails.
    """
    command = [sys.executable, str(figure), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise RuntimeError(f"draw: {figure.name} failed: {said[-1]}")
