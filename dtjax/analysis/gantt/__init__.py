"""The Gantt chart of one run: who computed and sent what, when, and what became of it."""

from dtjax.analysis.gantt.cycles import NAMES, Bar, bars
from dtjax.analysis.gantt.picture import draw

__all__ = ["NAMES", "Bar", "bars", "draw"]
