"""HTTP/1.1 answers whose sizes are read to the letter: ``int()``, which ``http.client`` reads them with, takes more.

A chunk size of ``-1`` has ``http.client`` read whatever the server sends, to its end and into memory, past the bound
that its caller gave; others are a ValueError or an OverflowError, which no caller expects.
"""

from __future__ import annotations

import http.client
import re
from typing import Final

_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;[^\r\n]*)?\r?\n")
"""RFC 9112 section 7.1, with or without an extension; at the end of the line as lenient as ``http.client``."""
_LENGTH: Final = re.compile(r"[0-9]{1,19}")
_MAXIMUM_LINE_BYTES: Final = 4096
_MAXIMUM_CHUNK_BYTES: Final = 2**31 - 1
"""No answer that anybody reads here is as large, and every machine can count so far."""


class MalformedSize(http.client.HTTPException):
    """A size that is none: where the answer ends is not known."""


class StrictResponse(http.client.HTTPResponse):
    """To be the ``response_class`` of a connection."""

    def begin(self) -> None:
        """As in ``http.client``.

        Raises:
            MalformedSize: ``Content-Length`` is no number.
        """
        super().begin()
        for length in self.headers.get_all("Content-Length", ()):
            if not _LENGTH.fullmatch(length.strip(" \t")):
                raise MalformedSize("Content-Length")

    def _read_next_chunk_size(self) -> int:
        """Where ``http.client``, in every version, reads a chunk's size; the tests see to it that it does."""
        line = _CHUNK_LINE.fullmatch(self.fp.readline(_MAXIMUM_LINE_BYTES + 1))
        size = int(line[1], 16) if line else -1
        if not 0 <= size <= _MAXIMUM_CHUNK_BYTES:
            raise MalformedSize("chunk size")
        return size
