"""The floors of DESIGN.md: files import only from floors below, and importing dtjax is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# A file stands above all that it imports; within a floor only what the order of the list allows.
FLOORS = [
    ["types", "keys", "lanes", "checks"],
    ["delays", "policies", "models", "data"],
    ["cluster", "task", "traces", "theory"],
    ["state", "arrival", "accounts", "arguments", "clock", "update", "trainer"],
    ["montecarlo", "measures", "tuning", "dataset", "study"],
    ["report", "outcomes", "gantt", "cli", "__main__"],
    ["testing"],
]
PLACE = {name: (f, i) for f, names in enumerate(FLOORS) for i, name in enumerate(names)}


def imports(path: Path) -> set[str]:
    """Return the dtjax modules that a file imports, wherever in it, types aside."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            found.update(n.name for n in node.names if n.name.startswith("dtjax."))
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "dtjax":
                found.update(f"dtjax.{n.name}" for n in node.names)
            elif node.module.startswith("dtjax."):
                found.add(node.module)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return {name.split(".")[1] for name in found}


def files() -> list[Path]:
    return sorted(p for p in (ROOT / "dtjax").rglob("*.py") if p != ROOT / "dtjax" / "__init__.py")


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_files_import_only_from_below(path: Path) -> None:
    own = path.relative_to(ROOT / "dtjax").parts[0].removesuffix(".py")
    assert own in PLACE, f"say in FLOORS where {own} stands"
    for name in imports(path) - {own}:
        if name in PLACE:
            assert PLACE[name] < PLACE[own], f"{path.name} imports {name} from above"


def test_kernels_import_no_law_policy_or_model() -> None:
    for kernel in ("arrival", "clock", "update", "trainer"):
        found = imports(ROOT / "dtjax" / f"{kernel}.py")
        assert not found & {"models", "data", "theory"}
        assert "policies" not in found
        source = (ROOT / "dtjax" / f"{kernel}.py").read_text()
        assert "from dtjax.delays" not in source.replace("from dtjax.delays.law import clocked", "")


def test_studies_and_figures_do_not_import_each_other() -> None:
    kernels = {"arrival", "clock", "update", "trainer", "montecarlo"}
    for path in (ROOT / "figures").glob("*.py"):
        assert not imports(path) & kernels
        assert "studies" not in {n.split(".")[0] for n in _roots(path)}
    for path in (ROOT / "studies").glob("*.py"):
        assert "figures" not in {n.split(".")[0] for n in _roots(path)}


def _roots(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    plain = {n.name for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names}
    return plain | {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import dtjax", "jax xarray matplotlib sklearn flax optax scipy tyro"),
        ("import dtjax.cli", "jax xarray matplotlib sklearn flax optax scipy"),
        ("import dtjax; dtjax.simulate, dtjax.replay", "xarray matplotlib sklearn flax optax"),
    ],
)
def test_imports_are_light(statement: str, absent: str) -> None:
    code = f"import sys; {statement}; print(*[m for m in {absent.split()!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_files_are_small() -> None:
    for path in [*files(), *(ROOT / "studies").glob("*.py"), *(ROOT / "figures").glob("*.py")]:
        assert len(path.read_text().splitlines()) <= 400, path
