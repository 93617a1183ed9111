"""A tiny study in process: cells are computed once, analyses each time, errors have codes."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import tiny_study
from dtjax.experiment import command as line
from dtjax.experiment import files, sources, study
from tiny_study import TinyPowers


@pytest.fixture(autouse=True)
def computed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    monkeypatch.setattr(line, "prepare", lambda: None)  # the devices of this process are chosen
    tiny_study.computed.clear()
    yield tiny_study.computed


def parts(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "parts").iterdir())


def test_a_run_joins_its_cells_along_the_grid_and_writes_them(
    tmp_path: Path, computed: list[Any]
) -> None:
    whole = TinyPowers(out=tmp_path).run(progress=False)
    assert whole.power.dims == ("base", "kind", "term")
    assert whole.base.values.tolist() == [2, 3] and whole.kind.values.tolist() == [
        "plain",
        "negated",
    ]
    assert whole.power.sel(base=3, kind="negated").values.tolist() == [-3, -9, -27]
    assert whole.passed.sel(kind="plain").values.tolist() == [True, True]
    xr.testing.assert_identical(files.read(tmp_path / "tiny_powers.nc"), whole)
    config = json.loads(whole.attrs["config"])
    assert config["bases"] == [2, 3] and config["target"] == 5.0
    assert whole.attrs["study"] == "tiny_powers"
    kinds = [(base, kind) for base in (2, 3) for kind in ("plain", "negated")]
    assert computed == [{"base": base, "kind": kind} for base, kind in kinds]
    assert [name.rpartition("-")[0] for name in parts(tmp_path)] == [
        "2-negated", "2-plain", "3-negated", "3-plain",
    ]  # fmt: skip


def test_cells_are_computed_again_for_another_setting_alone(
    tmp_path: Path, computed: list[Any]
) -> None:
    first = TinyPowers(out=tmp_path).run(progress=False)
    xr.testing.assert_equal(TinyPowers(out=tmp_path).run(progress=False), first)
    other = TinyPowers(out=tmp_path, target=10.0).run(progress=False)  # analysis only
    assert other.passed.sel(kind="plain").values.tolist() == [False, True]
    TinyPowers(out=tmp_path, bases=(3,), figure=False).run(progress=False)
    assert len(computed) == 4
    TinyPowers(out=tmp_path, bases=(2, 5)).run(progress=False)  # one base more
    assert computed[4:] == [{"base": 5, "kind": kind} for kind in ("plain", "negated")]
    changes: list[dict[str, Any]] = [{"terms": 4}, {"seed": 1}, {"smoke": True}]
    for number, change in enumerate(changes, start=1):
        TinyPowers(out=tmp_path, **change).run(progress=False)
        assert len(computed) == 6 + 4 * number, change


@pytest.mark.parametrize("setting", ["target", "bases", "out"])
def test_a_cell_cannot_read_what_it_is_not_kept_by(tmp_path: Path, setting: str) -> None:
    with pytest.raises(AttributeError, match=f"tiny_powers: setting {setting} is no part of what"):
        TinyPowers(out=tmp_path, bad=setting).run(progress=False)


def test_an_interrupted_run_goes_on(
    tmp_path: Path, computed: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--out", str(tmp_path), "--bad", "interruption"]
    assert line.command(TinyPowers, arguments) == 130
    captured = capsys.readouterr()
    assert captured.err.endswith(
        "interrupted: what is done is kept, the same command goes on from there\n"
    )
    assert captured.out == "" and not (tmp_path / "tiny_powers.nc").exists()
    assert [name.rpartition("-")[0] for name in parts(tmp_path)] == ["2-negated", "2-plain"]
    assert len(computed) == 3
    assert line.command(TinyPowers, arguments) == 130
    assert len(computed) == 4  # the first two were read


def test_a_cell_whose_file_is_cut_off_is_computed_again(
    tmp_path: Path, computed: list[Any]
) -> None:
    first = TinyPowers(out=tmp_path).run(progress=False)
    path = tmp_path / "parts" / parts(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:300])  # as a full disk leaves it
    xr.testing.assert_equal(TinyPowers(out=tmp_path).run(progress=False), first)
    assert len(computed) == 5 and computed[-1] == {"base": 2, "kind": "negated"}


def test_a_cell_is_computed_again_where_its_source_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path(str(tiny_study.__file__)).read_text()
    path = tmp_path / "source" / "changing.py"
    path.parent.mkdir()

    def runs(source: str) -> tuple[int, xr.Dataset]:
        """Run the study from this source; return how many cells it computed, and the result."""
        path.write_text(source)
        spec = importlib.util.spec_from_file_location("changing", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "changing", module)
        exec(compile(source, str(path), "exec"), module.__dict__)  # no cached bytecode
        whole = module.TinyPowers(out=tmp_path / "out").run(progress=False)
        return len(module.computed), whole

    assert runs(text)[0] == 4
    assert runs(text.replace("Compute powers.", "Other words."))[0] == 0
    count, whole = runs(text.replace("whole.power > self.target", "whole.power > 3 * self.target"))
    assert count == 0 and whole.passed.sel(kind="plain").values.tolist() == [False, True]
    count, whole = runs(text.replace("np.arange(1.0", "2 * np.arange(1.0"))
    assert count == 4 and whole.power.values[0, 0].tolist() == [4.0, 8.0, 12.0]
    # A file of the library counts as well.
    digest = sources.digest
    changed = sources.PACKAGE / "core" / "checks.py"
    monkeypatch.setattr(sources, "digest", lambda p, *a: "other" if p == changed else digest(p, *a))
    assert runs(text.replace("np.arange(1.0", "2 * np.arange(1.0"))[0] == 4


def test_a_command_prints_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--out", str(tmp_path), "--bases", "3", "2", "--target", "10", "--smoke"]
    assert line.command(TinyPowers, arguments) == 0
    captured = capsys.readouterr()
    assert captured.out == f"0 pass 10\nwrote {tmp_path / 'tiny_powers.nc'}\n"
    assert files.read(tmp_path / "tiny_powers.nc").sizes["term"] == 2
    assert "100%" in captured.err  # the bar


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--terms 0", "tiny_powers: terms must be an integer between 1 and 10, got 0"),
        ("--kinds plane", "tiny_powers: kinds must be one of negated, plain"),
        ("--bases 13", r"tiny_powers: bases must not hold 13, got \(13,\)"),
        ("--seed -1", "tiny_powers: seed must be an integer between 0 and 2147483647, got -1"),
        ("--bad error", "powers: too large"),
    ],
)
def test_errors_are_one_line_and_the_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, message: str
) -> None:
    assert line.command(TinyPowers, ["--out", str(tmp_path / "o"), *arguments.split()]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.search(f"error: {message}", last)
    assert not list(tmp_path.rglob("*.partial"))


def test_a_folder_that_cannot_be_written_is_an_error_before_any_work(
    tmp_path: Path, computed: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert line.command(TinyPowers, ["--out", str(tmp_path / "file" / "sub")]) == 1
    assert (
        "error: output_folder: out must be a folder that can be written" in capsys.readouterr().err
    )
    assert computed == []


def test_help_says_question_choices_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        line.command(TinyPowers, ["--help"])
    assert stopped.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in (
        "Do powers grow?",
        "{plain,negated} ...",
        "To be passed. (default: 5.0)",
        "Folder of",
    ):
        assert words in text


def test_the_exit_code_is_that_of_the_process(tmp_path: Path) -> None:
    command = [sys.executable, str(tiny_study.__file__), "--out", str(tmp_path), "--terms", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    done = subprocess.run(command[:-1] + ["1"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "wrote" in done.stdout
    assert files.read(tmp_path / "tiny_powers.nc").sizes["base"] == 2


def test_shorter_cells_are_padded() -> None:
    cells = [xr.Dataset({"x": ("run", np.arange(float(size)))}) for size in (3, 1)]
    whole = study._joined({"n": (4, 8)}, cells)
    np.testing.assert_array_equal(whole.x, [[0, 1, 2], [0, np.nan, np.nan]])
    assert whole.n.values.tolist() == [4, 8]
