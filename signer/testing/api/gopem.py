"""PEM as the API server's Go standard library reads it (``encoding/pem`` Decode).

Go skips everything that is not a well-formed block, so a malformed block in front of a good one is passed over. Callers
that accept only one block type therefore look at the first block that decodes, whatever its type.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

_BEGIN = b"\n-----BEGIN "
_END = b"\n-----END "
_DASHES = b"-----"


@dataclass(frozen=True, slots=True)
class Block:
    """One PEM block and what follows it."""

    label: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    content: bytes
    rest: bytes


def _line(data: bytes) -> tuple[bytes, bytes]:
    line, _, rest = data.partition(b"\n")
    if line.endswith(b"\r"):
        line = line[:-1]
    return line.rstrip(b" \t"), rest


def _headers(data: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    headers: list[tuple[bytes, bytes]] = []
    while data:
        line, event_history = _line(data)
        key, colon, value = line.partition(b":")
        if not colon:
            break
        headers.append((key.strip(), value.strip()))
        data = event_history
    return headers, data


def _decode(data: bytes) -> bytes | None:
    compact = data.translate(None, b" \t\r\n")
    try:
        decoded = base64.b64decode(compact, validate=True)
    except binascii.Error:
        return None
    # Go's decoder, unlike Python's, requires the padding and nothing after it.
    return decoded if len(compact) % 4 == 0 else None


def first_block(data: bytes) -> Block | None:
    """The first block that decodes, or None when there is none at all."""
    rest = data
    while True:
        if rest.startswith(_BEGIN[1:]):
            rest = rest[len(_BEGIN) - 1 :]
        else:
            index = rest.find(_BEGIN)
            if index < 0:
                return None
            rest = rest[index + len(_BEGIN) :]
        label_line, rest = _line(rest)
        if not label_line.endswith(_DASHES):
            continue
        label = label_line[: -len(_DASHES)]
        headers, rest = _headers(rest)
        if not rest:
            return None
        if not headers and rest.startswith(_END[1:]):
            end, trailer_at = 0, len(_END) - 1
        else:
            end = rest.find(_END)
            trailer_at = end + len(_END)
        if end < 0:
            continue
        trailer = label + _DASHES
        if not rest.startswith(trailer, trailer_at):
            continue
        tail, _ = _line(rest[trailer_at + len(trailer) :])
        if tail:
            continue
        content = _decode(rest[:end])
        if content is None:
            continue
        _, event_history = _line(rest[end + len(_END) - 1 :])
        return Block(label, tuple(headers), content, event_history)


def blocks(data: bytes) -> list[Block]:
    """Every block that decodes, in order."""
    found = []
    while (block := first_block(data)) is not None:
        found.append(block)
        data = block.rest
    return found
