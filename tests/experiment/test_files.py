"""Files are whole or absent, parts resume, and names differ where settings do."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from dtjax.experiment import provenance, study


def dataset(value: float = 1.0) -> xr.Dataset:
    """Make a dataset with what result files hold: NaN, infinity, text, counts, coordinates."""
    return xr.Dataset(
        {
            "seconds": (("run", "evaluation"), [[0.0, value], [np.nan, np.inf]], {"units": "s"}),
            "count": ("run", np.array([3, 4], np.int32)),
            "note": ((), "best rate 0.4"),
        },
        coords={"run": [0, 1], "policy": "k-asp"},
        attrs={"config": '{"k": 2}'},
    )


def test_a_dataset_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "some.nc"
    study.write(dataset(), path)
    xr.testing.assert_identical(study.read(path), dataset())
    assert [p.name for p in tmp_path.iterdir()] == ["some.nc"]
    study.write(dataset(2.0), path)  # over an older file
    assert study.read(path).seconds[0, 1] == 2.0


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_while_writing_leaves_the_old_file(tmp_path: Path, error: Any) -> None:
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    old.write_text("old")
    for path in (old, new):
        with pytest.raises(error), study.whole_file(path) as partial:
            assert partial.parent == tmp_path and partial != path
            partial.write_text("half")
            raise error
    assert old.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["old.txt"]


def test_a_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "some.nc"
    study.write(dataset(), path)
    program = f"""
import os, pathlib
from dtjax.experiment import study
with study.whole_file(pathlib.Path({str(path)!r})) as partial:
    partial.write_bytes(b"half")
    os._exit(7)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=120, check=False)
    assert done.returncode == 7
    xr.testing.assert_identical(study.read(path), dataset())
    assert [p.name for p in tmp_path.glob("*.nc")] == ["some.nc"]


def test_what_cannot_be_read(tmp_path: Path) -> None:
    whole = tmp_path / "whole.nc"
    study.write(dataset(), whole)
    short = tmp_path / "short.nc"
    short.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    text = tmp_path / "text.nc"
    text.write_text("no netCDF file")
    empty = tmp_path / "empty.nc"
    empty.touch()
    for path in (short, text, empty, tmp_path / "missing.nc", tmp_path):
        message = f"read: path must be a whole netCDF file, got '{path}'"
        with pytest.raises(ValueError, match=message):
            study.read(path)


def test_a_part_is_computed_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def compute() -> xr.Dataset:
        calls.append(0)
        return dataset(float(len(calls)))

    first = study.part(tmp_path, {"a": 1}, compute)
    again = study.part(tmp_path, {"a": 1}, compute)
    assert len(calls) == 1
    xr.testing.assert_identical(first, again)
    other = study.part(tmp_path, {"a": 2}, compute)
    assert len(calls) == 2 and other.seconds[0, 1] == 2.0

    (path,) = tmp_path.glob(f"{study.fingerprint({'a': 1})}.nc")
    path.write_bytes(path.read_bytes()[:300])  # as a full disk leaves it
    mended = study.part(tmp_path, {"a": 1}, compute)
    assert len(calls) == 3
    xr.testing.assert_equal(study.read(path), mended)
    assert "sources" not in mended.attrs


def test_a_part_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> xr.Dataset:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.part(tmp_path, {"a": 1}, fail)
    assert list(tmp_path.iterdir()) == []


@dataclass(frozen=True)
class Settings:
    """Settings as a study has them."""

    rates: tuple[float, ...] = (0.1, 0.2)
    k: int | None = 2
    out: Path = Path("results")
    inner: Any = None


def test_settings_that_differ_have_names_that_differ() -> None:
    long = np.zeros(5000)
    longer = long.copy()
    longer[2500] = 1e-9  # what the text of an array leaves out
    settings = [
        Settings(),
        Settings(rates=(0.2, 0.1)),
        Settings(rates=(0.1, np.nextafter(0.2, 1.0))),
        Settings(k=None),
        Settings(k=3),
        Settings(out=Path("elsewhere")),
        Settings(inner=Settings()),
        Settings(inner=Settings(k=5)),
        Settings(inner={"alpha": 0.1}),
        Settings(inner={"alpha": 0.3}),
        Settings(inner=long),
        Settings(inner=longer),
        Settings(inner=True),
    ]
    names = [study.fingerprint(s) for s in settings]
    assert len(set(names)) == len(settings)
    assert names == [study.fingerprint(dataclasses.replace(s)) for s in settings]
    assert study.fingerprint({"a": 1, "b": 2}) == study.fingerprint({"b": 2, "a": 1})
    assert study.fingerprint(np.float64(0.5)) == study.fingerprint(0.5)


def test_results_of_other_versions_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    before = study.fingerprint(Settings())
    known = study.versions()
    assert {"dtjax", "jax", "flax", "optax", "numpy", "scikit-learn", "python"} <= set(known)
    for package in ("dtjax", "jax", "flax", "optax", "numpy", "scikit-learn"):
        with monkeypatch.context() as patch:
            patch.setattr(provenance, "versions", lambda p=package: known | {p: "0.0"})
            assert study.fingerprint(Settings()) != before, package
    with monkeypatch.context() as patch:
        patch.setattr("jax.default_backend", lambda: "elsewhere")
        assert study.fingerprint(Settings()) != before
    assert study.fingerprint(Settings()) == before


def test_output_folder(tmp_path: Path) -> None:
    assert study.output_folder(tmp_path / "a" / "b").is_dir()
    assert study.output_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "sub"):
        message = f"output_folder: out must be a folder that can be written, got '{path}'"
        with pytest.raises(ValueError, match=message):
            study.output_folder(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ValueError, match=r"out must be a folder that can be written"):
        study.output_folder(tmp_path)


def test_a_figure_that_fails_says_why(tmp_path: Path) -> None:
    script = tmp_path / "figure.py"
    script.write_text("import sys; sys.exit(f'a traceback\\nno {sys.argv[1]} here')")
    with pytest.raises(RuntimeError, match=r"^draw: figure\.py failed: no such here$"):
        study.draw(script, "such")
    script.write_text("")
    study.draw(script)


def test_provenance_holds_settings_versions_and_commit() -> None:
    found = study.provenance(Settings())
    assert json.loads(found["config"])["rates"] == [0.1, 0.2]
    assert json.loads(found["versions"]) == study.versions()
    assert found["backend"] == "cpu"
    assert found["created"].endswith("+00:00")


def test_commit_says_whether_files_differ_from_it(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git")

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", "-C", str(tmp_path), *who, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert provenance.commit(tmp_path / "absent") == {}
    git("init", "-q")
    (tmp_path / "a.py").write_text("x = 1")
    git("add", "a.py")
    git("commit", "-q", "-m", "A file")
    head = git("rev-parse", "HEAD")
    assert provenance.commit(tmp_path) == {"commit": head, "dirty": 0}
    (tmp_path / "a.py").write_text("x = 2")
    assert provenance.commit(tmp_path) == {"commit": head, "dirty": 1}
    found = study.provenance(Settings(), tmp_path)
    assert found["commit"] == head and found["dirty"] == 1
