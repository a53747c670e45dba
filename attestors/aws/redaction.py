"""The AWS attestor's evidence without what lets its holder act."""

from __future__ import annotations

from typing import Final

from attestors.aws import wire
from attestors.aws.caller_identity import PresignedRequest
from attestors.clouds.recorded_calls import without_signature
from attestors.contract import digest_of
from attestors.wire.evidence import MalformedEvidence

_KEPT: Final = frozenset({wire.IDENTITY_DOCUMENT_FIELD, wire.CALLER_IDENTITY_BINDING_FIELD})
"""The document says which instance, to everybody on it; the binding is nobody's credential."""


def redacted(name: str, value: str) -> str:
    """A field of the evidence for the audit log; what is not known here is replaced as a whole."""
    if name in _KEPT:
        return value
    if name == wire.WEB_IDENTITY_TOKEN_FIELD:
        return without_signature(value, maximum_characters=wire.MAXIMUM_WEB_IDENTITY_TOKEN_CHARACTERS)
    if name == wire.CALLER_IDENTITY_REQUEST_FIELD and len(value) <= wire.MAXIMUM_CALLER_IDENTITY_REQUEST_CHARACTERS:
        try:
            return PresignedRequest.parse(value).without_credentials
        except MalformedEvidence:
            return digest_of(value)
    return digest_of(value)
