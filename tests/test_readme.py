"""What the README promises: its commands are those that CI runs, and nothing in it is left open."""

from __future__ import annotations

import inspect
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


@pytest.mark.parametrize("name", ["policies", "delays", "network", "compressors"])
def test_the_reference_lists_every_factory(name: str) -> None:
    import dtjax

    package = getattr(dtjax, name)
    reference = (ROOT / "docs" / "reference.md").read_text()
    names = getattr(package, "__all__", dir(package))
    for factory in names:
        made = inspect.isfunction(getattr(package, factory)) and not factory.startswith("_")
        if made and factory not in ("clocked", "stack", "power_sgd_round", "check_law"):
            assert re.search(rf"\b{factory}\b", reference), factory
