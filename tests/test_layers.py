"""Who may import whom: each module stands on a floor and imports only from below it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import dtjax

ROOT = Path(__file__).parents[1]

# A package imports from lower floors only, never from another package of its own floor.
FLOORS = (
    ("core",),
    ("compressors", "policies"),
    ("cluster",),
    ("clock", "theory"),
    ("montecarlo",),
    ("training",),
    ("analysis",),
    ("experiment",),
    ("cli", "testing"),
    ("__main__", "studies", "figures", "benchmarks"),
)
PLACE = {name: floor for floor, row in enumerate(FLOORS) for name in row}
OUTSIDE = ("studies", "figures", "benchmarks")  # beside the package, on the highest floor
KERNELS = ("clock", "training.update", "training.replay")
PLUGINS = ("cluster.delays", "cluster.network", "compressors", "policies", "training.models")
QUESTIONS = ("cluster.delays.law", "policies.rule")  # what any law or policy can be asked
MOST_PACKAGES, MOST_FLAT_FILES = 14, 6
LAZY = {**dtjax._NAMES, **dtjax._MODULES}  # what `dtjax.name` brings, and from where


def files() -> dict[str, Path]:
    """Return every module by its full name."""
    found = {}
    for top in ("dtjax", *OUTSIDE):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def entry(module: str) -> str:
    """Return the name under which a module stands in FLOORS."""
    top, *rest = module.split(".")
    return rest[0] if top == "dtjax" and rest else top


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Walk through what a file imports, also inside functions, but not for type checkers only."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path}:{node.lineno}: a relative import"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "dtjax":
            yield f"dtjax.{node.attr}", node.lineno


def ours(path: Path) -> Iterator[tuple[str, int]]:
    """Walk through the modules of this repository that a file imports."""
    known = files()
    for name, line in imports(path):
        top, *rest = name.split(".")
        if top not in ("dtjax", *OUTSIDE):
            continue
        if top == "dtjax" and rest and rest[0] in LAZY:
            name = ".".join(["dtjax", LAZY[rest[0]], *rest[1:]])
        while name not in known:
            name = name.rpartition(".")[0]
        if name != "dtjax":  # itself it imports nothing
            yield name, line


def test_every_module_stands_on_a_floor() -> None:
    missing = {entry(name) for name in files() if name != "dtjax"} - set(PLACE)
    assert not missing, f"give {sorted(missing)} a place in FLOORS of {Path(__file__).name}"


@pytest.mark.parametrize("name", [name for name in files() if name != "dtjax"])
def test_imports_come_from_below(name: str) -> None:
    own = entry(name)
    for module, line in ours(files()[name]):
        other = entry(module)
        where = f"{name}, line {line}: imports {module}"
        assert other == own or PLACE[other] < PLACE[own], f"{where}, which is not below it"
        assert own not in OUTSIDE or other == own or other not in OUTSIDE, where


def test_no_import_goes_round_in_a_circle() -> None:
    below = {name: {module for module, _ in ours(path)} for name, path in files().items()}
    packages = {name for name in below if files()[name].name == "__init__.py"}
    # A package that names its parts is no circle: parts import each other, not the package.
    order = TopologicalSorter(
        {name: set() if name in packages else rest - packages for name, rest in below.items()}
    )
    order.prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize("name", [name for name in files() if name.startswith("dtjax.")])
def test_kernels_take_laws_policies_and_models_as_arguments(name: str) -> None:
    if not name.removeprefix("dtjax.").startswith(KERNELS):
        return
    for module, line in ours(files()[name]):
        place = module.removeprefix("dtjax.")
        assert not place.startswith(PLUGINS) or place in QUESTIONS, f"{name}, line {line}: {module}"


def test_figures_read_datasets_and_run_nothing() -> None:
    for path in (ROOT / "figures").rglob("*.py"):
        for name, line in imports(path):
            assert name.split(".")[0] != "jax", f"{path.name}, line {line}"
        for name, line in ours(path):
            assert PLACE[entry(name)] >= PLACE["analysis"], f"{path.name}, line {line}: {name}"


def test_a_stranger_counts_few_packages_and_fewer_flat_files() -> None:
    top = list((ROOT / "dtjax").glob("*"))
    packages = [path.name for path in top if (path / "__init__.py").exists()]
    assert sorted(packages) == sorted(set(PLACE) - {*OUTSIDE, "__main__"})
    assert len(packages) <= MOST_PACKAGES
    assert len([path for path in top if path.suffix == ".py"]) <= MOST_FLAT_FILES


def test_design_names_the_floors_in_this_order() -> None:
    design = (ROOT / "DESIGN.md").read_text()
    rows = [line for line in design.splitlines() if re.match(r"\| \d+ \|", line)]
    named = [re.findall(r"`(\w+)/`", row.split("|")[2]) for row in rows]
    assert named == [[name for name in row if name != "__main__"] for row in reversed(FLOORS)]


HEAVY = ("xarray", "matplotlib", "sklearn", "flax", "optax")


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import dtjax", (*HEAVY, "jax", "numpy", "scipy")),
        ("import dtjax; dtjax.simulate, dtjax.Cluster, dtjax.delays, dtjax.policies", HEAVY),
    ],
)
def test_importing_loads_nothing_heavy(statement: str, absent: tuple[str, ...]) -> None:
    code = f"{statement}\nimport sys\nprint(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert not set(absent) & set(run.stdout.split())


def test_importing_starts_no_device() -> None:
    names = [name for name in files() if name.startswith("dtjax.") and "__main__" not in name]
    code = "import importlib, jax\n" + "\n".join(f"importlib.import_module({n!r})" for n in names)
    code += "\nassert not jax._src.xla_bridge._backends"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_files_are_short() -> None:
    long = {
        str(path.relative_to(ROOT)): length
        for top in ("dtjax", "tests", "benchmarks", "figures")
        for path in (ROOT / top).rglob("*.py")
        if (length := len(path.read_text().splitlines())) > 300
    }
    assert not long
