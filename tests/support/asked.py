"""Studies asked in this process, without a command line or a bar."""

from __future__ import annotations

import dataclasses
import runpy
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import pytest
import xarray as xr

from dtjax.experiment import Study, files

ROOT = Path(__file__).parents[2]


class Asked(NamedTuple):
    """A study that was run: settled, with its result as the file has it, and its report."""

    study: Any
    whole: xr.Dataset
    report: str

    @property
    def file(self) -> Path:
        """The result's."""
        return self.study.folder / f"{self.study.name()}.nc"

    def parts(self) -> dict[str, int]:
        """Return when each part was written."""
        return {p.name: p.stat().st_mtime_ns for p in (self.study.folder / "parts").iterdir()}


def asked(study: Study, out: Path) -> Asked:
    """Run a study; compile fast, since no bit is compared with another program's."""
    settled = dataclasses.replace(study, out=out, figure=False).settled()
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        whole = settled.run(progress=False)
    finally:
        jax.config.update("jax_disable_most_optimizations", before)
    xr.testing.assert_identical(files.read(out / f"{study.name()}.nc"), whole)
    return Asked(settled, whole, settled.report(whole))


def drawn(file: Path, monkeypatch: pytest.MonkeyPatch, name: str = "") -> Path:
    """Draw the figure of a result, and return its path."""
    picture = file.with_suffix(".png")
    monkeypatch.setattr(sys, "argv", ["figure", str(file), "--out", str(picture)])
    runpy.run_path(str(ROOT / "figures" / f"{name or file.stem}.py"), run_name="__main__")
    assert picture.read_bytes().startswith(b"\x89PNG")
    return picture
