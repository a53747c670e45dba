"""``ControllerKeys``: the public keys with which the controller signs statements, for the node to pin."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.wire.binding import CACertHash
from attestors.wire.statement.errors import MalformedStatement
from attestors.wire.statement.strict_json import expect_keys, list_of

KEY_BYTES: Final = 32
MAXIMUM_KEYS: Final = 2
"""The current generation of the controller key, and the previous one."""


@dataclass(frozen=True, slots=True)
class ControllerPublicKeys:
    """Ed25519 public keys (RFC 8032), that of the current controller key first.

    Raises:
        MalformedStatement: none, too many, repeated, or of another length.
    """

    keys: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.keys) <= MAXIMUM_KEYS or len(set(self.keys)) != len(self.keys):
            raise MalformedStatement(f"controller keys: 1 to {MAXIMUM_KEYS} different ones are needed")
        if any(len(key) != KEY_BYTES for key in self.keys):
            raise MalformedStatement(f"a controller key has {KEY_BYTES} bytes")

    def by_hash(self) -> dict[str, Ed25519PublicKey]:
        """The keys by the hash that signatures name."""
        return {controller_key_hash(key).text: Ed25519PublicKey.from_public_bytes(key) for key in self.keys}

    def document(self) -> dict[str, Any]:
        """The payload's JSON form."""
        return {"keys": [base64.b64encode(key).decode("ascii") for key in self.keys]}

    @classmethod
    def parse(cls, payload: dict[str, Any]) -> ControllerPublicKeys:
        """Parse the JSON form.

        Raises:
            MalformedStatement: anything else.
        """
        expect_keys(payload, "payload", "keys")
        return cls(tuple(map(_key, list_of(payload["keys"], "keys", maximum=MAXIMUM_KEYS))))


def controller_key_hash(key: bytes) -> CACertHash:
    """The name of a controller key in signatures: SHA-256 of its SubjectPublicKeyInfo, as for a CA's key."""
    public = Ed25519PublicKey.from_public_bytes(key)
    return CACertHash.of(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _key(text: object) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True) if isinstance(text, str) else b""
    except (binascii.Error, UnicodeEncodeError):
        raise MalformedStatement("a controller key is not base64") from None
