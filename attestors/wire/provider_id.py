"""The provider ID as a CSR extension: KubernetesNodeProviderIdentifierOID holding one DER UTF8String.

It is a claim. Evidence must prove it and a Machine must carry it before it means anything.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from pyasn1.codec.der import decoder, encoder
from pyasn1.error import PyAsn1Error
from pyasn1.type import char

from attestors.wire.names import MAXIMUM_PROVIDER_ID_CHARACTERS

# `scheme://rest` without white space or control characters: what every Cluster API provider writes.
_PROVIDER_ID: Final = re.compile(r"[a-z][a-z0-9+.-]*://[\x21-\x7e]+")
_MAXIMUM_DER_BYTES: Final = MAXIMUM_PROVIDER_ID_CHARACTERS + 8


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
    return bytes(encoder.encode(char.UTF8String(check_provider_id(provider_id))))


@functools.lru_cache(maxsize=4096)
def decode(value: bytes) -> str:
    """Read the extension's value: exactly one UTF8String in DER, nothing behind it.

    Raises:
        InvalidProviderID: another type, another encoding, trailing bytes, or no provider ID.
    """
    if len(value) > _MAXIMUM_DER_BYTES:
        raise InvalidProviderID(f"longer than {MAXIMUM_PROVIDER_ID_CHARACTERS} characters")
    try:
        decoded, rest = decoder.decode(value, asn1Spec=char.UTF8String())
        text = str(decoded)
    except (PyAsn1Error, UnicodeError, OverflowError) as error:  # the last one: of a length beyond all memory
        raise InvalidProviderID("the extension's value is not a UTF8String") from error
    if rest:
        raise InvalidProviderID("the extension's value has bytes behind the UTF8String")
    # pyasn1 accepts BER lengths here; encoding again must give the very same bytes.
    if encode(text) != value:
        raise InvalidProviderID("the extension's value is not DER")
    return text
