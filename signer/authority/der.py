"""The subset of DER (ITU-T X.690) for reading a certificate's outline and writing a to-be-signed certificate; and PEM.

`cryptography` parses and encodes names, keys and extensions. This module does what that library has no interface for: a
certificate's exact bytes field by field, and a common name of more than 64 characters (see
`signer.authority.issuance`).

It also reads the textual encoding (PEM, RFC 7468) of certificates and keys in a cluster's CA Secret, line by line.
Cluster API reads the first block of ``tls.crt`` and of ``tls.key`` and ignores the rest. A lenient loader might find
another certificate than Cluster API and the API server do. So this one is strict about boundaries: explanatory text may
precede a block (RFC 7468 section 2; ``openssl x509 -text`` and ``openssl pkcs12`` write it), only white space may
follow the last one, and nothing else may look like a boundary.
"""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

__all__ = [
    "DerError",
    "Element",
    "PemBlock",
    "PemError",
    "PemHeadersError",
    "Tag",
    "bit_string",
    "context_constructed",
    "encode",
    "encode_block",
    "integer",
    "object_identifier",
    "octet_string",
    "read_blocks",
    "read_elements",
    "read_single",
    "sequence",
    "set_of_one",
    "time",
    "utf8_string",
]


class DerError(ValueError):
    """The bytes are not the expected DER."""


class Tag:
    """Identifier octets of the universal types that are used (X.690 8.1.2)."""

    BOOLEAN: Final = 0x01
    INTEGER: Final = 0x02
    BIT_STRING: Final = 0x03
    OCTET_STRING: Final = 0x04
    OBJECT_IDENTIFIER: Final = 0x06
    UTF8_STRING: Final = 0x0C
    UTC_TIME: Final = 0x17
    GENERALIZED_TIME: Final = 0x18
    SEQUENCE: Final = 0x30
    SET: Final = 0x31


_HIGH_TAG_NUMBER = 0x1F
_LONG_LENGTH = 0x80
_MAXIMUM_LENGTH_OCTETS = 3
"""At most 16 MiB. Every caller's limit is far lower."""
_FIRST_GENERALIZED_TIME_YEAR = 2050
"""RFC 5280 4.1.2.5: UTCTime through 2049, GeneralizedTime from 2050 on."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element: tag, length and content."""

    tag: int
    """Identifier octet."""
    content: bytes
    encoded: bytes
    """Tag, length and content in the input's bytes."""


def read_elements(data: bytes) -> tuple[Element, ...]:
    """The elements that ``data`` consists of.

    Raises:
        DerError: truncated, indefinite or non-minimal length, or a multi-octet tag.
    """
    elements: list[Element] = []
    position = 0
    while position < len(data):
        element = _read_element(data, position)
        elements.append(element)
        position += len(element.encoded)
    return tuple(elements)


def read_single(data: bytes, tag: int) -> Element:
    """The one element with this tag that ``data`` consists of; trailing bytes are an error.

    Raises:
        DerError: another tag, more or less than one element, or not DER.
    """
    element = _read_element(data, 0)
    if element.tag != tag or len(element.encoded) != len(data):
        raise DerError("not exactly one element of the expected type")
    return element


def _read_element(data: bytes, start: int) -> Element:
    if len(data) - start < 2:
        raise DerError("truncated")
    tag = data[start]
    if tag & _HIGH_TAG_NUMBER == _HIGH_TAG_NUMBER:
        raise DerError("multi-octet tag")
    length = data[start + 1]
    content_start = start + 2
    if length >= _LONG_LENGTH:
        octets = length - _LONG_LENGTH
        if not 1 <= octets <= _MAXIMUM_LENGTH_OCTETS:
            raise DerError("indefinite or excessive length")
        length_octets = data[content_start : content_start + octets]
        content_start += octets
        length = int.from_bytes(length_octets, "big")
        if len(length_octets) != octets or length_octets[0] == 0 or length < _LONG_LENGTH:
            raise DerError("length truncated or not minimal")
    end = content_start + length
    if end > len(data):
        raise DerError("truncated")
    return Element(tag=tag, content=data[content_start:end], encoded=data[start:end])


def encode(tag: int, content: bytes) -> bytes:
    """Tag, minimal definite length, content."""
    length = len(content)
    if length < _LONG_LENGTH:
        return bytes((tag, length)) + content
    length_octets = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((tag, _LONG_LENGTH | len(length_octets))) + length_octets + content


def sequence(*elements: bytes) -> bytes:
    """SEQUENCE of encoded elements."""
    return encode(Tag.SEQUENCE, b"".join(elements))


def set_of_one(element: bytes) -> bytes:
    """SET OF with one element, which needs no ordering."""
    return encode(Tag.SET, element)


def context_constructed(number: int, element: bytes) -> bytes:
    """``[number] EXPLICIT``."""
    return encode(0xA0 | number, element)


