"""The state of a CertificateSigningRequest, as one closed type.

Sources: ``staging/src/k8s.io/api/certificates/v1/types.go`` for the conditions, ``docs/protocol.md`` for the reasons
and annotations. The object comes from the workload API server, so its texts are bounded and made printable.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from attestors.wire.names import CHALLENGE_ANNOTATION, NODE_STARTS_AGAIN, SUPPORTED_VERSIONS_ANNOTATION

CHALLENGE_ISSUED: Final = "ChallengeIssued"
UNSUPPORTED_VERSION: Final = "UnsupportedVersion"

_MAXIMUM_CHALLENGE_CHARACTERS: Final = 16 * 1024
_MAXIMUM_VERSIONS: Final = 32
_MAXIMUM_REASON_CHARACTERS: Final = 64
_MAXIMUM_MESSAGE_CHARACTERS: Final = 512


@dataclass(frozen=True, slots=True)
class Undecided:
    """There is no decision, or the request is approved and not signed yet."""

    approved: bool


@dataclass(frozen=True, slots=True)
class Issued:
    """The certificate is issued."""

    certificate: bytes


@dataclass(frozen=True, slots=True)
class Challenged:
    """The evidence is good so far; the node must prove that it is live."""

    challenge: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class VersionUnsupported:
    """The controller does not read this version of evidence, but these versions."""

    supported: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """Denied or failed, finally."""

    condition: str
    """``Denied`` or ``Failed``."""
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.condition} with reason {self.reason}: {self.message}"


@dataclass(frozen=True, slots=True)
class Outdated:
    """Denied because the evidence expired: while the request waited, or before it was sent."""

    reason: str
    message: str

    def __str__(self) -> str:
        return f"Denied with reason {self.reason}: {self.message}"


Decision: TypeAlias = Issued | Challenged | VersionUnsupported | Outdated | Refused
Answer: TypeAlias = Undecided | Decision


def read_answer(signing_request: Mapping[str, Any]) -> Answer:
    """The state of ``signing_request``. Malformed parts count as absent."""
    status = _mapping(signing_request.get("status"))
    conditions: dict[str, Mapping[str, Any]] = {}
    for condition in map(_mapping, _sequence(status.get("conditions"))):
        kind = condition.get("type")
        if isinstance(kind, str) and condition.get("status", "True") == "True":
            conditions.setdefault(kind, condition)
    for kind in ("Denied", "Failed"):
        if kind in conditions:
            annotations = _mapping(_mapping(signing_request.get("metadata")).get("annotations"))
            return _refusal(kind, conditions[kind], annotations)
    if "Approved" not in conditions:
        return Undecided(approved=False)
    certificate = _decoded(status.get("certificate"))
    return Issued(certificate) if certificate else Undecided(approved=True)


def _refusal(kind: str, condition: Mapping[str, Any], annotations: Mapping[str, Any]) -> Answer:
    reason = printable(condition.get("reason"), _MAXIMUM_REASON_CHARACTERS) or "unknown"
    message = printable(condition.get("message"), _MAXIMUM_MESSAGE_CHARACTERS) or "no message was given"
    refused = Refused(kind, reason, message)
    if kind != "Denied":
        return refused
    if reason == CHALLENGE_ISSUED:
        challenge = annotations.get(CHALLENGE_ANNOTATION)
        if isinstance(challenge, str) and 0 < len(challenge) <= _MAXIMUM_CHALLENGE_CHARACTERS:
            return Challenged(challenge)
    if reason == UNSUPPORTED_VERSION:
        versions = annotations.get(SUPPORTED_VERSIONS_ANNOTATION)
        if isinstance(versions, str) and versions:
            return VersionUnsupported(tuple(part.strip() for part in versions.split(",")[:_MAXIMUM_VERSIONS]))
    if reason in NODE_STARTS_AGAIN:
        return Outdated(reason, message)
    return refused


def printable(text: object, maximum_characters: int) -> str:
    """``text`` without line ends and terminal control characters; empty if it is not text."""
    if not isinstance(text, str):
        return ""
    cleaned = "".join(character if character.isprintable() else " " for character in text[:maximum_characters])
    return cleaned.strip()


def _decoded(text: object) -> bytes:
    if not isinstance(text, str):
        return b""
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return b""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
