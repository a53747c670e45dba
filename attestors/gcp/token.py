"""Parses an instance identity token: a JSON Web Token in JWS Compact Serialization (RFC 7515 section 7.1, RFC 7519).

It is stricter than google-auth, which accepts any padding and repeated keys, takes the algorithm from the header, and
tries every certificate for a token without ``kid``. This module verifies nothing.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from attestors.clouds.json_objects import InvalidObject, parse_object
from attestors.gcp.claims import Claims, MalformedClaims, read_claims

ALGORITHM: Final = "RS256"
"""The only accepted one: RSASSA-PKCS1-v1_5 with SHA-256 (RFC 7518 section 3.3), which Google uses."""

_SEGMENT: Final = re.compile(r"[A-Za-z0-9_-]+")
_KEY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


class MalformedToken(ValueError):
    """The text is not an identity token; the message names the error and quotes nothing of it."""


class UnsuitableAlgorithm(ValueError):
    """The token is signed with another algorithm, or not at all."""


@dataclass(frozen=True, slots=True)
class IdentityToken:
    """A parsed token. Nothing in it is verified."""

    key_id: str
    """The ID of the Google key that it claims to be signed with."""
    claims: Claims
    signed: bytes = field(repr=False)
    """The exact bytes that the signature covers."""
    signature: bytes = field(repr=False)


def parse_token(text: str) -> IdentityToken:
    """Parse the token.

    Raises:
        MalformedToken: not three segments of canonical base64url, not JSON objects, a repeated key, no ``kid``, or a
            malformed claim.
        UnsuitableAlgorithm: ``alg`` is not RS256.
    """
    segments = text.split(".")
    if len(segments) != 3:
        raise MalformedToken("the identity token does not have three segments")
    header_text, payload_text, signature_text = segments
    header = _json_object("header", _decode("header", header_text))
    key_id = _read_header(header)
    payload = _json_object("payload", _decode("payload", payload_text))
    try:
        claims = read_claims(payload)
    except MalformedClaims as error:
        raise MalformedToken(f"the identity token's payload: {error}") from error
    signed = f"{header_text}.{payload_text}".encode("ascii")
    return IdentityToken(key_id, claims, signed, _decode("signature", signature_text))


def _read_header(header: Mapping[str, Any]) -> str:
    if header.get("alg") != ALGORITHM:
        raise UnsuitableAlgorithm(f"the identity token is not signed with {ALGORITHM}, as Google's are")
    # An unknown critical header must be rejected (RFC 7515 section 4.1.11). Keys in the header (jwk, x5c) are ignored.
    if "crit" in header:
        raise MalformedToken("the identity token's header has critical extensions")
    if header.get("typ", "JWT") != "JWT":
        raise MalformedToken("the identity token's header names another type than JWT")
    key_id = header.get("kid")
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
        raise MalformedToken("the identity token's header has no key ID (kid)")
    return key_id


def _decode(what: str, segment: str) -> bytes:
    if not _SEGMENT.fullmatch(segment):
        raise MalformedToken(f"the identity token's {what} is not base64url without padding")
    try:
        content = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except ValueError as error:
        raise MalformedToken(f"the identity token's {what} is not base64url without padding") from error
    # Unused bits would allow several encodings of one token.
    if base64.urlsafe_b64encode(content).rstrip(b"=") != segment.encode("ascii"):
        raise MalformedToken(f"the identity token's {what} is not canonical base64url")
    return content


def _json_object(what: str, content: bytes) -> Mapping[str, Any]:
    try:
        return parse_object(content)
    except InvalidObject as error:
        raise MalformedToken(f"the identity token's {what}: {error}") from error
