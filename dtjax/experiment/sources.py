"""Which source a result ran: digests of the modules that were loaded when it was computed."""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
UNCACHED = ("analyse", "report")
"""Methods of a study that no cell runs."""


def loaded(own: Path | None = None) -> dict[str, str]:
    """Return the digest of each loaded file of dtjax, and of a study.

    Args:
        own: folder of the study; its files are named relative to it.
    """
    roots = {"dtjax": PACKAGE} | ({"study": own} if own else {})
    found = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not file or not file.endswith(".py"):
            continue
        path = Path(file).resolve()
        for label, root in roots.items():
            if not path.is_relative_to(root):
                continue
            name = path.relative_to(root)
            if "site-packages" not in name.parts:  # an environment that lies beside the study
                found[f"{label}/{name.as_posix()}"] = digest(path, label == "study")
            break
    return found


def unchanged(digests: dict[str, str], own: Path | None = None) -> bool:
    """Whether all files still have these digests."""
    roots = {"dtjax": PACKAGE, "study": own}
    for name, value in digests.items():
        label, _, rest = name.partition("/")
        root = roots[label]
        if root is None or digest(root / rest, label == "study") != value:
            return False
    return True


def digest(path: Path, study: bool = False) -> str:
    """Hash what a file does: without comments, layout and docstrings; empty without a file.

    Args:
        path: of a Python file.
        study: whether methods that no cell runs are left out.
    """
    try:
        return _digest(path.read_bytes(), study)
    except OSError:
        return ""


@functools.cache
def _digest(source: bytes, study: bool) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            # A docstring, and the strings below fields.
            node.body = [one for one in node.body if not _is_text(one)]
        if study and isinstance(node, ast.ClassDef):
            node.body = [one for one in node.body if getattr(one, "name", "") not in UNCACHED]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
