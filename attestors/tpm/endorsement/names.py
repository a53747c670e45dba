"""Distinguished names: their comparison along a chain, and their text for a person.

Names are compared by RFC 5280 7.1, which ignores string type, case and white space: genuine intermediates of AMD and
STMicroelectronics write their issuer's name in another string type than the issuer does. The order of a SET has no
meaning, so Nuvoton's wrong order does not matter. A name only selects candidates; the signature proves the issuer.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import Final

from attestors.tpm.endorsement import der
from attestors.tpm.endorsement.der import Element, Malformed

_MAXIMUM_VALUE_OCTETS: Final = 512
"""Genuine ones have less than 100. Normalisation takes time quadratic in a run of combining characters: some 20 ms for
a value as large as a certificate may be, less than 0.1 ms for this size."""
_MAXIMUM_NAME_CHARACTERS: Final = 256
_MAXIMUM_VALUE_CHARACTERS: Final = 128
_STRING_ENCODINGS: Final = {
    0x0C: "utf-8",  # UTF8String
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # TeletexString, as certificates use it in practice
    0x16: "ascii",  # IA5String
    0x1A: "ascii",  # VisibleString
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}
_SHORT_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.5": "serialNumber",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
}

ComparableName = tuple[frozenset[tuple[str, str | bytes]], ...]


@dataclass(frozen=True, slots=True)
class Name:
    """A Name (RFC 5280 4.1.2.4)."""

    comparable: ComparableName = field(repr=False)
    """Equal for equal names."""
    attributes: tuple[tuple[str, str], ...] = field(repr=False)
    """Type and printable text of each attribute, in encoded order."""
    exact: tuple[tuple[str, str], ...] = field(repr=False)
    """The same with the whole text, however it looks; with ``#`` and hexadecimal digits where it is no text. Different
    values have different ones, so that they may tell chips apart. Not for a person or a log."""
    text: str
    """``C=CH, O=STMicroelectronics NV, CN=...``, with bounded length."""


def read_name(element: Element) -> Name:
    """Raises `Malformed` if the element is not a Name, or a value in it is too long."""
    relative_names: list[frozenset[tuple[str, str | bytes]]] = []
    attributes: list[tuple[str, str]] = []
    exact: list[tuple[str, str]] = []
    for relative in der.children(element, der.SEQUENCE):
        pairs: list[tuple[str, str | bytes]] = []
        for attribute in der.children(relative, der.SET):
            parts = der.children(attribute, der.SEQUENCE)
            if len(parts) != 2:
                raise Malformed("has a malformed name")
            if len(parts[1].content) > _MAXIMUM_VALUE_OCTETS:
                raise Malformed(f"has a name with a value of more than {_MAXIMUM_VALUE_OCTETS} octets")
            identifier, value = der.object_identifier(parts[0]), _decode(parts[1])
            shown = value if isinstance(value, str) else value.decode("latin-1")
            pairs.append((identifier, _folded(value) if isinstance(value, str) else value))
            attributes.append((identifier, _bounded(printable(shown), _MAXIMUM_VALUE_CHARACTERS)))
            exact.append((identifier, value if isinstance(value, str) else f"#{value.hex()}"))
        relative_names.append(frozenset(pairs))
    words = ", ".join(f"{_SHORT_NAMES.get(identifier, identifier)}={value}" for identifier, value in attributes)
    text = _bounded(words, _MAXIMUM_NAME_CHARACTERS) or "(empty name)"
    return Name(tuple(relative_names), tuple(attributes), tuple(exact), text)


def printable(raw: str) -> str:
    """Text of a certificate, safe for a log line: no control characters, bounded length."""
    safe = "".join(character if character.isprintable() else "?" for character in raw[: _MAXIMUM_NAME_CHARACTERS + 1])
    return _bounded(safe, _MAXIMUM_NAME_CHARACTERS)


def _decode(value: Element) -> str | bytes:
    """Text of a string type; otherwise the encoded bytes, which are compared as they are."""
    encoding = _STRING_ENCODINGS.get(value.tag)
    if encoding is None:
        return value.encoded
    try:
        return value.content.decode(encoding)
    except UnicodeDecodeError:
        return value.encoded


def _folded(text: str) -> str:
    """RFC 5280 7.1 with RFC 4518: normalised, case-folded, white space collapsed."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _bounded(words: str, maximum: int) -> str:
    return words if len(words) <= maximum else words[: maximum - 1] + "…"
