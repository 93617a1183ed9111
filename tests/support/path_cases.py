"""What the tests of the fast paths share."""

from __future__ import annotations

from dtjax import policies

POLICIES = {
    "asp": policies.asp(),
    "k-batch-asp": policies.k_batch_asp(4),
    "k-asp": policies.k_asp(3),
    "k-batch-bsp": policies.k_batch_bsp(4),
    "ssp": policies.ssp(2),
    "k-bsp": policies.k_bsp(3),
    "bsp": policies.bsp(),
}
