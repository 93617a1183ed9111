"""What a result says of how it came about: settings, versions, commit, machine."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import dtjax

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "scipy", "scikit-learn")


def plain(value: Any) -> Any:
    """Turn settings into what JSON can hold."""
    import jax
    import numpy as np

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
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"dtjax": dtjax.__version__, **found, "python": platform.python_version()}


def fingerprint(settings: Any) -> str:
    """Name settings by a hash: of their values and of what else the bits of a result depend on."""
    import jax

    packages = {name: version for name, version in versions().items() if name != "python"}
    machine = [jax.default_backend(), jax.config.read("jax_enable_x64")]
    text = json.dumps([plain(settings), packages, machine], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def commit(folder: Path) -> dict[str, Any]:
    """Return the commit of the clone that a folder lies in, and whether files differ from it.

    Empty without a clone, or without git.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return {
            "commit": git("rev-parse", "HEAD"),
            "dirty": int(bool(git("status", "--porcelain"))),
        }
    except (OSError, subprocess.CalledProcessError):
        return {}


def provenance(settings: Any, folder: Path | None = None) -> dict[str, Any]:
    """Return what a result file says of how it came about.

    Args:
        settings: all of the study's.
        folder: of the study's source; None: of this package, if it is in a clone.
    """
    import jax

    root = Path(dtjax.__file__).parents[1]
    if folder is None and (root / ".git").exists():
        folder = root
    return {
        "config": json.dumps(plain(settings), sort_keys=True),
        "versions": json.dumps(versions(), sort_keys=True),
        "backend": jax.default_backend(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **({} if folder is None else commit(folder)),
    }
