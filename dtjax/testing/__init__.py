"""Checks for delay laws, policies and compressors of your own.

`check_delay`, `check_policy` and `check_compressor` each raise AssertionError with a sentence that
says what does not hold. The laws, policies and compressors that ship pass them.
"""

from dtjax.testing.compressor import check_compressor
from dtjax.testing.delay import check_delay
from dtjax.testing.policy import check_policy

__all__ = ["check_compressor", "check_delay", "check_policy"]
