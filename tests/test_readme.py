"""What the README promises: its commands are those that CI runs, and nothing in it is left open."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_ci_runs_the_readme_test_command() -> None:
    (command,) = re.findall(r"^(python3 -m venv .*pytest.*)$", README, re.M)
    install, test = command.rsplit(" && ", 1)
    ci = (ROOT / ".ci" / "run").read_text().splitlines()
    assert install in ci
    assert test in ci


def test_readme_names_only_files_that_exist() -> None:
    for path in re.findall(r"(?:python |\()((?:studies|figures|benchmarks)/[\w/]+\.\w+)", README):
        assert (ROOT / path).exists(), path


def test_no_placeholder_is_left() -> None:
    assert "@@" not in README


@pytest.mark.parametrize("name", ["policies", "delays"])
def test_readme_lists_every_factory(name: str) -> None:
    import dtjax

    for factory in getattr(dtjax, name).__all__:
        if factory.islower() and factory not in ("clocked", "stack"):
            assert re.search(rf"\b{factory}\b", README), factory


def test_constraints_hold_no_address() -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert not re.search(r"https?:|file:|--|@", text)
