"""The tests of bits, in a process that compiles as users' processes do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_bits_do_not_depend_on_lanes_chunks_or_devices() -> None:
    flags = ("XLA_FLAGS", "PYTEST_XDIST_WORKER")  # the suite's own are for fast compiling
    environment = {name: value for name, value in os.environ.items() if name not in flags}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "bits and not slow", "-n0", "tests"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment | {"DTJAX_TESTS_OPTIMISED": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
