"""What studies/compression_staleness.py trains: all shares of one staleness and memory."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import optax
import xarray as xr

import dtjax
from dtjax import compressors, data, models
from dtjax.analysis.dataset import join
from dtjax.experiment.arms import Entry
from dtjax.experiment.lanes import Trainer
from dtjax.experiment.schedules import Schedule
from dtjax.training.rate_search import RateSearch
from dtjax.training.task import Task, classification

if TYPE_CHECKING:
    from dtjax.experiment import Progress

MEASURES = ("test_loss", "test_accuracy", "validation_loss", "validation_accuracy")
SLOTS = 32
"""Versions that are kept at least: one program does for every staleness below."""


def compute(study: Any, memory: str, staleness: int, progress: Progress) -> xr.Dataset:
    """Tune and train: raw arrays with dimensions share, run, evaluation, candidate."""
    count, done = study.tuning_runs + study.runs, [0]
    work = study.tuning_runs * len(study.rates) + study.runs
    work *= len(study.shares) * study.updates

    def told(gradients: int) -> None:
        done[0] += gradients
        progress.share(done[0] / work)

    trace = jax.tree.map(lambda x: np.repeat(x[None], count, 0), trace_of(study, staleness))
    # Without a memory it is error feedback of decay 0, which sends C(g): one program for both.
    decay = float(memory == "feedback")
    senders = [compressors.error_feedback(compressors.top_k(s), decay=decay) for s in study.shares]
    trainer = Trainer(
        task=learning_task(study.dataset, study.hidden, study.batch),
        entries=[Entry("", "", None, None, 1, one, optax.sgd) for one in senders],
        schedules=[Schedule(trace, None)] * len(senders),  # ty: ignore[invalid-argument-type]
        keys=jax.random.split(jax.random.key(study.seed), count),
        evaluate_every=max(1, study.updates // 8),
        block=8,
        mesh=None,
        progress=told,
    )
    tuning, reported = np.split(np.arange(count), [study.tuning_runs])
    places = range(len(study.shares))
    search = RateSearch(dict.fromkeys(places, study.rates), widenings=study.widenings)
    while wanted := search.ask():
        for cell, one in zip(wanted, trainer.train(wanted, tuning), strict=True):
            loss = np.nan_to_num(one.measures["validation_loss"][:, -1], nan=np.inf)
            search.tell(*cell, np.full(loss.shape, np.inf), -loss)
    choices = search.choices()
    trained = trainer.train([(place, choices[place].rate) for place in places], reported)
    parts = [
        one.to_xarray()[[*MEASURES, "updates", "diverged"]].assign(
            rate=choices[place].rate,
            rate_warning=choices[place].warning,
            tried=("candidate", choices[place].tried),
        )
        for place, one in enumerate(trained)
    ]
    whole = join([parts], "only", "share").isel(only=0, drop=True)
    # Cells whose grids of rates grew are longer: a coordinate of `candidate` could not be joined.
    return whole.drop_vars(list(whole.coords)).assign_coords(
        share=list(study.shares), run=range(study.runs)
    )


@functools.cache
def learning_task(dataset: str, hidden: tuple[int, ...], batch: int) -> Task:
    """Return the task: a network of dense layers on the chosen data; one for all cells."""
    sets = data.LOADERS[dataset]()
    return classification(models.mlp(hidden, sets.classes), sets, batch=batch)


def trace_of(study: Any, staleness: int) -> Any:
    """Return the trace in which every gradient was read so many updates ago, or at version 0."""
    t = np.arange(study.updates)
    trace = dtjax.make_trace(
        dt=np.ones(len(t)),
        worker=(t % study.workers)[:, None],
        version=np.maximum(0, t - staleness)[:, None],
        examples=study.batch,
    )
    slots = max(SLOTS, 1 << staleness.bit_length())
    trace = dataclasses.replace(trace, slots=slots, workers=study.workers)
    return jax.tree.map(np.asarray, trace)
