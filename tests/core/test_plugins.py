"""One file adds one: a new file is exported, checked and taken by the command line by itself."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_output import rows, simulate
from dtjax.cli import main
from dtjax.core import plugins
from dtjax.testing import check_compressor, check_delay, check_policy

LAW = '''
"""Times that are twice an exponential time."""

from dtjax.cluster.delays import exponential


def twice(mean):
    return exponential(2 * mean)


def EXAMPLE():
    return twice(1.0)
'''
POLICY = '''
"""The server updates at every second arrival."""

from dtjax.policies.rule import Rule


def pairs(max_staleness=None):
    return Rule(k=2, max_staleness=max_staleness)


EXAMPLE = pairs
'''
COMPRESSOR = '''
"""Two entries of each tensor."""

from functools import partial

from dtjax.compressors.top_k import top_k


def two(indices="packed"):
    return top_k(k=2, indices=indices)


EXAMPLE = partial(two, "bitmap")
'''
NEW = {
    "dtjax.cluster.delays": ("twice", "mean", LAW),
    "dtjax.policies": ("pairs", "max_staleness=None", POLICY),
    "dtjax.compressors": ("two", "indices='packed'", COMPRESSOR),
}
CHECKS = dict(zip(NEW, (check_delay, check_policy, check_compressor), strict=True))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put one new file into each of the packages."""
    monkeypatch.setattr("dtjax.experiment.study.prepare", lambda **settings: None)
    for package, (name, _, text) in NEW.items():
        place = tmp_path / package
        place.mkdir()
        (place / f"{name}.py").write_text(text)
        module = importlib.import_module(package)
        monkeypatch.setattr(module, "__path__", [*module.__path__, str(place)])
    yield
    for package, (name, *_) in NEW.items():
        sys.modules.pop(f"{package}.{name}", None)
        vars(sys.modules[package]).pop(name, None)


@pytest.mark.parametrize("package", NEW)
def test_reading_and_importing_find_the_same_plugins(package: str) -> None:
    assert list(plugins.signatures(package)) == list(plugins.found(package))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("package", NEW)
def test_a_new_file_is_exported_and_checked(package: str) -> None:
    name, arguments, _ = NEW[package]
    assert plugins.signatures(package)[name] == arguments
    CHECKS[package](plugins.examples(package)[name]())
    assert getattr(sys.modules[package], name) is plugins.factories(package)[name]


@pytest.mark.usefixtures("folder")
def test_the_command_line_takes_new_files(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["simulate", "--help"])
    told = capsys.readouterr().out
    for name, arguments, _ in NEW.values():
        assert f"{name}({arguments})" in told
    ends = ["--workers", "3", "--updates", "4"]
    links = ["--bandwidth", "1e3", "--parameters", "1000", "--compressor"]
    new = ["--law", "twice:0.5", "--policy", "pairs", *links, "two"]
    known = ["--mean", "1", "--policy", "k-batch-asp:2", *links, "top_k(k=2, indices='packed')"]
    found = simulate(capsys, *ends, *new)
    assert found == simulate(capsys, *ends, *known)
    assert rows(found)[2]["bytes of a gradient"] == 2 * (10 + 32) / 8


def test_an_example_without_a_factory_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = importlib.import_module("dtjax.policies")
    (tmp_path / "nameless.py").write_text("EXAMPLE = dict\n")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    with pytest.raises(ValueError, match="EXAMPLE is there, but no factory nameless"):
        plugins.found("dtjax.policies")
    del sys.modules["dtjax.policies.nameless"]
    vars(package).pop("nameless")
