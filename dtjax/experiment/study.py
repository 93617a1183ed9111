"""What every study needs: settings of the process, parts that resume, files that are whole."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import dtjax

if TYPE_CHECKING:
    import xarray as xr


def prepare(*, devices: int | None = None, cache: bool = True) -> None:
    """Set up JAX for a script: one CPU device a core, and a cache of compiled programs.

    To be called before anything is computed. A library does not do this, a command line may.

    Args:
        devices: CPU devices; None: as many as this process has cores.
        cache: keep compiled programs in the user's cache folder, so that a second run starts fast.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    jax.config.update("jax_num_cpu_devices", devices or cores or 1)
    if cache:
        home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(Path(home) / "dtjax" / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def output_folder(path: Path) -> Path:
    """Make the folder that results go to and see that it can be written, before hours of work.

    Args:
        path: the folder.

    Raises:
        ValueError: if it cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        message = f"output_folder: out must be a folder that can be written, got '{path}': {error}"
        raise ValueError(message) from error
    return path


def plain(value: Any) -> Any:
    """Turn a configuration into what JSON can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return np.asarray(value).tolist()
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def versions() -> dict[str, str]:
    """Return the versions of what results are made with."""
    packages = ("jax", "jaxlib", "flax", "optax", "numpy", "scikit-learn")
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"dtjax": dtjax.__version__, **found, "python": platform.python_version()}


def fingerprint(settings: Any) -> str:
    """Name settings by a hash: of their values and of what else the bits of a result depend on."""
    packages = {name: version for name, version in versions().items() if name != "python"}
    machine = [jax.default_backend(), jax.config.read("jax_enable_x64")]
    text = json.dumps([plain(settings), packages, machine], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def provenance(config: Any) -> dict[str, Any]:
    """Return what a result file says of how it came about."""
    return {
        "config": json.dumps(plain(config), sort_keys=True),
        "versions": json.dumps(versions(), sort_keys=True),
        "backend": jax.default_backend(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


@contextlib.contextmanager
def whole_file(path: Path) -> Generator[Path]:
    """Give a path beside `path` to write to, and rename it when the block ends without an error."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write(dataset: xr.Dataset, path: Path) -> None:
    """Write a dataset as netCDF: the whole file, or none."""
    with whole_file(path) as partial:
        compressed = {name: {"zlib": True, "complevel": 1} for name in dataset.data_vars}
        dataset.to_netcdf(partial, engine="netcdf4", encoding=compressed)


def read(path: Path) -> xr.Dataset:
    """Read a dataset into memory.

    Raises:
        ValueError: if there is no such file, or it is no netCDF file that can be read.
    """
    import xarray as xr

    try:
        with xr.open_dataset(path, engine="netcdf4") as dataset:
            return dataset.load()
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"read: path must be a whole netCDF file, got '{path}': {error}"
        ) from error


def part(folder: Path, settings: Any, compute: Callable[[], xr.Dataset]) -> xr.Dataset:
    """Return one part of a study: read if it was computed before, with the same settings.

    Args:
        folder: of the study's parts.
        settings: all that the part depends on.
        compute: makes the part; called only if there is no whole file of it yet.
    """
    path = folder / f"{fingerprint(settings)}.nc"
    if path.exists():
        try:
            return read(path)
        except ValueError:
            path.unlink()  # cut off by a full disk, say: nothing else can be done with it
    dataset = compute()
    write(dataset, path)
    return dataset


def draw(figure: Path, *arguments: str) -> None:
    """Run a figure's script on a result file, in a process of its own.

    Raises:
        RuntimeError: with what it printed, if it fails.
    """
    command = [sys.executable, str(figure), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"draw: {figure.name} failed:\n{done.stderr.strip()}")
