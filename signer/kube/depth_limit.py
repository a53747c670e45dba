"""JSON that is nested too deep to be decoded, made shallow.

API servers store objects nested 10,000 levels deep; Python's decoders stop at about a thousand. One such object, in a
free-form field that any tenant may write, would make a whole list unreadable and so stop the controller for everybody.
"""

from __future__ import annotations

import re
from typing import Final

MAXIMUM_DEPTH: Final = 128
"""What stands deeper is read as null. No field that is read here stands deeper than ten levels."""

# One match for each bracket, with all before it. Strings are skipped whole: brackets in them mean nothing. The pattern
# cannot backtrack, and what is no string to its end goes to the end of all: else each escaped quote in it would be
# tried as the beginning of another one.
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
_TOKEN: Final = re.compile(rb'(?:[^"\[\]{}]++|%b)*+([\[\]{}]|\Z)' % _STRING, re.DOTALL)
_OPENING: Final = frozenset({b"[", b"{"})
_CLOSING: Final = frozenset({b"]", b"}"})


def shallow(raw: bytes) -> bytes:
    """``raw`` with every value below :data:`MAXIMUM_DEPTH` replaced by ``null``; iterative, in linear time.

    What is not JSON stays so: the decoder refuses it afterwards.
    """
    kept: list[bytes] = []
    depth = 0
    copied_to = 0
    for match in _TOKEN.finditer(raw):
        token = match[1]
        if token in _OPENING:
            depth += 1
            if depth == MAXIMUM_DEPTH + 1:
                kept.append(raw[copied_to : match.start(1)])
        elif token in _CLOSING:
            depth -= 1
            if depth == MAXIMUM_DEPTH:
                kept.append(b"null")
                copied_to = match.end()
    if depth <= MAXIMUM_DEPTH:
        kept.append(raw[copied_to:])
    return b"".join(kept)
