"""What a training gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from dtjax.core import checks
from dtjax.core.pytree import pytree

if TYPE_CHECKING:
    import xarray as xr


@pytree
@dataclass(frozen=True)
class Training:
    """What a replay gives, with E evaluations; batches of runs have leading axes.

    Once a run has diverged its parameters stay at the last finite ones and its measures are NaN.
    """

    loss: jax.Array  # f[T] mean loss of the row's mini-batches at the versions that were read
    measures: dict[str, jax.Array]  # f[E, ...]
    updates: jax.Array  # i[E] updates made by each evaluation
    gradients: jax.Array  # i[E] gradients used by each evaluation
    diverged: jax.Array  # i[] update at which the run diverged; -1: it did not
    params: Any  # the last version
    dt: jax.Array  # f[T] seconds of each update: the trace's

    @property
    def seconds(self) -> np.ndarray:
        """float64[E], the second of each evaluation, summed on the host; batches: [..., E]."""
        return seconds_at(self.dt, self.updates)

    def to_xarray(self) -> xr.Dataset:
        """Return everything but the parameters with names, on the host.

        Dimensions are `evaluation` and `update`, before them `run` for a batch of runs, and for a
        measure of many entries `<measure>_entry`. The losses of the updates are `batch_loss`.

        Raises:
            ValueError: if there are two leading axes or more: `vmap` over one, or select first.

        Example:
            >>> import dtjax, optax
            >>> cluster = dtjax.Cluster(n=2, delay=dtjax.delays.deterministic(3.0))
            >>> run = dtjax.simulate(jax.random.key(0), cluster, dtjax.policies.bsp(), updates=4)
            >>> task = dtjax.task.quadratic([1.0])
            >>> result = dtjax.replay(
            ...     jax.random.key(1), run.trace, task, optax.sgd(0.5), evaluate_every=4
            ... )
            >>> result.to_xarray().seconds.values.tolist()
            [0.0, 6.0, 12.0]
        """
        import xarray as xr

        axes = np.ndim(self.updates) - 1
        if axes > 1:
            rule = "must have at most one leading axis, of runs"
            raise checks.fail("to_xarray", "training", rule, np.shape(self.updates))
        run = ("run",) * axes
        each = (*run, "evaluation")
        values: dict[str, Any] = {}
        for name, value in self.measures.items():
            more = [f"{name}_entry"] if np.ndim(value) > axes + 1 else []
            values[name] = ([*each, *more], np.asarray(value))
        values |= {
            "seconds": (each, self.seconds, {"units": "s"}),
            "updates": (each, np.asarray(self.updates)),
            "gradients": (each, np.asarray(self.gradients)),
            "diverged": (run, np.asarray(self.diverged)),
            "batch_loss": ((*run, "update"), np.asarray(self.loss)),
        }
        return xr.Dataset(values)


def seconds_at(dt: Any, updates: Any) -> np.ndarray:
    """Return when so many updates were made, float64[..., E].

    Args:
        dt: f[..., T], seconds of each update.
        updates: i[..., E], how many updates.
    """
    times = np.cumsum(np.asarray(dt, np.float64), axis=-1)
    padded = np.concatenate([np.zeros((*times.shape[:-1], 1)), times], axis=-1)
    return np.take_along_axis(padded, np.asarray(updates), axis=-1)
