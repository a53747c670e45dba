"""Identity tokens and their signing keys."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from .instances import FakeInstance

ISSUER: Final = "https://accounts.google.com"
TOKEN_LIFETIME: Final = timedelta(hours=1)
_NAME: Final = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "federated-signon.system.gserviceaccount.com")])


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key with which the issuer signs identity tokens."""

    key_id: str
    key: rsa.RSAPrivateKey = field(repr=False)
    certificate_pem: str = field(repr=False)

    @property
    def jwk(self) -> dict[str, str]:
        """The key for a JSON Web Key Set (RFC 7517, RFC 7518 6.3.1)."""
        numbers = self.key.public_key().public_numbers()
        return {
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": self.key_id,
            "n": base64url(numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8, "big")),
            "e": base64url(numbers.e.to_bytes((numbers.e.bit_length() + 7) // 8, "big")),
        }


@functools.cache
def signing_key(number: int) -> SigningKey:
    """The issuer's key of that number, cached for the process."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_NAME)
        .issuer_name(_NAME)
        .public_key(key.public_key())
        .serial_number(number + 1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=16))
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(Encoding.PEM)
    return SigningKey(hashlib.sha1(pem).hexdigest(), key, pem.decode())  # noqa: S324 - Google's kids have that form


def identity_claims(
    instance: FakeInstance, audience: str, issued: datetime, *, full: bool = True, licenses: bool = False
) -> dict[str, Any]:
    """The claims of an instance identity token; without ``full`` those of ``format=standard``."""
    claims: dict[str, Any] = {
        "aud": audience,
        "azp": instance.service_account_id,
        "email": instance.service_account,
        "email_verified": True,
        "exp": int((issued + TOKEN_LIFETIME).timestamp()),
        "iat": int(issued.timestamp()),
        "iss": ISSUER,
        "sub": instance.service_account_id,
    }
    if full:
        about: dict[str, Any] = {
            "instance_confidentiality": 0,
            "instance_creation_timestamp": int(instance.created.timestamp()),
            "instance_id": instance.instance_id,
            "instance_name": instance.name,
            "project_id": instance.project,
            "project_number": int(instance.project_number),
            "zone": instance.zone,
        }
        if licenses:
            about["license_id"] = ["1001000", "1001010"]
        claims["google"] = {"compute_engine": about}
    return claims


def encode_token(claims: Mapping[str, Any], key: SigningKey, header: Mapping[str, Any] | None = None) -> str:
    """A JSON Web Token with an RS256 signature (RFC 7515), even if ``header`` names another one.

    Without ``header`` it has the issuer's own: RS256, the key's ID and the type.
    """
    said = {"alg": "RS256", "kid": key.key_id, "typ": "JWT"} if header is None else header
    signed = f"{_segment(said)}.{_segment(claims)}"
    signature = key.key.sign(signed.encode("ascii"), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{base64url(signature)}"


def _segment(value: Mapping[str, Any]) -> str:
    return base64url(json.dumps(value, separators=(",", ":")).encode())


def base64url(content: bytes) -> str:
    """Base64url without padding (RFC 7515)."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")
