"""The evidence format: a UTF-8 JSON object with ``version`` first, ``caCertHash`` second, then the attestor's fields.

The parser rejects unknown, repeated and missing keys, so that no two readers can interpret the same evidence
differently. An attestor's fields are strings; binary values are base64 (RFC 4648 section 4, canonical).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from attestors.wire.binding import CACertHash, InvalidCACertHash

VERSION_KEY: Final = "version"
CA_CERT_HASH_KEY: Final = "caCertHash"
MAXIMUM_FIELDS: Final = 32

ENVELOPE_VERSIONS: Final = ("v1",)
"""Evidence versions whose header (``version`` and ``caCertHash``) this module reads."""

VERSION_FORM: Final = re.compile(r"v[1-9][0-9]{0,3}")


class MalformedEvidence(ValueError):
    """The evidence is malformed; the message names the key and the error."""


class UnsupportedVersion(ValueError):
    """The evidence version is unknown to this module; nothing after ``version`` was read."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Parsed evidence: the two header keys, and the attestor's fields."""

    version: str
    cluster: CACertHash
    fields: Mapping[str, str] = field(repr=False)

    def expect_fields(self, *names: str) -> None:
        """Require exactly these fields.

        Raises:
            MalformedEvidence: a field is missing or unknown.
        """
        missing = set(names) - set(self.fields)
        if missing:
            raise MalformedEvidence(f"field {min(missing)} is missing")
        unknown = set(self.fields) - set(names)
        if unknown:
            raise MalformedEvidence(f"{len(unknown)} unknown fields beside {', '.join(sorted(names)) or 'none'}")

    def text(self, name: str, *, maximum_characters: int) -> str:
        """A text field.

        Raises:
            MalformedEvidence: missing, empty, or longer than ``maximum_characters``.
        """
        value = self.fields.get(name)
        if value is None:
            raise MalformedEvidence(f"field {name} is missing")
        if not 0 < len(value) <= maximum_characters:
            raise MalformedEvidence(f"field {name} must have 1 to {maximum_characters} characters")
        return value

    def binary(self, name: str, *, maximum_bytes: int) -> bytes:
        """A base64 field, decoded.

        Raises:
            MalformedEvidence: missing, empty, too long, or not canonical base64.
        """
        text = self.text(name, maximum_characters=(maximum_bytes + 2) // 3 * 4)
        try:
            content = base64.b64decode(text.encode("ascii"), validate=True)
        except (binascii.Error, UnicodeEncodeError) as error:
            raise MalformedEvidence(f"field {name} is not base64") from error
        if base64.b64encode(content).decode("ascii") != text or len(content) > maximum_bytes:
            raise MalformedEvidence(f"field {name} is not canonical base64 of at most {maximum_bytes} bytes")
        return content


def encode(evidence: Evidence) -> bytes:
    """Serialise the evidence; ``decode`` of the result returns an equal ``evidence``.

    Raises:
        MalformedEvidence: a field has the name of a header key.
    """
    document = {VERSION_KEY: evidence.version, CA_CERT_HASH_KEY: evidence.cluster.text, **evidence.fields}
    if len(document) != 2 + len(evidence.fields):
        raise MalformedEvidence("a field may not be called version or caCertHash")
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def decode(data: bytes) -> Evidence:
    """Parse evidence.

    Raises:
        MalformedEvidence: not UTF-8 JSON of one flat object of strings, or keys out of order, repeated or too many.
        UnsupportedVersion: the version is not in :data:`ENVELOPE_VERSIONS`.
    """
    try:
        pairs = _DECODER.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # also bad UTF-8, and integers too long to convert
        raise MalformedEvidence("the evidence is not UTF-8 JSON") from error
    if not isinstance(pairs, _Pairs):
        raise MalformedEvidence("the evidence is not a JSON object")
    return _from_pairs(pairs)


def _from_pairs(pairs: _Pairs) -> Evidence:
    version = _version(pairs)
    if len(pairs) > MAXIMUM_FIELDS:
        raise MalformedEvidence(f"the evidence has more than {MAXIMUM_FIELDS} keys")
    values: dict[str, str] = {}
    for key, value in pairs:
        if key in values:
            raise MalformedEvidence("the evidence repeats a key")
        if not isinstance(value, str):
            raise MalformedEvidence("every value in the evidence must be a string")
        if not _is_unicode(key) or not _is_unicode(value):
            raise MalformedEvidence("the evidence holds a lone surrogate")
        values[key] = value
    if list(values)[:2] != [VERSION_KEY, CA_CERT_HASH_KEY]:
        raise MalformedEvidence("the evidence must begin with version and caCertHash")
    del values[VERSION_KEY]
    try:
        cluster = CACertHash(values.pop(CA_CERT_HASH_KEY))
    except InvalidCACertHash as error:
        raise MalformedEvidence(f"caCertHash: {error}") from error
    return Evidence(version, cluster, MappingProxyType(values))


def _version(pairs: _Pairs) -> str:
    """The version, checked before everything else: a later version may have another format after it."""
    if not pairs or pairs[0][0] != VERSION_KEY:
        raise MalformedEvidence("the evidence must begin with version and caCertHash")
    version = pairs[0][1]
    if not isinstance(version, str) or not VERSION_FORM.fullmatch(version):
        raise MalformedEvidence("version must be v and a number, such as v1")
    if version not in ENVELOPE_VERSIONS:
        raise UnsupportedVersion(f"evidence version {version} is not known here")
    return version


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as ordered pairs, which keeps order and repeated keys."""


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_Pairs)


def _is_unicode(text: str) -> bool:
    # "\ud800" is valid JSON but not valid Unicode text: it cannot be encoded as UTF-8.
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
