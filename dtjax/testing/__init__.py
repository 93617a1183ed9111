"""Checks for delay laws and policies of your own: `check_delay` and `check_policy`.

Each raises AssertionError with a sentence that says what does not hold. The laws and policies that
ship pass them.
"""

from dtjax.testing.delay import check_delay
from dtjax.testing.policy import check_policy

__all__ = ["check_delay", "check_policy"]
