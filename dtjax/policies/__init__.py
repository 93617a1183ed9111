"""Synchronisation policies: factories of `Rule`, and the protocol for others.

A policy that is more than five numbers is any object with the protocol `dtjax.protocols.Policy`.
"""

from dtjax.policies.named import FACTORIES, asp, bsp, k_asp, k_batch_asp, k_batch_bsp, k_bsp, ssp
from dtjax.policies.rule import UNBOUNDED, Rule, stack

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
