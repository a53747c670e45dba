"""Looks for a line in the files of a log: a published head names one that must be there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from signer.audit.chain import MAXIMUM_LINE_BYTES, Link, digest_of_line


class LinesRemoved(Exception):
    """The log lacks a line that it had, or another line is in its place."""


def require_line_in(paths: Iterable[Path], line: Link) -> None:
    """Require that one of the files has exactly that line.

    Raises:
        LinesRemoved: none has it.
        OSError: a file cannot be read.
    """
    begins = f'"sequence":{line.sequence},'.encode("ascii")
    for path in paths:
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            while text := file.readline(MAXIMUM_LINE_BYTES + 1):
                if begins in text[:512] and digest_of_line(text.removesuffix(b"\n")) == line.digest:
                    return
    raise LinesRemoved
