"""The provider ID as a CSR extension: KubernetesNodeProviderIdentifierOID holding one DER UTF8String.

It is a claim. Evidence must prove it and a Machine must carry it before it means anything.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from attestors.wire.names import MAXIMUM_PROVIDER_ID_CHARACTERS

# `scheme://rest` without white space or control characters: what every Cluster API provider writes.
_PROVIDER_ID: Final = re.compile(r"[a-z][a-z0-9+.-]*://[\x21-\x7e]+")
_MAXIMUM_DER_BYTES: Final = MAXIMUM_PROVIDER_ID_CHARACTERS + 8
_UTF8_STRING: Final = 0x0C
"""Identifier octet of a primitive UTF8String (X.690 section 8.23)."""
_LONG_LENGTH: Final = 0x80


class InvalidProviderID(ValueError):
    """The extension, or the text in it, is no provider ID; the message says what is wrong."""


def check_provider_id(text: str) -> str:
    """Return ``text`` if it is a provider ID: ``<provider>://<identifier>``, printable ASCII, at most 512 characters.

    Raises:
        InvalidProviderID: anything else.
    """
    if len(text) > MAXIMUM_PROVIDER_ID_CHARACTERS:
        raise InvalidProviderID(f"longer than {MAXIMUM_PROVIDER_ID_CHARACTERS} characters")
    if not _PROVIDER_ID.fullmatch(text):
        raise InvalidProviderID("not of the form <provider>://<identifier> in printable ASCII without spaces")
    return text


def encode(provider_id: str) -> bytes:
    """The extension's value for ``provider_id``.

    Raises:
        InvalidProviderID: the text is no provider ID.
    """
    content = check_provider_id(provider_id).encode("ascii")
    return bytes((_UTF8_STRING, *_length(len(content)))) + content


def _length(octets: int) -> bytes:
    """The length octets of DER: definite, and as few as there can be (X.690 section 10.1)."""
    if octets < _LONG_LENGTH:
        return bytes((octets,))
    length = octets.to_bytes((octets.bit_length() + 7) // 8, "big")
    return bytes((_LONG_LENGTH | len(length),)) + length


# Asked for six times while a request is judged.
@functools.lru_cache(maxsize=256)
def decode(value: bytes) -> str:
    """Read the extension's value: exactly one UTF8String in DER, nothing behind it.

    Raises:
        InvalidProviderID: another type, another encoding, trailing bytes, or no provider ID.
    """
    if len(value) > _MAXIMUM_DER_BYTES:
        raise InvalidProviderID(f"longer than {MAXIMUM_PROVIDER_ID_CHARACTERS} characters")
    if len(value) < 2 or value[0] != _UTF8_STRING:
        raise InvalidProviderID("the extension's value is not a UTF8String")
    start, end = _content(value)
    if end < len(value):
        raise InvalidProviderID("the extension's value has bytes behind the UTF8String")
    try:
        text = value[start:end].decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidProviderID("the extension's value is not a UTF8String") from error
    # Any length was accepted here, in any form: encoding again must give the very same bytes.
    if encode(text) != value:
        raise InvalidProviderID("the extension's value is not DER")
    return text


def _content(value: bytes) -> tuple[int, int]:
    """Where the content of the element begins, and where its length octets say that it ends."""
    length, start = value[1], 2
    if length >= _LONG_LENGTH:
        start += length - _LONG_LENGTH
        length = int.from_bytes(value[2:start], "big")
    return start, start + length
