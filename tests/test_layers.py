"""Who may import whom: each module stands on a floor and imports only from below it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dtjax

ROOT = Path(__file__).parents[1]

# A module or package imports those of lower floors, and on its own floor those that stand before
# it. The modules of a package are one entry.
FLOORS = (
    ("trees", "checks", "lanes", "types", "keys"),
    ("codecs", "collectives", "sharing", "delays", "network", "compressors"),
    ("policies", "models", "data"),
    ("cluster", "task", "theory"),
    ("state", "links", "cycles", "sweeps", "arrival", "accounts", "gather", "results", "rows"),
    ("general", "fast", "arguments"),
    ("paths", "clock", "traces", "update", "trainer"),
    (
        "measures",
        "tuning",
        "montecarlo",
        "batches",
        "fleet",
        "continuity",
        "sensitivities",
        "dataset",
        "study",
    ),
    ("report", "outcomes", "gantt", "transfers", "cli_network", "cli_transfers", "cli"),
    ("__main__",),
    ("testing", "studies", "figures", "benchmarks"),
)
PLACE = {name: (floor, i) for floor, row in enumerate(FLOORS) for i, name in enumerate(row)}
KERNELS = (
    "state",
    "links",
    "cycles",
    "sweeps",
    "arrival",
    "accounts",
    "gather",
    "rows",
    "general",
    "update",
    "trainer",
)
KERNELS += ("fast.stream", "fast.machine", "fast.forms", "fast.workers", "fast.rounds")
OUTSIDE = ("studies", "figures", "benchmarks")  # beside the package, on the highest floor
LAZY = dtjax._NAMES  # what `dtjax.name` brings, and from where


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
            name = LAZY[rest[0]]
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


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_take_laws_policies_and_models_as_arguments(name: str) -> None:
    for module, line in ours(files()[f"dtjax.{name}"]):
        plugin = entry(module) in ("delays", "policies", "models", "network", "compressors")
        assert not plugin or module == "dtjax.delays.law", f"{name}, line {line}: {module}"


def test_figures_read_datasets_and_run_nothing() -> None:
    for path in (ROOT / "figures").rglob("*.py"):
        for name, line in imports(path):
            assert name.split(".")[0] != "jax", f"{path.name}, line {line}"
        for name, line in ours(path):
            assert PLACE[entry(name)] >= PLACE["measures"], f"{path.name}, line {line}: {name}"


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