def integer(value: int) -> bytes:
    """INTEGER, shortest two's complement."""
    magnitude = value if value >= 0 else ~value
    return encode(Tag.INTEGER, value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True))


def bit_string(content: bytes) -> bytes:
    """BIT STRING of whole octets."""
    return encode(Tag.BIT_STRING, b"\x00" + content)


def octet_string(content: bytes) -> bytes:
    """OCTET STRING."""
    return encode(Tag.OCTET_STRING, content)


def utf8_string(text: str) -> bytes:
    """UTF8String."""
    return encode(Tag.UTF8_STRING, text.encode("utf-8"))


def object_identifier(dotted: str) -> bytes:
    """OBJECT IDENTIFIER from its dotted form (X.690 8.19)."""
    first, second, *rest = (int(arc) for arc in dotted.split("."))
    content = bytearray()
    for arc in (first * 40 + second, *rest):
        groups = [arc & 0x7F]
        while arc := arc >> 7:
            groups.append(0x80 | arc & 0x7F)
        content += bytes(reversed(groups))
    return encode(Tag.OBJECT_IDENTIFIER, bytes(content))


def time(moment: datetime) -> bytes:
    """``Time`` of RFC 5280 4.1.2.5. ``moment`` is timezone-aware and has whole seconds."""
    utc = moment.astimezone(UTC)
    digits = b"%04d%02d%02d%02d%02d%02dZ" % (utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second)
    if utc.year >= _FIRST_GENERALIZED_TIME_YEAR:
        return encode(Tag.GENERALIZED_TIME, digits)
    return encode(Tag.UTC_TIME, digits[2:])


# Textual encoding (PEM, RFC 7468)

_BOUNDARY = re.compile(rb"-----(BEGIN|END) ([A-Z0-9]+(?: [A-Z0-9]+)*)-----\Z")
_LINE_LENGTH = 64


class PemError(ValueError):
    """The text is not the expected encoding. The message quotes nothing of it."""


class PemHeadersError(PemError):
    """A block has RFC 1421 headers, as traditional encrypted private keys have."""


@dataclass(frozen=True, slots=True)
class PemBlock:
    """One block."""

    label: str
    """The label after BEGIN, such as ``CERTIFICATE``."""
    content: bytes = field(repr=False)
    """The decoded body, which may be a private key."""


def read_blocks(text: bytes, *, maximum_bytes: int, maximum_blocks: int) -> tuple[PemBlock, ...]:
    """All blocks of ``text``, in order; at least one.

    Raises:
        PemHeadersError: a block has headers.
        PemError: no block or too many, too large, a malformed boundary or body, or text after the last block.
    """
    if len(text) > maximum_bytes:
        raise PemError(f"is larger than {maximum_bytes} bytes")
    blocks: list[PemBlock] = []
    label: bytes | None = None
    body: list[bytes] = []
    text_since_last_block = False
    for raw_line in text.split(b"\n"):
        line = raw_line.rstrip(b" \t\r")  # Go finds no boundary in an indented line
        boundary = _BOUNDARY.match(line)
        if boundary is None:
            if b"-----" in line:
                raise PemError("has a malformed BEGIN or END line")
            if label is not None:
                body.append(line.lstrip(b" \t"))
            elif line:
                text_since_last_block = True
        elif boundary[1] == b"BEGIN":
            if label is not None:
                raise PemError("has a BEGIN line inside a block")
            label, body, text_since_last_block = boundary[2], [], False
        else:
            if label is None or label != boundary[2]:
                raise PemError("has an END line that closes no block of its name")
            if len(blocks) == maximum_blocks:
                raise PemError(f"has more than {maximum_blocks} PEM blocks")
            blocks.append(PemBlock(label=label.decode("ascii"), content=_decode_body(body)))
            label = None
    if label is not None:
        raise PemError("has a block without an END line")
    if not blocks:
        raise PemError("has no PEM block")
    if text_since_last_block:
        raise PemError("has text after the last PEM block")
    return tuple(blocks)


def _decode_body(lines: list[bytes]) -> bytes:
    if any(b":" in line for line in lines):
        raise PemHeadersError("has a PEM block with headers")
    try:
        content = binascii.a2b_base64(b"".join(lines), strict_mode=True)
    except binascii.Error:
        raise PemError("has a PEM block that is not base64") from None
    if not content:
        raise PemError("has an empty PEM block")
    return content


def encode_block(label: str, content: bytes) -> bytes:
    """One block in the layout of Go's ``pem.Encode`` and OpenSSL: 64 characters per line, a line feed at the end."""
    body = binascii.b2a_base64(content, newline=False).decode("ascii")
    lines = [body[start : start + _LINE_LENGTH] for start in range(0, len(body), _LINE_LENGTH)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""]).encode("ascii")
