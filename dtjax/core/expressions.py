"""A law, a policy or a compressor from text, as command lines and settings name it."""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable
from typing import Any, NoReturn

from dtjax.core import checks, plugins

Factories = dict[str, Callable[..., Any]]


def make(function: str, argument: str, package: str, text: str, **numbers: Any) -> Any:
    """Make what the text says: NAME, NAME:NUMBERS or NAME(NUMBERS), as Python writes arguments.

    Names are those of the package's plug-ins, with dashes or underscores. Arguments may be numbers,
    lists, strings in quotes, and other plug-ins of the package. No other code runs.

    Args:
        function: name for the error.
        argument: name for the error.
        package: as in `dtjax.core.plugins.found`.
        text: what to make.
        numbers: further arguments, None for those not given: --k 2 beside --policy k-asp.

    Raises:
        ValueError: if the text is not of this form, a name is unknown, or an argument is missing,
            unknown or out of its range.

    Example:
        >>> law = make("simulate", "law", "dtjax.cluster.delays", "scaled(pareto(2, 0.5), [1, 3])")
        >>> law.mean().tolist()
        [1.0, 3.0]
        >>> make("simulate", "policy", "dtjax.policies", "k-asp:2,max_staleness=4").k
        2
    """
    reader = _Reader(function, argument, text, plugins.factories(package))
    # --top-k:0.01 is top_k(0.01): a dash between letters is part of a name.
    python = re.sub(r"(?<=[A-Za-z])-(?=[A-Za-z])", "_", text.strip())
    python = re.sub(r"^(\w+):(.*)$", r"\1(\2)", python)
    try:
        node = ast.parse(python, mode="eval").body
    except SyntaxError:
        reader.fail()
    if not isinstance(node, (ast.Name, ast.Call)):
        reader.fail()
    given = {name: value for name, value in numbers.items() if value is not None}
    return reader.call(node, given)


class _Reader:
    """Reads one text."""

    def __init__(self, function: str, argument: str, text: str, factories: Factories) -> None:
        self.function, self.argument, self.text = function, argument, text
        self.factories = factories

    def fail(self, rule: str = "must be NAME, NAME:NUMBERS or NAME(NUMBERS)") -> NoReturn:
        raise checks.fail(self.function, self.argument, rule, self.text)

    def value(self, node: ast.expr) -> Any:
        """Evaluate one argument."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.value(element) for element in node.elts]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            number = self.value(node.operand)
            return -number if isinstance(number, (int, float)) else self.fail()
        if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
            return getattr(math, node.id)
        if isinstance(node, (ast.Name, ast.Call)):
            return self.call(node, {})
        self.fail()

    def call(self, node: ast.Name | ast.Call, given: dict[str, Any]) -> Any:
        """Call one factory; a name alone is called without arguments."""
        target = node.func if isinstance(node, ast.Call) else node
        if not isinstance(target, ast.Name):
            self.fail()
        name, given = target.id, dict(given)
        checks.choice(self.function, self.argument, name, self.factories)
        factory, positional = self.factories[name], []
        parameters = inspect.signature(factory).parameters
        for option, number in given.items():
            if option not in parameters:
                raise checks.fail(self.function, option, f"is not an option of {name}", number)
        if isinstance(node, ast.Call):
            positional = [self.value(argument) for argument in node.args]
            named = {word.arg: self.value(word.value) for word in node.keywords}
            if None in named or set(named) & set(given):
                self.fail(self._usage(name))
            given |= {str(word): value for word, value in named.items()}
        try:
            inspect.signature(factory).bind(*positional, **given)
        except TypeError:
            self.fail(self._usage(name))
        return factory(*positional, **given)

    def _usage(self, name: str) -> str:
        parameters = inspect.signature(self.factories[name]).parameters.values()
        bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
        return f"must be {name}{inspect.Signature(bare)}"
