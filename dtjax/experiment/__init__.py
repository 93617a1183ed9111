"""Experiments: studies with settings, cells that are computed once, provenance, results."""

from dtjax.experiment.command import main
from dtjax.experiment.progress import Progress
from dtjax.experiment.settings import (
    POSITIVE,
    Analysis,
    Distinct,
    Grid,
    OneOf,
    Range,
    Smoke,
)
from dtjax.experiment.study import Study

__all__ = [
    "POSITIVE",
    "Analysis",
    "Distinct",
    "Grid",
    "OneOf",
    "Progress",
    "Range",
    "Smoke",
    "Study",
    "main",
]
