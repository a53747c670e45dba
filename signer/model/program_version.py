"""The version of the running program."""

from __future__ import annotations

import functools
from importlib.metadata import version
from typing import Final

DISTRIBUTION: Final = "capi-node-attestation"


@functools.cache
def program_version() -> str:
    """Version of the installed package, such as ``0.2.0``."""
    return version(DISTRIBUTION)
