"""Tasks: a loss, its mini-batches and its measures."""

from dtjax.training.task.classification import classification
from dtjax.training.task.quadratic import quadratic
from dtjax.training.task.supervised import supervised
from dtjax.training.task.task import Task, Version

__all__ = ["Task", "Version", "classification", "quadratic", "supervised"]
