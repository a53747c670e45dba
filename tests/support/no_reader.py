"""Runs a program whose output pipe is closed, as with ``| head``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence


def run_without_reader(module: str, arguments: Sequence[str], *, unbuffered: str) -> tuple[int, bytes]:
    """Run ``python -m MODULE``; returns its exit code and its standard error.

    ``unbuffered`` is the value of PYTHONUNBUFFERED: output fails at the first line, or at the end.
    """
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            stdout=writing,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            check=False,
            timeout=60,
        )
    finally:
        os.close(writing)
    return ran.returncode, ran.stderr
