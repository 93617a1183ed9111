"""One file adds one: laws, policies and compressors are found in the folders of their packages.

A plug-in is a file of such a package that declares two names: a factory, which has the name of the
file, and `EXAMPLE`, a function without arguments that makes one for the conformance suite. Nothing
else has to be edited: the package exports it, the suite checks it, the command line takes it.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any


def found(package: str) -> dict[str, ModuleType]:
    """Import the plug-ins of a package, by name, and export their factories from it.

    Args:
        package: its full name: "dtjax.cluster.delays", "dtjax.policies" or "dtjax.compressors".

    Raises:
        ValueError: if a file declares `EXAMPLE` but no factory.

    Example:
        >>> sorted(found("dtjax.policies"))[:3]
        ['asp', 'bsp', 'k_asp']
    """
    modules = {}
    for name, _ in _files(package):
        module = importlib.import_module(f"{package}.{name}")
        if not hasattr(module, "EXAMPLE"):
            continue
        if not callable(getattr(module, name, None)):
            raise ValueError(f"{module.__file__}: EXAMPLE is there, but no factory {name}()")
        modules[name] = module
        setattr(sys.modules[package], name, getattr(module, name))  # not the module of that name
    return modules


def factories(package: str) -> dict[str, Callable[..., Any]]:
    """Return the factory of each plug-in, by name.

    Example:
        >>> factories("dtjax.cluster.delays")["exponential"](2.0).mean().item()
        2.0
    """
    return {name: getattr(module, name) for name, module in found(package).items()}


def examples(package: str) -> dict[str, Callable[[], Any]]:
    """Return what makes an example of each plug-in, by name.

    Example:
        >>> examples("dtjax.compressors")["top_k"]().bits(ast.literal_eval("{}"))
        0
    """
    return {name: module.EXAMPLE for name, module in found(package).items()}


def signatures(package: str) -> dict[str, str]:
    """Read the arguments of each factory from the files, without importing them.

    Importing takes a second, as it brings JAX; help must not wait for that.

    Example:
        >>> signatures("dtjax.cluster.delays")["exponential"]
        'mean, shift=0.0'
    """
    texts = {}
    for name, path in _files(package):
        body = ast.parse(path.read_text()).body
        declared = {
            target.id
            for node in body
            if isinstance(node, (ast.Assign, ast.AnnAssign))
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
        if "EXAMPLE" in declared | set(functions) and name in functions:
            texts[name] = _arguments(functions[name])
    return texts


def _arguments(function: ast.FunctionDef) -> str:
    """Write the arguments of a function without their types."""
    every = function.args
    for argument in (*every.posonlyargs, *every.args, *every.kwonlyargs):
        argument.annotation = None
    return ast.unparse(every)


def _files(package: str) -> Iterator[tuple[str, Path]]:
    """Walk through the public files of a package."""
    module = sys.modules.get(package)
    if module is not None:
        folders = list(module.__path__)
    else:
        spec = importlib.util.find_spec(package)  # imports the packages above it alone
        folders = list(spec.submodule_search_locations or ()) if spec else []
    for entry in sorted(pkgutil.iter_modules(folders), key=lambda entry: entry.name):
        if not entry.ispkg and not entry.name.startswith("_"):
            yield entry.name, Path(entry.module_finder.path) / f"{entry.name}.py"  # ty: ignore
