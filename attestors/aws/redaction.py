"""Removes bearer credentials from the AWS attestor's evidence."""

from __future__ import annotations

from typing import Final

from attestors.aws import wire
from attestors.aws.caller_identity import PresignedRequest
from attestors.clouds.recorded_calls import without_signature
from attestors.contract import digest_of
from attestors.wire.evidence import MalformedEvidence

_KEPT: Final = frozenset({wire.IDENTITY_DOCUMENT_FIELD, wire.CALLER_IDENTITY_BINDING_FIELD})
"""Neither field is a credential: everything on the instance can read the document, and the binding is public."""


def redacted(name: str, value: str) -> str:
    """A field of the evidence for the audit log; an unknown field is replaced as a whole."""
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
