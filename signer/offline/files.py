"""Reads files and standard input within bounds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from signer.offline.failures import InputRefused

STANDARD_INPUT: Final = "-"


def read_input(name: str, *, maximum_bytes: int) -> bytes:
    """The content of a file, or of standard input for ``-``.

    Raises:
        InputRefused: it cannot be read, is empty, or is larger.
    """
    try:
        if name == STANDARD_INPUT:
            data = sys.stdin.buffer.read(maximum_bytes + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(maximum_bytes + 1)
    except OSError as error:
        raise InputRefused(f"{name!a} cannot be read: {error.strerror or type(error).__name__}") from None
    shown = "standard input" if name == STANDARD_INPUT else ascii(name)
    if not data:
        raise InputRefused(f"{shown} is empty")
    if len(data) > maximum_bytes:
        raise InputRefused(f"{shown} has more than {maximum_bytes} bytes")
    return data
