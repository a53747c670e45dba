"""Role sessions and the token issuer of the fake AWS."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

ISSUER_HOST: Final = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0.tokens.sts.global.api.aws"
SigningKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class Session:
    """Temporary credentials of a role, as STS knows them."""

    account: str
    role_name: str
    session_name: str
    expires_at: datetime
    partition: str = "aws"
    instance_arn: str = ""
    """Of the instance that got them from its metadata service; empty for those of AssumeRole."""
    delivery: str = "2.0"
    """Version of the metadata service that handed them out."""
    role_id: str = ""
    access_key_id: str = field(default_factory=lambda: "ASIA" + secrets.token_hex(8).upper())
    secret_key: str = field(default_factory=lambda: secrets.token_urlsafe(30), repr=False)
    session_token: str = field(default_factory=lambda: base64.b64encode(secrets.token_bytes(700)).decode(), repr=False)

    @classmethod
    def of_instance(
        cls,
        instance_id: str,
        *,
        account: str,
        region: str,
        role_name: str,
        expires_at: datetime,
        partition: str = "aws",
    ) -> Self:
        """The session that an instance's metadata service provides."""
        arn = f"arn:{partition}:ec2:{region}:{account}:instance/{instance_id}"
        return cls(account, role_name, instance_id, expires_at, partition, arn)

    def but(self, **changes: Any) -> Session:
        """A copy with changes."""
        return replace(self, **changes)

    @property
    def user_id(self) -> str:
        """Role ID and session name."""
        digest = hashlib.sha256(f"{self.account}/{self.role_name}".encode()).digest()
        role_id = self.role_id or "AROA" + base64.b32encode(digest).decode()[:17]
        return f"{role_id}:{self.session_name}"

    @property
    def arn(self) -> str:
        """The session's ARN in STS's format."""
        return f"arn:{self.partition}:sts::{self.account}:assumed-role/{self.role_name}/{self.session_name}"


class Issuer:
    """An account's issuer of web identity tokens."""

    def __init__(self, host: str = ISSUER_HOST, *, generation: int = 0) -> None:
        self.host = host
        self.keys: dict[str, SigningKey] = {"RSA_0": _rsa_key(generation), "EC384_0": _elliptic_key(generation)}

    @property
    def url(self) -> str:
        """``iss``."""
        return f"https://{self.host}"

    def discovery(self) -> Mapping[str, Any]:
        """OpenID configuration, as AWS publishes it."""
        return {
            "claims_supported": ["sub", "iss", "aud", "exp", "iat", "jti", "https://sts.amazonaws.com/"],
            "id_token_signing_alg_values_supported": ["RS256", "ES384"],
            "issuer": self.url,
            "jwks_uri": f"{self.url}/.well-known/jwks.json",
            "subject_types_supported": ["public"],
        }

    def key_set(self) -> Mapping[str, Any]:
        """JSON Web Key Set, as AWS publishes it: the RSA key has no ``alg``."""
        return {"keys": [_web_key(key_id, key) for key_id, key in self.keys.items()]}

    def claims(self, session: Session, audience: str, now: datetime, lifetime: timedelta) -> dict[str, Any]:
        """The claims of a session's token."""
        issued_at = int(now.timestamp())
        about: dict[str, Any] = {
            "aws_account": session.account,
            "source_region": "eu-west-1",
            "org_id": "o-abc1234567",
            "ou_path": ["o-abc1234567/r-ab12/ou-ab12-11111111/"],
            "principal_id": f"arn:{session.partition}:iam::{session.account}:role/{session.role_name}",
            "principal_tags": {"team": "nodes"},
        }
        if session.instance_arn:
            about |= {
                "ec2_source_instance_arn": session.instance_arn,
                "ec2_instance_source_vpc": "vpc-0123456789abcdef0",
                "ec2_instance_source_private_ipv4": "10.0.1.17",
                "ec2_role_delivery": session.delivery,
            }
        return {
            "aud": audience,
            "sub": f"arn:{session.partition}:iam::{session.account}:role/{session.role_name}",
            "iss": self.url,
            "iat": issued_at,
            "exp": issued_at + int(lifetime.total_seconds()),
            "jti": str(uuid.uuid4()),
            "https://sts.amazonaws.com/": about,
        }

    def token(self, claims: Mapping[str, Any], key_id: str = "RSA_0", **header: Any) -> str:
        """A token with these claims, signed with the key of that name; ``header`` changes or adds to its header."""
        key = self.keys[key_id]
        algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES384"
        fields = {"kid": key_id, "typ": "JWT", "alg": algorithm} | header
        kept = {name: value for name, value in fields.items() if value is not ...}
        signed = f"{encoded(json.dumps(kept).encode())}.{encoded(json.dumps(claims).encode())}"
        return f"{signed}.{encoded(sign(key, signed.encode()))}"


@functools.cache
def _rsa_key(generation: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@functools.cache
def _elliptic_key(generation: int) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def sign(key: SigningKey, content: bytes) -> bytes:
    """A signature in the format of RFC 7518."""
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(content, padding.PKCS1v15(), hashes.SHA256())
    r, s = decode_dss_signature(key.sign(content, ec.ECDSA(hashes.SHA384())))
    return r.to_bytes(48, "big") + s.to_bytes(48, "big")


def encoded(content: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _web_key(key_id: str, key: SigningKey) -> Mapping[str, str]:
    if isinstance(key, rsa.RSAPrivateKey):
        numbers = key.public_key().public_numbers()
        modulus = numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8, "big")
        return {"e": "AQAB", "kid": key_id, "kty": "RSA", "n": encoded(modulus), "use": "sig"}
    point = key.public_key().public_numbers()
    x, y = (encoded(coordinate.to_bytes(48, "big")) for coordinate in (point.x, point.y))
    return {"alg": "ES384", "crv": "P-384", "kid": key_id, "kty": "EC", "use": "sig", "x": x, "y": y}
