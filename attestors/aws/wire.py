"""Names and bounds of the fields in the AWS attestor's evidence; both plugins use them.

Evidence has two parts. The instance identity document names the instance; it stays valid for ever, and any holder can
show it. The proof of the caller shows that the sender holds that instance's credentials now, and for which request. It
is exactly one of two: a presigned request for the caller's identity, or a token that STS issued.
"""

from __future__ import annotations

import re
from typing import Final

from attestors.wire.binding import DIGEST_BYTES
from attestors.wire.evidence import MalformedEvidence

EVIDENCE_VERSION: Final = "v1"

IDENTITY_DOCUMENT_FIELD: Final = "identityDocument"
"""The instance identity document in its RSA-2048 PKCS#7, as the metadata service's ``rsa2048`` returns it, in BER."""

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
"""JSON Web Token of STS GetWebIdentityToken, with :func:`audience` as its only audience."""
WEB_IDENTITY_FIELDS: Final = (IDENTITY_DOCUMENT_FIELD, WEB_IDENTITY_TOKEN_FIELD)

MAXIMUM_IDENTITY_DOCUMENT_BYTES: Final = 8 * 1024
"""Genuine ones have 1.1 KiB; product codes make them longer."""
MAXIMUM_CALLER_IDENTITY_REQUEST_CHARACTERS: Final = 8 * 1024
"""Most of it is the session token; AWS says only that 4 KiB are typical."""
MAXIMUM_WEB_IDENTITY_TOKEN_CHARACTERS: Final = 16 * 1024
SESSION_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,6144}")
"""Session token of a role's temporary credentials. AWS documents neither its length nor its characters (STS API
reference, ``Credentials``), so the controller must accept whatever the node sends within this bound."""

BINDING_HEADER: Final = "x-capi-node-attestation-binding"
"""Signed header of the presigned request: the binding in lower-case hexadecimal digits."""
PRESIGNED_SECONDS: Final = 300
"""``X-Amz-Expires`` of the presigned request. STS accepts a request for 15 minutes, whatever is written here."""

STS_ACTION: Final = "GetCallerIdentity"
STS_VERSION: Final = "2011-06-15"
"""The only API version of STS."""

_AUDIENCE_PREFIX: Final = "https://attestation.cluster.x-k8s.io/binding/"
_HEXADECIMAL: Final = re.compile(rf"[0-9a-f]{{{2 * DIGEST_BYTES}}}")


def binding_text(binding: bytes) -> str:
    """The value of :data:`BINDING_HEADER` for a binding."""
    return binding.hex()


def parse_binding_text(text: str) -> bytes:
    """The binding in the header's value.

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

    The prefix lets an IAM policy restrict a role to such tokens (condition key ``sts:IdentityTokenAudience``).
    """
    return _AUDIENCE_PREFIX + binding.hex()


def audience_binding(audience: str) -> bytes:
    """The binding in a web identity token's audience.

    Raises:
        MalformedEvidence: the audience does not have the form of :func:`audience`.
    """
    digits = audience.removeprefix(_AUDIENCE_PREFIX)
    if audience == digits or not _HEXADECIMAL.fullmatch(digits):
        raise MalformedEvidence("the web identity token is for another audience than node attestation")
    return bytes.fromhex(digits)
