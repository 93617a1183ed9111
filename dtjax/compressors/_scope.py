"""What a compressor is applied to: the base of `whole` and `dense_below`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dtjax.compressors.compressor import Around


@dataclass(frozen=True)
class Scope(Around):
    """What both share: in all but what it is applied to, it is the compressor inside."""

    @property
    def family(self) -> str:
        """That of the compressor inside."""
        return self.compressor.family

    @property
    def remembers(self) -> bool:
        """That of the compressor inside."""
        return self.compressor.remembers

    @property
    def keeps_zero(self) -> bool:
        """That of the compressor inside."""
        return self.compressor.keeps_zero


def inside(compressor: Any, wrap: Callable[[Any], Any]) -> Any:
    """Wrap what is in scopes, so that these stay outermost.

    A memory of the whole gradient's compressor is the compressor with memory on the whole gradient;
    of what is sent dense nothing is left to remember.
    """
    if isinstance(compressor, Scope):
        return replace(compressor, compressor=inside(compressor.compressor, wrap))
    return wrap(compressor)


def innermost(compressor: Any) -> Any:
    """Return what is in scopes."""
    return innermost(compressor.compressor) if isinstance(compressor, Scope) else compressor
