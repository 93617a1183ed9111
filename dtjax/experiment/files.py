"""Files that are whole or absent, and parts of a study that are computed once."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtjax.experiment import provenance, sources

if TYPE_CHECKING:
    import xarray as xr


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


def part(
    folder: Path,
    settings: Any,
    compute: Callable[[], xr.Dataset],
    *,
    label: str = "",
    own: Path | None = None,
) -> xr.Dataset:
    """Return one part of a study: read if the same source computed it with the same settings.

    A part is computed anew if a file of dtjax or of the study that was loaded when it was computed
    does something else now; comments and docstrings do not count.

    Args:
        folder: of the study's parts.
        settings: all that the part depends on.
        compute: makes the part; called only if there is no whole file of it yet.
        label: beginning of the file's name, for people.
        own: folder of the study's source; None: only dtjax counts.
    """
    start = re.sub(r"[^\w.+-]+", "_", label)
    path = folder / f"{start}{'-' if start else ''}{provenance.fingerprint(settings)}.nc"
    if path.exists():
        # One that cannot be read was cut off by a full disk, say: it is computed anew.
        with contextlib.suppress(ValueError):
            dataset = read(path)
            ran = json.loads(dataset.attrs.pop("sources", "{}"))
            if ran and sources.unchanged(ran, own):
                return dataset
        path.unlink()
    dataset = compute()
    digests = json.dumps(sources.loaded(own), sort_keys=True)
    write(dataset.assign_attrs(sources=digests), path)
    return dataset
