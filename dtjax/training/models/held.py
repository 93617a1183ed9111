"""What functions made of Flax modules have in common."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

SWITCHES = {
    "train": True,
    "training": True,
    "is_training": True,
    "deterministic": False,
    "use_running_average": False,
}
"""Arguments by which modules are told whether they are trained, and their value in training."""


def switch_of(call: Callable[..., Any]) -> str | None:
    """Return the argument by which a module is told whether it is trained; None: it has none."""
    names = inspect.signature(call).parameters
    return next((name for name in SWITCHES if name in names), None)


def switched(switch: str | None, training: bool) -> dict[str, bool]:
    """Return the argument as keywords."""
    return {} if switch is None else {switch: SWITCHES[switch] == training}


class Held:
    """A value compared as such if it can be hashed, else by identity.

    Compiled programs are looked up by the functions that they were made of, and these hold modules.
    """

    def __init__(self, value: Any) -> None:
        """Hold a value.

        Args:
            value: anything.
        """
        self.value = value
        try:
            self._hash, self._by_value = hash(value), True
        except TypeError:
            self._hash, self._by_value = id(value), False

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Held):
            return NotImplemented
        if self.value is other.value:
            return True
        return self._by_value and other._by_value and bool(self.value == other.value)
