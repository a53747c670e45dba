"""The text form of an endorsement key: in annotations, inventories, deny lists and records."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from attestors.tpm.attestation_key import EndorsementKey

FINGERPRINT: Final = re.compile(r"sha256:[0-9a-f]{64}")
_IDENTITY_PREFIX: Final = "tpm:"
_PEM: Final = re.compile(r"-----BEGIN PUBLIC KEY-----\s(?P<body>[A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----\s*")


class NoFingerprint(ValueError):
    """The text does not name an endorsement key."""


def fingerprint(endorsement_key: EndorsementKey) -> str:
    """``sha256:`` and the SHA-256 of the key's SubjectPublicKeyInfo (DER), in hexadecimal.

    The result of ``openssl pkey -pubin -outform DER | sha256sum`` for the key that ``tpm2_readpublic -f pem`` writes.
    """
    return _fingerprint_of(endorsement_key.key)


def identity(endorsement_key: EndorsementKey) -> str:
    """The identity of the chip in records and reservations."""
    return f"{_IDENTITY_PREFIX}{fingerprint(endorsement_key)}"


def fingerprint_of_identity(text: str) -> str:
    """The fingerprint in an :func:`identity`.

    Raises:
        NoFingerprint: the text is anything else.
    """
    found = text.removeprefix(_IDENTITY_PREFIX)
    if found == text or FINGERPRINT.fullmatch(found) is None:
        raise NoFingerprint("not the identity of a TPM")
    return found


def read_fingerprint(text: str) -> str:
    """The fingerprint in a person's entry: a fingerprint, or the public key in PEM.

    Raises:
        NoFingerprint: the text is neither.
    """
    if FINGERPRINT.fullmatch(text):
        return text
    found = _PEM.fullmatch(text)
    if found is None:
        raise NoFingerprint("neither a digest nor a key")
    try:
        key = load_der_public_key(base64.b64decode("".join(found["body"].split()), validate=True))
    except (UnsupportedAlgorithm, ValueError) as error:
        raise NoFingerprint("not a key") from error
    return _fingerprint_of(key)


def _fingerprint_of(key: PublicKeyTypes) -> str:
    info = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(info).hexdigest()}"
