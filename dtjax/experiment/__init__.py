"""Experiments: studies with settings, cells that are computed once, provenance, results."""

from dtjax.experiment.settings import (
    POSITIVE,
    Analysis,
    Distinct,
    Grid,
    OneOf,
    Range,
    Smoke,
)
from dtjax.experiment.study import Progress, Study, main

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
