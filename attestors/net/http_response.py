"""Reads the sizes in HTTP/1.1 responses strictly; ``http.client`` uses ``int()``, which accepts more than digits.

With a chunk size of ``-1``, ``http.client`` reads into memory whatever the server sends, past its caller's bound. Other
sizes raise a ValueError or an OverflowError, which no caller expects.
"""

from __future__ import annotations

import http.client
import re
from typing import Final

_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;[^\r\n]*)?\r?\n")
"""RFC 9112 section 7.1, with or without an extension; line endings are as lenient as in ``http.client``."""
_LENGTH: Final = re.compile(r"[0-9]{1,19}")
_MAXIMUM_LINE_BYTES: Final = 4096
_MAXIMUM_CHUNK_BYTES: Final = 2**31 - 1
"""More than any response that this project reads."""


class MalformedSize(http.client.HTTPException):
    """A size is not a number, so the end of the response is unknown."""


class StrictResponse(http.client.HTTPResponse):
    """Use it as the ``response_class`` of a connection."""

    def begin(self) -> None:
        """Override of ``http.client``.

        Raises:
            MalformedSize: ``Content-Length`` is not a number.
        """
        super().begin()
        for length in self.headers.get_all("Content-Length", ()):
            if not _LENGTH.fullmatch(length.strip(" \t")):
                raise MalformedSize("Content-Length")

    def _read_next_chunk_size(self) -> int:
        """Override of the private method that reads a chunk's size in each ``http.client``; tests check this."""
        line = _CHUNK_LINE.fullmatch(self.fp.readline(_MAXIMUM_LINE_BYTES + 1))
        size = int(line[1], 16) if line else -1
        if not 0 <= size <= _MAXIMUM_CHUNK_BYTES:
            raise MalformedSize("chunk size")
        return size
