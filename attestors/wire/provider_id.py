"""The provider ID as a CSR extension: KubernetesNodeProviderIdentifierOID with one DER UTF8String.

It is a claim of the requester, which evidence must prove and a Machine must carry.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from attestors.wire.names import MAXIMUM_PROVIDER_ID_CHARACTERS, PROVIDER_ID_OID

# Cluster API sets no form. Most providers write `scheme://rest`; Alibaba Cloud writes `<region>.<instance>`, and MAAS
# puts the name of a zone into it, which may have spaces. In ASCII no two texts look alike, and none has a second form.
_PRINTABLE: Final = re.compile(r"[\x20-\x7e]+")
_MAXIMUM_DER_BYTES: Final = MAXIMUM_PROVIDER_ID_CHARACTERS + 8
_UTF8_STRING: Final = 0x0C
"""Identifier octet of a primitive UTF8String (X.690 section 8.23)."""
_LONG_LENGTH: Final = 0x80
_ARCS_BELOW_0_AND_1: Final = 40
"""X.660: arcs 0 and 1 have at most 40 children; the encoding allows no more."""

MAXIMUM_OIDS: Final = 4
"""Number of OIDs that a controller reads: the current one, and those of nodes not yet migrated."""
_OID: Final = re.compile(r"[0-2](?:\.(?:0|[1-9][0-9]{0,9})){2,19}", re.ASCII)
_LARGEST_NUMBER: Final = 2**31 - 1
"""The largest that Go reads in an OID (``encoding/asn1``, ``parseBase128Int``), and so any API server."""
_MAXIMUM_OID_BYTES: Final = 63
"""The longest OID that the library keeps."""
_RESERVED_ARCS: Final = (
    "2.5.29",  # extensions of X.509 itself
    "1.3.6.1.5.5.7",  # PKIX
    "1.3.6.1.4.1.11129.2.4",  # Certificate Transparency
    "1.3.6.1.4.1.311",  # Microsoft
    "1.3.36",  # TeleTrusT
    "2.16.840.1.113730",  # Netscape
)
"""Arcs of extensions that have another meaning to libraries and API servers."""


class InvalidOID(ValueError):
    """No extension with this OID can hold a provider ID; the message says why."""


class InvalidProviderID(ValueError):
    """The extension or its text is not a provider ID; the message names the error."""


def check_provider_id(text: str) -> str:
    """Return ``text`` if it can be a provider ID: 1 to 512 characters of printable ASCII, without spaces at its ends.

    Source: ``minLength`` and ``maxLength`` of ``Machine.spec.providerID``; ``Node.spec.providerID`` has no bounds.

    Raises:
        InvalidProviderID: anything else.
    """
    if not text:
        raise InvalidProviderID("empty")
    if len(text) > MAXIMUM_PROVIDER_ID_CHARACTERS:
        raise InvalidProviderID(f"longer than {MAXIMUM_PROVIDER_ID_CHARACTERS} characters")
    if not _PRINTABLE.fullmatch(text):
        raise InvalidProviderID("not printable ASCII")
    if text != text.strip(" "):
        raise InvalidProviderID("begins or ends with a space")
    return text


def check_oid(text: str) -> str:
    """Return ``text`` if it is an OID in dotted form under which requests may hold the provider ID.

    Raises:
        InvalidOID: it is malformed, API servers or the library cannot read it, or it may belong to other extensions.
    """
    if not _OID.fullmatch(text) or (text[0] != "2" and int(text.split(".")[1]) >= _ARCS_BELOW_0_AND_1):
        raise InvalidOID(f"{text[:40]!r} is no OID: numbers with dots between them, such as {PROVIDER_ID_OID}")
    encoded = _encoded_numbers(text)
    if max(encoded) > _LARGEST_NUMBER:
        raise InvalidOID(f"{text} has a number in it that is larger than API servers read in an OID")
    if sum(max(1, -(-number.bit_length() // 7)) for number in encoded) > _MAXIMUM_OID_BYTES:
        raise InvalidOID(f"{text[:40]}... is longer than {_MAXIMUM_OID_BYTES} bytes in DER")
    if any(f"{text}.".startswith(f"{arc}.") for arc in _RESERVED_ARCS):
        raise InvalidOID(f"{text} is the OID of another extension, or could be")
    return text


def _encoded_numbers(oid: str) -> list[int]:
    """The encoded numbers (X.690 section 8.19.4): the first two arcs combine into one; each takes groups of 7 bits."""
    first, second, *others = map(int, oid.split("."))
    return [first * _ARCS_BELOW_0_AND_1 + second, *others]


def read_oids(text: str) -> tuple[str, ...]:
    """Parse OIDs separated by commas. The order has no meaning: a request holds its provider ID under one of them.

    Raises:
        InvalidOID: an OID is invalid or repeated, or there are more than :data:`MAXIMUM_OIDS`.
    """
    oids = tuple(map(check_oid, text.split(",")))
    if len(oids) > MAXIMUM_OIDS:
        raise InvalidOID(f"more than {MAXIMUM_OIDS} OIDs")
    if len(set(oids)) < len(oids):
        raise InvalidOID("an OID is repeated")
    return oids


def encode(provider_id: str) -> bytes:
    """The extension's value for ``provider_id``.

    Raises:
            InvalidProviderID: the text is not a provider ID.
    """
    content = check_provider_id(provider_id).encode("ascii")
    return bytes((_UTF8_STRING, *_length(len(content)))) + content


def _length(octets: int) -> bytes:
    """The length octets of DER: definite, and as few as possible (X.690 section 10.1)."""
    if octets < _LONG_LENGTH:
        return bytes((octets,))
    length = octets.to_bytes((octets.bit_length() + 7) // 8, "big")
    return bytes((_LONG_LENGTH | len(length),)) + length


# Called six times per request.
@functools.lru_cache(maxsize=256)
def decode(value: bytes) -> str:
    """Parse the extension's value: exactly one UTF8String in DER, with nothing after it.

    Raises:
        InvalidProviderID: another type, another encoding, trailing bytes, or no provider ID.
    """
    if len(value) > _MAXIMUM_DER_BYTES:
        raise InvalidProviderID(f"longer than {MAXIMUM_PROVIDER_ID_CHARACTERS} characters")
    if len(value) < 2 or value[0] != _UTF8_STRING:
        raise InvalidProviderID("the extension's value is not a UTF8String")
    start, end = _content(value)
    if end < len(value):
        raise InvalidProviderID("the extension's value has bytes after the UTF8String")
    try:
        text = value[start:end].decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidProviderID("the extension's value is not a UTF8String") from error
    # The length was accepted in any form so far: only DER encodes back to the same bytes.
    if encode(text) != value:
        raise InvalidProviderID("the extension's value is not DER")
    return text


def _content(value: bytes) -> tuple[int, int]:
    """Start of the element's content, and its end according to the length octets."""
    length, start = value[1], 2
    if length >= _LONG_LENGTH:
        start += length - _LONG_LENGTH
        length = int.from_bytes(value[2:start], "big")
    return start, start + length
