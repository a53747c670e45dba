"""The version of the running program."""

from __future__ import annotations

import functools
from typing import Final

DISTRIBUTION: Final = "capi-node-attestation"


@functools.cache
def program_version() -> str:
    """Version of the installed package, such as ``0.2.0``."""
    from importlib.metadata import version  # takes longer than the rest of the program's start

    return version(DISTRIBUTION)
