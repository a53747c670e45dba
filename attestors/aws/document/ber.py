"""A reader of tag, length and value (X.690) for the structures around an instance identity document.

AWS signs with a streaming encoder, so the outermost layers have indefinite lengths. Those layers are *entered* and
*left*, and only they may be indefinite. Everything else is a definite *element* with the shortest possible length, as
in DER. The caller knows the structure and requests one tag after the other. Nothing recurses, so depth costs nothing,
and an unexpected value is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from attestors.aws.document.errors import IdentityDocumentMalformed

INTEGER: Final = 0x02
OCTET_STRING: Final = 0x04
NULL: Final = 0x05
OBJECT_IDENTIFIER: Final = 0x06
SEQUENCE: Final = 0x30
SET: Final = 0x31
CONSTRUCTED_OCTET_STRING: Final = 0x24
CONTEXT_0: Final = 0xA0
CONTEXT_1: Final = 0xA1

_INDEFINITE: Final = 0x80
_INDEFINITE_LENGTH: Final = -1
_END_OF_CONTENTS: Final = b"\x00\x00"
_MAXIMUM_LENGTH_OCTETS: Final = 2
"""Every structure that is read here is below 64 KiB."""


@dataclass(frozen=True, slots=True)
class Element:
    """One tag, length, value of definite length."""

    content: bytes
    encoded: bytes
    """Tag, length and content as in the input."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A constructed value that was entered; pass it to :meth:`Reader.leave`."""

    outer_limit: int
    indefinite: bool


class Reader:
    """Parses a structure from front to back, and requires that no bytes are left."""

    def __init__(self, data: bytes, structure: str) -> None:
        """``structure`` names the parsed structure in messages."""
        self._data = data
        self._position = 0
        self._limit = len(data)
        self.structure = structure

    def malformed(self, fault: str) -> IdentityDocumentMalformed:
        """The error to raise, prefixed with the structure's name."""
        return IdentityDocumentMalformed(f"{self.structure} {fault}")

    def at(self, tag: int) -> bool:
        """Whether the next value has this tag; for optional values."""
        return self._position < self._limit and self._data[self._position] == tag

    def at_end(self) -> bool:
        """Whether the current layer, if it is definite, or else the input is consumed."""
        return self._position == self._limit

    def element(self, tag: int, what: str) -> Element:
        """The next value, of definite length.

        Raises:
            IdentityDocumentMalformed: another tag, an indefinite or overlong length, or truncated.
        """
        start = self._position
        length = self._header(tag, what)
        if length == _INDEFINITE_LENGTH:
            raise self.malformed(f"has an indefinite length for {what}")
        self._position += length
        return Element(self._data[self._position - length : self._position], self._data[start : self._position])

    def identifier(self, what: str) -> bytes:
        """The content octets of an OBJECT IDENTIFIER, whose DER encoding is unique.

        Raises:
            IdentityDocumentMalformed: see :meth:`element`.
        """
        return self.element(OBJECT_IDENTIFIER, what).content

    def enter(self, tag: int, what: str) -> Layer:
        """Enter a constructed value, of definite or indefinite length.

        Raises:
            IdentityDocumentMalformed: another tag, an overlong length, or truncated.
        """
        length = self._header(tag, what)
        layer = Layer(self._limit, length == _INDEFINITE_LENGTH)
        if not layer.indefinite:
            self._limit = self._position + length
        return layer

    def leave(self, layer: Layer, what: str) -> None:
        """Leave the layer that was entered last.

        Raises:
            IdentityDocumentMalformed: the layer has unread content, or no end marker.
        """
        if layer.indefinite:
            end = self._position + len(_END_OF_CONTENTS)
            if end > self._limit or self._data[self._position : end] != _END_OF_CONTENTS:
                raise self.malformed(f"has something unexpected in {what}")
            self._position = end
        elif self._position != self._limit:
            raise self.malformed(f"has something unexpected in {what}")
        self._limit = layer.outer_limit

    def finish(self) -> None:
        """Raises ``IdentityDocumentMalformed`` if bytes are left."""
        if self._position != len(self._data):
            raise self.malformed("has bytes after its end")

    def _header(self, tag: int, what: str) -> int:
        """Parse tag and length; afterwards the position is at the content, which is complete."""
        position, limit = self._position, self._limit
        if limit - position < 2:
            raise self.malformed(f"ends where {what} is expected")
        if self._data[position] != tag:
            raise self.malformed(f"has a value of type {self._data[position]:#04x} where {what} is expected")
        length = self._data[position + 1]
        position += 2
        if length == _INDEFINITE:
            self._position = position
            return _INDEFINITE_LENGTH
        if length > _INDEFINITE:
            octets = length - _INDEFINITE
            if octets > _MAXIMUM_LENGTH_OCTETS or octets > limit - position:
                raise self.malformed(f"has an excessive length for {what}")
            length = int.from_bytes(self._data[position : position + octets], "big")
            position += octets
            # The long form is for 0x80 and more, and needs as few octets as possible.
            if length < _INDEFINITE or length >> 8 * (octets - 1) == 0:
                raise self.malformed(f"has a length for {what} that is not the shortest")
        if length > limit - position:
            raise self.malformed(f"ends inside {what}")
        self._position = position
        return length


def read_all(data: bytes, tag: int, structure: str) -> tuple[Element, ...]:
    """The values of this tag that fill ``data`` from end to end.

    Raises:
        IdentityDocumentMalformed: see :meth:`Reader.element`.
    """
    reader = Reader(data, structure)
    elements: list[Element] = []
    while not reader.at_end():
        elements.append(reader.element(tag, "one of its values"))
    return tuple(elements)


def only(data: bytes, tag: int, structure: str) -> Element:
    """The single value, with this tag, that fills ``data``.

    Raises:
        IdentityDocumentMalformed: anything else.
    """
    reader = Reader(data, structure)
    element = reader.element(tag, "its value")
    reader.finish()
    return element
