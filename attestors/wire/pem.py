"""A strict splitter of PEM blocks (RFC 7468, strict grammar of section 3, figure 3).

Lenient loaders disagree: Go skips what it cannot read, OpenSSL-based ones find a CSR in any position. The API server
must validate the same bytes on which the controller decides. This module therefore accepts exactly one form: block
after block, no other text, no headers, LF line ends, 64 characters in every full line, canonical base64.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final

_LABEL: Final = re.compile(rb"-----BEGIN ([A-Z0-9]+(?: [A-Z0-9]+)*)-----")
_LINE_CHARACTERS: Final = 64
_MAXIMUM_LABEL_CHARACTERS: Final = 64
_BASE64_LINE: Final = re.compile(rb"[A-Za-z0-9+/]{1,64}={0,2}")
_BASE64_TEXT: Final = re.compile(rb"[A-Za-z0-9+/]+={0,2}")


class MalformedPEM(ValueError):
    """The bytes are not a sequence of strict PEM blocks; the message names the line and the error."""


@dataclass(frozen=True, slots=True)
class Block:
    """One PEM block: its label and its decoded content."""

    label: str
    content: bytes


def encode(block: Block) -> bytes:
    """Serialise one block as Go's ``encoding/pem`` does, with a final newline."""
    text = base64.b64encode(block.content)
    lines = [text[start : start + _LINE_CHARACTERS] for start in range(0, len(text), _LINE_CHARACTERS)]
    label = block.label.encode("ascii")
    return b"\n".join((b"-----BEGIN " + label + b"-----", *lines, b"-----END " + label + b"-----", b""))


def split(data: bytes, *, maximum_bytes: int, maximum_blocks: int) -> tuple[Block, ...]:
    """Split ``data`` into its blocks.

    The newline after the last block may be missing. At least one block is returned.

    Raises:
        MalformedPEM: the data is not exactly a sequence of blocks, or exceeds a bound.
    """
    if len(data) > maximum_bytes:
        raise MalformedPEM(f"larger than {maximum_bytes} bytes")
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    if not lines:
        raise MalformedPEM("empty")
    blocks: list[Block] = []
    position = 0
    while position < len(lines):
        if len(blocks) == maximum_blocks:
            raise MalformedPEM(f"line {position + 1}: more than {maximum_blocks} PEM blocks")
        block, position = _read_block(lines, position)
        blocks.append(block)
    return tuple(blocks)


def first(data: bytes, *, maximum_bytes: int) -> Block:
    """The first block; anything may follow it.

    Raises:
        MalformedPEM: the data does not begin with a block, or exceeds the bound.
    """
    if len(data) > maximum_bytes:
        raise MalformedPEM(f"larger than {maximum_bytes} bytes")
    behind = data.find(b"\n", data.find(b"\n-----END ") + 1)
    block, _ = _read_block((data if behind < 0 else data[:behind]).split(b"\n"), 0)
    return block


def _read_block(lines: list[bytes], start: int) -> tuple[Block, int]:
    begin = _LABEL.fullmatch(lines[start])
    if begin is None or len(begin[1]) > _MAXIMUM_LABEL_CHARACTERS:
        raise MalformedPEM(f"line {start + 1}: expected -----BEGIN label-----")
    end = b"-----END " + begin[1] + b"-----"
    try:
        stop = lines.index(end, start + 1)
    except ValueError:
        raise MalformedPEM(f"line {start + 1}: the block has no end line of its own label") from None
    content = _decode_lines(lines, start + 1, stop)
    return Block(begin[1].decode("ascii"), content), stop + 1


def _decode_lines(lines: list[bytes], start: int, stop: int) -> bytes:
    if start == stop:
        raise MalformedPEM(f"line {start}: the block is empty")
    text = b"".join(lines[start:stop])
    if not (_are_full(lines, start, stop) and _BASE64_TEXT.fullmatch(text)):
        _require_base64(lines, start, stop)
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise MalformedPEM(f"line {start + 1}: bad base64") from error
    # The unused bits of the last byte must be zero (RFC 4648 section 3.5), or two texts would encode the same block.
    if base64.b64encode(content) != text:
        raise MalformedPEM(f"line {stop}: base64 is not canonical")
    return content


def _are_full(lines: list[bytes], start: int, stop: int) -> bool:
    """Whether every line but the last is full and only the last can be padded, so that no per-line check is needed."""
    last = lines[stop - 1]
    if len(last) > _LINE_CHARACTERS or not _BASE64_LINE.fullmatch(last):
        return False
    return all(len(line) == _LINE_CHARACTERS for line in lines[start : stop - 1])


def _require_base64(lines: list[bytes], start: int, stop: int) -> None:
    """Check line by line.

    Raises:
        MalformedPEM: the message names the first bad line.
    """
    for number in range(start, stop):
        line = lines[number]
        last = number == stop - 1
        if not _BASE64_LINE.fullmatch(line) or len(line) > _LINE_CHARACTERS:
            raise MalformedPEM(f"line {number + 1}: not a line of base64")
        if not last and (len(line) != _LINE_CHARACTERS or line.endswith(b"=")):
            raise MalformedPEM(f"line {number + 1}: every line but the last holds {_LINE_CHARACTERS} characters")
