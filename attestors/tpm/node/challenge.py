"""Strict, bounded parsing of the controller's challenge on the node.

The challenge comes from an annotation, through an API server that may be malicious. Its form is one flat JSON object of
strings, with every key exactly once.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import Any, Final

from attestors.contract import EvidenceUnavailable
from attestors.tpm.selection import InvalidPCRSelection, PCRSelection
from attestors.tpm.wire import (
    CHALLENGE_VERSION,
    CREDENTIAL_BLOB_KEY,
    ENCRYPTED_SECRET_KEY,
    PCR_SELECTION_KEY,
    TOKEN_KEY,
    VERSION_KEY,
)

_KEYS: Final = frozenset({VERSION_KEY, TOKEN_KEY, CREDENTIAL_BLOB_KEY, ENCRYPTED_SECRET_KEY, PCR_SELECTION_KEY})

MAXIMUM_CHALLENGE_CHARACTERS: Final = 16 * 1024
"""The limit of the attestor contract (``ChallengeIssued``)."""
MAXIMUM_TOKEN_CHARACTERS: Final = 8 * 1024
MAXIMUM_SELECTION_CHARACTERS: Final = 256
MAXIMUM_CREDENTIAL_BLOB_BYTES: Final = 2 + (2 + 64) + (2 + 64)
"""TPM2B_ID_OBJECT (Part 2, 12.4.3): an HMAC and an encrypted TPM2B_DIGEST, each at most of SHA-512."""
MAXIMUM_ENCRYPTED_SECRET_BYTES: Final = 2 + 512
"""TPM2B_ENCRYPTED_SECRET (Part 2, 11.4.3): for RSA-4096; an ephemeral ECC point is smaller."""

_VERSION: Final = re.compile(r"v[1-9][0-9]{0,3}")
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Challenge:
    """A parsed challenge: the credential for the TPM, and the PCRs to quote."""

    token: str
    """Opaque; returned to the controller unchanged."""
    credential_blob: bytes
    """TPM2B_ID_OBJECT."""
    encrypted_secret: bytes
    """TPM2B_ENCRYPTED_SECRET."""
    pcr_selection: PCRSelection


def parse_challenge(text: str) -> Challenge:
    """Parse a challenge.

    Raises:
        EvidenceUnavailable: it is malformed, or of an unknown version.
    """
    values = _values(text)
    version = values.get(VERSION_KEY, "")
    if version != CHALLENGE_VERSION:
        if not _VERSION.fullmatch(version):
            raise _unreadable(f"{VERSION_KEY} must be v and a number, such as v1")
        raise EvidenceUnavailable(f"the controller's challenge has version {version}: upgrade this program")
    if set(values) != _KEYS:
        raise _unreadable(f"it must have exactly the keys {', '.join(sorted(_KEYS))}")
    token = values[TOKEN_KEY]
    if not 0 < len(token) <= MAXIMUM_TOKEN_CHARACTERS or not _TOKEN.fullmatch(token):
        raise _unreadable(f"{TOKEN_KEY} must have 1 to {MAXIMUM_TOKEN_CHARACTERS} printable ASCII characters")
    return Challenge(
        token,
        _sized_buffer(values, CREDENTIAL_BLOB_KEY, MAXIMUM_CREDENTIAL_BLOB_BYTES),
        _sized_buffer(values, ENCRYPTED_SECRET_KEY, MAXIMUM_ENCRYPTED_SECRET_BYTES),
        _selection(values[PCR_SELECTION_KEY]),
    )


def _values(text: str) -> dict[str, str]:
    if len(text) > MAXIMUM_CHALLENGE_CHARACTERS:
        raise _unreadable(f"it is longer than {MAXIMUM_CHALLENGE_CHARACTERS} characters")
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):  # also integers too long to convert
        raise _unreadable("it is not JSON") from None
    if not isinstance(pairs, _Pairs):
        raise _unreadable("it is not a JSON object")
    values: dict[str, str] = {}
    for key, value in pairs:
        if key in values:
            raise _unreadable("it repeats a key")
        if not isinstance(value, str):
            raise _unreadable("every value must be a string")
        values[key] = value
    return values


def _sized_buffer(values: dict[str, str], key: str, maximum_bytes: int) -> bytes:
    """A TPM2B structure in canonical base64: a two-byte size, then that many bytes, at least one."""
    text = values[key]
    if len(text) > (maximum_bytes + 2) // 3 * 4:
        raise _unreadable(f"{key} is larger than {maximum_bytes} bytes")
    try:
        content = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise _unreadable(f"{key} is not base64") from None
    if base64.b64encode(content).decode("ascii") != text or len(content) > maximum_bytes:
        raise _unreadable(f"{key} is not canonical base64 of at most {maximum_bytes} bytes")
    if len(content) < 3 or int.from_bytes(content[:2], "big") != len(content) - 2:
        raise _unreadable(f"{key} does not begin with the size of its content")
    return content


def _selection(text: str) -> PCRSelection:
    if len(text) > MAXIMUM_SELECTION_CHARACTERS:
        raise _unreadable(f"{PCR_SELECTION_KEY} is longer than {MAXIMUM_SELECTION_CHARACTERS} characters")
    try:
        return PCRSelection.parse(text)
    except InvalidPCRSelection as error:
        raise _unreadable(f"{PCR_SELECTION_KEY}: {error}") from error


def _unreadable(what: str) -> EvidenceUnavailable:
    return EvidenceUnavailable(f"the controller's challenge cannot be read: {what}; is the controller of this project?")


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as pairs, which keeps repeated keys."""
