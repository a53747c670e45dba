"""Google's certificates for identity tokens, and the verification of a token's signature with one of them."""

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
    """What the certificates' service answered is no set of certificates; the message says what is wrong."""


class InvalidSignature(Exception):
    """The token was not signed with that key of Google's."""


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """What Google signed. Only :meth:`GoogleKey.verify` makes one."""

    claims: Claims


@dataclass(frozen=True, slots=True)
class GoogleKey:
    """One of the keys that Google signs identity tokens with."""

    key_id: str
    not_before: datetime
    not_after: datetime
    public_key: RSAPublicKey = field(repr=False)

    def verify(self, token: IdentityToken) -> VerifiedToken:
        """Verify the signature, with google-auth's verifier.

        Raises:
            InvalidSignature: the token says another key, or this one did not sign it.
        """
        from google.auth.crypt import RSAVerifier

        if (
            token.key_id != self.key_id
            or RSAVerifier(self.public_key).verify(token.signed, token.signature) is not True
        ):
            raise InvalidSignature("the identity token's signature is not Google's")
        return VerifiedToken(token.claims)


def parse_certificates(body: bytes) -> Mapping[str, GoogleKey]:
    """Google's keys by key ID. Those of another kind than RSA are left out: no token that is accepted needs them.

    Raises:
        CertificatesUnreadable: no JSON object of certificates in PEM, too many of them, or none that is of use.
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
    """A certificate of a key that RS256 is not made with, or too small or too large a one."""


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
    # Bounded, so that a verification is never slow, and never weak.
    if not _MINIMUM_BITS <= public_key.key_size <= _MAXIMUM_BITS or public_key.public_numbers().e != _EXPONENT:
        return _OtherKey()
    return GoogleKey(key_id, not_before, not_after, public_key)
