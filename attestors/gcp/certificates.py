"""Google's certificates for identity tokens, and the verification of token signatures with them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from attestors.clouds.json_objects import InvalidObject, parse_object
from attestors.gcp.claims import Claims
from attestors.gcp.token import IdentityToken

CERTIFICATES_URL: Final = "https://www.googleapis.com/oauth2/v1/certs"
"""Certificates in PEM by key ID (google-auth, ``google.oauth2.id_token``)."""
MAXIMUM_CERTIFICATES_BYTES: Final = 64 * 1024

_MAXIMUM_KEYS: Final = 32
_KEY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_MINIMUM_BITS: Final = 2048
_MAXIMUM_BITS: Final = 8192
_EXPONENT: Final = 65537


class CertificatesUnreadable(ValueError):
    """The answer is not a set of certificates; the message names the error."""


class InvalidSignature(Exception):
    """The token was not signed with this key of Google."""


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """Claims that Google signed. Only :meth:`GoogleKey.verify` creates one."""

    claims: Claims


@dataclass(frozen=True, slots=True)
class GoogleKey:
    """One of Google's keys for identity tokens."""

    key_id: str
    not_before: datetime
    not_after: datetime
    public_key: RSAPublicKey = field(repr=False)

    def verify(self, token: IdentityToken) -> VerifiedToken:
        """Verify the signature with google-auth's verifier.

        Raises:
            InvalidSignature: the token names another key, or this key did not sign it.
        """
        from google.auth.crypt import RSAVerifier

        if (
            token.key_id != self.key_id
            or RSAVerifier(self.public_key).verify(token.signed, token.signature) is not True
        ):
            raise InvalidSignature("the identity token's signature is not Google's")
        return VerifiedToken(token.claims)


def parse_certificates(body: bytes) -> Mapping[str, GoogleKey]:
    """Parse Google's keys, by key ID. Keys other than RSA are skipped: no accepted token needs them.

    Raises:
        CertificatesUnreadable: not a JSON object of certificates in PEM, too many, or none usable.
    """
    if len(body) > MAXIMUM_CERTIFICATES_BYTES:
        raise CertificatesUnreadable(f"larger than {MAXIMUM_CERTIFICATES_BYTES} bytes")
    try:
        document = parse_object(body)
    except InvalidObject as error:
        raise CertificatesUnreadable(str(error)) from error
    if not 0 < len(document) <= _MAXIMUM_KEYS:
        raise CertificatesUnreadable(f"not an object of 1 to {_MAXIMUM_KEYS} certificates")
    read = [_key(key_id, pem) for key_id, pem in document.items()]
    keys = {key.key_id: key for key in read if isinstance(key, GoogleKey)}
    if not keys:
        raise CertificatesUnreadable(f"no RSA key of {_MINIMUM_BITS} bits or more")
    return MappingProxyType(keys)


@dataclass(frozen=True, slots=True)
class _OtherKey:
    """A certificate whose key is not usable for RS256, or has an unaccepted size."""


def _key(key_id: str, pem: object) -> GoogleKey | _OtherKey:
    if not _KEY_ID.fullmatch(key_id) or not isinstance(pem, str):
        raise CertificatesUnreadable("not certificates in PEM by key ID")
    try:
        (certificate,) = x509.load_pem_x509_certificates(pem.encode("utf-8"))
        public_key = certificate.public_key()
        not_before, not_after = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except UnsupportedAlgorithm:
        return _OtherKey()
    except (ValueError, x509.InvalidVersion) as error:
        raise CertificatesUnreadable("one of its entries is not exactly one certificate in PEM") from error
    if not isinstance(public_key, RSAPublicKey):
        return _OtherKey()
    # Bounded, so that verification is neither slow nor weak.
    if not _MINIMUM_BITS <= public_key.key_size <= _MAXIMUM_BITS or public_key.public_numbers().e != _EXPONENT:
        return _OtherKey()
    return GoogleKey(key_id, not_before, not_after, public_key)
