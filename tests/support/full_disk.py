"""Runs a program whose output goes to a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

FULL: Final = Path("/dev/full")


def run_on_full_disk(
    module: str,
    arguments: Sequence[str],
    *,
    unbuffered: str,
    log_too: bool = False,
    environment: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Run ``python -m MODULE``; returns its exit code and its standard error, which with ``log_too`` is full as well.

    ``unbuffered`` is the value of PYTHONUNBUFFERED: output fails at the first line, or at the end.
    """
    with FULL.open("wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            stdout=full,
            stderr=full if log_too else subprocess.PIPE,
            env={**os.environ, **(environment or {}), "PYTHONUNBUFFERED": unbuffered},
            check=False,
            timeout=60,
        )
    return ran.returncode, ran.stderr or b""
