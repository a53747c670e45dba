"""Names and bounds of the fields of the AWS attestor's evidence: what its two plugins must agree on.

Two proofs, always together. The instance identity document says which instance, for ever and to anybody who has it.
The caller's proof says that whoever asks holds that instance's credentials now, and for which request. There is
exactly one of two: a presigned request that shows the caller's identity, or a token that STS made.
"""

from __future__ import annotations

import re
from typing import Final

from attestors.wire.binding import DIGEST_BYTES
from attestors.wire.evidence import MalformedEvidence

EVIDENCE_VERSION: Final = "v1"

IDENTITY_DOCUMENT_FIELD: Final = "identityDocument"
"""The instance identity document inside its RSA-2048 PKCS#7, as the metadata service's ``rsa2048`` gives it, in BER."""

CALLER_IDENTITY_REQUEST_FIELD: Final = "callerIdentityRequest"
"""URL of a presigned STS GetCallerIdentity; one of its signed headers is :data:`BINDING_HEADER`."""
CALLER_IDENTITY_BINDING_FIELD: Final = "callerIdentityBinding"
"""The value of :data:`BINDING_HEADER` for which the request was signed."""
CALLER_IDENTITY_FIELDS: Final = (
    IDENTITY_DOCUMENT_FIELD,
    CALLER_IDENTITY_REQUEST_FIELD,
    CALLER_IDENTITY_BINDING_FIELD,
)

WEB_IDENTITY_TOKEN_FIELD: Final = "webIdentityToken"  # noqa: S105  the name of a field
"""JSON Web Token of STS GetWebIdentityToken, for :func:`audience` alone."""
WEB_IDENTITY_FIELDS: Final = (IDENTITY_DOCUMENT_FIELD, WEB_IDENTITY_TOKEN_FIELD)

MAXIMUM_IDENTITY_DOCUMENT_BYTES: Final = 8 * 1024
"""Genuine ones have 1.1 KiB; product codes make them longer."""
MAXIMUM_CALLER_IDENTITY_REQUEST_CHARACTERS: Final = 8 * 1024
"""Most of it is the session token, of which AWS says no more than that 4 KiB are typical."""
MAXIMUM_WEB_IDENTITY_TOKEN_CHARACTERS: Final = 16 * 1024
SESSION_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,6144}")
"""Of a role's temporary credentials. AWS says neither how long it may be nor of what characters (STS API reference,
``Credentials``): what the node sends, the controller must take."""

BINDING_HEADER: Final = "x-capi-node-attestation-binding"
"""Signed header of the presigned request: the binding in lower-case hexadecimal digits."""
PRESIGNED_SECONDS: Final = 300
"""``X-Amz-Expires`` of the presigned request. STS itself takes a request for 15 minutes, whatever is written here."""

STS_ACTION: Final = "GetCallerIdentity"
STS_VERSION: Final = "2011-06-15"
"""API version of STS, the only one."""

_AUDIENCE_PREFIX: Final = "https://attestation.cluster.x-k8s.io/binding/"
_HEXADECIMAL: Final = re.compile(rf"[0-9a-f]{{{2 * DIGEST_BYTES}}}")


def binding_text(binding: bytes) -> str:
    """The value of :data:`BINDING_HEADER` for a binding."""
    return binding.hex()


def parse_binding_text(text: str) -> bytes:
    """What the header's value commits to.

    Raises:
        MalformedEvidence: not 64 lower-case hexadecimal digits.
    """
    if not _HEXADECIMAL.fullmatch(text):
        raise MalformedEvidence(
            f"field {CALLER_IDENTITY_BINDING_FIELD} must be {2 * DIGEST_BYTES} lower-case hexadecimal digits"
        )
    return bytes.fromhex(text)


def audience(binding: bytes) -> str:
    """The only audience of a web identity token for a request with this binding.

    The part in front lets an IAM policy confine a role to such tokens (condition key ``sts:IdentityTokenAudience``).
    """
    return _AUDIENCE_PREFIX + binding.hex()


def audience_binding(audience: str) -> bytes:
    """What a web identity token's audience commits to.

    Raises:
        MalformedEvidence: the audience is not of the form that :func:`audience` gives.
    """
    digits = audience.removeprefix(_AUDIENCE_PREFIX)
    if audience == digits or not _HEXADECIMAL.fullmatch(digits):
        raise MalformedEvidence("the web identity token is for another audience than node attestation")
    return bytes.fromhex(digits)
