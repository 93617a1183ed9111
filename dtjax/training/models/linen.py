"""Flax Linen modules as models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from dtjax.core import checks
from dtjax.training.models.held import SWITCHES, Held, switch_of, switched
from dtjax.training.models.model import Model
from dtjax.training.task.task import Version


def from_linen(module: Any) -> Model:
    """Make a model of a Linen module; see `from_flax`."""
    held, switch = Held(module), switch_of(module.__call__)
    train = None if switch is None else _Train(held, switch)
    return Model(_Init(held, switch), _Apply(held, switch), train)


@dataclass(frozen=True)
class _Init:
    module: Held
    switch: str | None

    def __call__(self, key: jax.Array, x: jax.Array) -> Any:
        variables = dict(self.module.value.init(key, x, **switched(self.switch, False)))
        params = variables.pop("params", {})
        if not variables:
            return params
        if self.switch is None:
            asked = ", ".join(f"`{name}`" for name in SWITCHES)
            rule = f"with state must have one of {asked} in its __call__, to be evaluated by"
            raise checks.fail("from_flax", "module", rule, sorted(variables))
        return Version(params, variables)


@dataclass(frozen=True)
class _Apply:
    module: Held
    switch: str | None

    def __call__(self, version: Any, x: jax.Array) -> jax.Array:
        return self.module.value.apply(_variables(version), x, **switched(self.switch, False))


@dataclass(frozen=True)
class _Train:
    module: Held
    switch: str

    def __call__(self, version: Any, x: jax.Array, key: jax.Array) -> tuple[jax.Array, Any]:
        # Linen takes the stream "params" for streams of other names ("dropout") that are not given.
        how: Any = {"rngs": {"params": key}} | switched(self.switch, True)
        apply, variables = self.module.value.apply, _variables(version)
        if not isinstance(version, Version):
            return apply(variables, x, **how), ()
        outputs, state = apply(variables, x, mutable=sorted(version.state), **how)
        return outputs, dict(state)


def _variables(version: Any) -> dict[str, Any]:
    if isinstance(version, Version):
        return {"params": version.params, **version.state}
    return {"params": version}
