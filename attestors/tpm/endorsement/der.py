"""A lenient reader of tag, length and value.

Manufacturers' certificates are not strict DER: they encode defaults, order sets wrongly and keep trailing zero bits.
A TPM's certificate cannot be reissued, so this reader accepts such forms; it only guarantees that one byte string has
one meaning. Signatures are verified over the bytes as received, which `Element.encoded` keeps.

Accepted: lengths in more octets than needed, any content of SET, any order. Rejected: indefinite lengths and tags of
several octets, which no certificate has in the places read here.

Each function reads one level and nothing recurses, so nesting depth costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

BOOLEAN: Final = 0x01
INTEGER: Final = 0x02
BIT_STRING: Final = 0x03
OCTET_STRING: Final = 0x04
OBJECT_IDENTIFIER: Final = 0x06
UTC_TIME: Final = 0x17
GENERALIZED_TIME: Final = 0x18
SEQUENCE: Final = 0x30
SET: Final = 0x31

_HIGH_TAG_NUMBER: Final = 0x1F
_LONG_LENGTH: Final = 0x80
_MAXIMUM_LENGTH_OCTETS: Final = 4
_MAXIMUM_INTEGER_OCTETS: Final = 1 + 8192 // 8
"""The largest number with a meaning here is an issuer's RSA modulus."""
_MAXIMUM_IDENTIFIER_OCTETS: Final = 64
_UTC_TIME_PIVOT: Final = 50
"""RFC 5280 4.1.2.5.1: two-digit years from 50 on are in the twentieth century."""


class Malformed(ValueError):
    """Not the expected structure. The message continues "the certificate ..."."""


@dataclass(frozen=True, slots=True)
class Element:
    """One tag, length, value."""

    tag: int
    content: bytes
    encoded: bytes
    """Tag, length and content as in the input."""


def read_first(data: bytes) -> Element:
    """The element at the start of ``data``; the caller handles what follows it.

    Raises:
        Malformed: truncated, an indefinite length, or a tag of several octets.
    """
    return _read(data, 0)


def read_all(data: bytes) -> tuple[Element, ...]:
    """The elements that fill ``data`` from end to end.

    Raises:
        Malformed: see `read_first`.
    """
    elements: list[Element] = []
    position = 0
    while position < len(data):
        element = _read(data, position)
        elements.append(element)
        position += len(element.encoded)
    return tuple(elements)


def children(element: Element, tag: int) -> tuple[Element, ...]:
    """The elements inside ``element``, which must have this tag.

    Raises:
        Malformed: another tag, or content that is not a sequence of elements.
    """
    _expect(element, tag)
    return read_all(element.content)


def only(data: bytes, tag: int) -> Element:
    """The single element, with this tag, that fills ``data``.

    Raises:
        Malformed: anything else.
    """
    element = _read(data, 0)
    _expect(element, tag)
    if len(element.encoded) != len(data):
        raise Malformed("has bytes after a value")
    return element


def boolean(element: Element) -> bool:
    """Any octet but zero is true (X.690 8.2.2); DER allows only 0xff.

    Raises:
        Malformed: not a BOOLEAN of one octet.
    """
    _expect(element, BOOLEAN)
    if len(element.content) != 1:
        raise Malformed("has a BOOLEAN that is not one octet")
    return element.content != b"\x00"


def integer(element: Element) -> int:
    """A signed number; leading octets that DER forbids are accepted.

    Raises:
        Malformed: not an INTEGER, empty, or too large.
    """
    _expect(element, INTEGER)
    if not 1 <= len(element.content) <= _MAXIMUM_INTEGER_OCTETS:
        raise Malformed("has an INTEGER that is empty or too large")
    return int.from_bytes(element.content, "big", signed=True)


def bit_string(element: Element) -> tuple[bytes, int]:
    """The octets, and how many bits of the last one are unused.

    Raises:
        Malformed: not a BIT STRING.
    """
    _expect(element, BIT_STRING)
    if not element.content or element.content[0] > 7 or (len(element.content) == 1 and element.content[0] != 0):
        raise Malformed("has a malformed BIT STRING")
    return element.content[1:], element.content[0]


def octets_of_bit_string(element: Element) -> bytes:
    """A BIT STRING of whole octets: a key or a signature.

    Raises:
        Malformed: not a BIT STRING, or one with unused bits.
    """
    octets, unused = bit_string(element)
    if unused:
        raise Malformed("has a BIT STRING that is not of whole octets")
    return octets


def octet_string(element: Element) -> bytes:
    """The octets.

    Raises:
        Malformed: not an OCTET STRING.
    """
    _expect(element, OCTET_STRING)
    return element.content


def object_identifier(element: Element) -> str:
    """Dotted form (X.690 8.19).

    Raises:
        Malformed: not an OBJECT IDENTIFIER, truncated, or too long.
    """
    _expect(element, OBJECT_IDENTIFIER)
    content = element.content
    if not content or len(content) > _MAXIMUM_IDENTIFIER_OCTETS or content[-1] & 0x80:
        raise Malformed("has a malformed OBJECT IDENTIFIER")
    arcs: list[int] = []
    value = 0
    for octet in content:
        value = value << 7 | octet & 0x7F
        if not octet & 0x80:
            arcs.append(value)
            value = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(str(arc) for arc in (first, arcs[0] - first * 40, *arcs[1:]))


def time(element: Element) -> datetime:
    """A UTCTime or a GeneralizedTime, either one for any year; seconds and fractions are optional.

    Raises:
        Malformed: another type, a time zone other than UTC, or an invalid date.
    """
    if element.tag not in (UTC_TIME, GENERALIZED_TIME) or not element.content.isascii():
        raise Malformed("has a date of an unknown type")
    text = element.content.decode("ascii")
    year_digits = 2 if element.tag == UTC_TIME else 4
    if not text.endswith("Z"):
        raise Malformed("has a date that is not in UTC")
    digits = text[:-1].partition(".")[0]
    if not digits.isdigit() or len(digits) - year_digits not in (8, 10):
        raise Malformed("has a malformed date")
    year, rest = int(digits[:year_digits]), digits[year_digits:].ljust(10, "0")
    if element.tag == UTC_TIME:
        year += 1900 if year >= _UTC_TIME_PIVOT else 2000
    month, day, hour, minute, second = (int(rest[start : start + 2]) for start in range(0, 10, 2))
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise Malformed("has a date that is not in the calendar") from None


def _expect(element: Element, tag: int) -> None:
    if element.tag != tag:
        raise Malformed(f"has a value of type {element.tag:#04x} where {tag:#04x} is expected")


def _read(data: bytes, start: int) -> Element:
    if len(data) - start < 2:
        raise Malformed("is truncated")
    tag, length, content_start = data[start], data[start + 1], start + 2
    if tag & _HIGH_TAG_NUMBER == _HIGH_TAG_NUMBER:
        raise Malformed("has a tag of several octets")
    if length >= _LONG_LENGTH:
        octets = length - _LONG_LENGTH
        if not 1 <= octets <= _MAXIMUM_LENGTH_OCTETS:
            raise Malformed("has an indefinite or excessive length")
        length = int.from_bytes(data[content_start : content_start + octets], "big")
        content_start += octets
    end = content_start + length
    if end > len(data):
        raise Malformed("is truncated")
    return Element(tag, data[content_start:end], data[start:end])
