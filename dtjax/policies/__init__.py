"""Synchronisation policies: one file each, and the protocol for others.

Most are a `Rule`, five numbers; any object with the protocol `dtjax.protocols.Policy` is one too.
"""

from dtjax.core import plugins
from dtjax.policies.asp import asp
from dtjax.policies.bsp import bsp
from dtjax.policies.k_asp import k_asp
from dtjax.policies.k_batch_asp import k_batch_asp
from dtjax.policies.k_batch_bsp import k_batch_bsp
from dtjax.policies.k_bsp import k_bsp
from dtjax.policies.rule import UNBOUNDED, Rule, stack
from dtjax.policies.ssp import ssp

FACTORIES = {name.replace("_", "-"): make for name, make in plugins.factories(__name__).items()}
"""The factory of each policy by the name that tables and command lines use."""

__all__ = [
    "FACTORIES",
    "UNBOUNDED",
    "Rule",
    "asp",
    "bsp",
    "k_asp",
    "k_batch_asp",
    "k_batch_bsp",
    "k_bsp",
    "ssp",
    "stack",
]
