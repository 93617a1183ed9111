"""Running the studies of compressors in processes of their own, for their tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import xarray as xr

from dtjax.experiment import study

ROOT = Path(__file__).parents[2]
SMALL = ["--smoke", "--workers", "4", "--runs", "3"]


class Ran(NamedTuple):
    """A study that was run."""

    out: Path
    stdout: str
    env: dict[str, str]

    @property
    def whole(self) -> xr.Dataset:
        """Its file."""
        return study.read(next(self.out.glob("*.nc")))


def environment(cache: Path) -> dict[str, str]:
    """Return variables for fast compiles, and a cache that later runs share."""
    return os.environ | {
        "XDG_CACHE_HOME": str(cache),
        "MPLCONFIGDIR": matplotlib.get_cachedir(),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # most of the time is the compiler's
    }


def command(script: Path, out: Path, *arguments: str) -> list[str]:
    """Return the command line of a study."""
    return [sys.executable, str(script), "--out", str(out), *arguments]


def run(env: dict[str, str], script: Path, out: Path, *arguments: str) -> Any:
    """Run a study to its end."""
    return subprocess.run(
        command(script, out, *arguments),
        env=env,
        cwd=out.parent,
        capture_output=True,
        text=True,
        timeout=300,
    )


def stamps(folder: Path) -> dict[str, int]:
    """Return when each part was written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.nc")}
