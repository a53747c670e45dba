"""Public keys as kube-apiserver publishes them."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from signer.rotation.servers.key_set import key_identifier

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey
RSA_KEY: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
OTHER: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
EC_KEY: Final = ec.generate_private_key(ec.SECP256R1()).public_key()


def hash_of(key: PublicKey) -> str:
    """As the record of a rotation has it."""
    return f"sha256:{hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()}"


def jwk(key: PublicKey) -> dict[str, str]:
    """A key of the set (``pkg/serviceaccount/openidmetadata.go``)."""
    common = {"use": "sig", "kid": key_identifier(hash_of(key))}
    if isinstance(key, rsa.RSAPublicKey):
        numbers = key.public_numbers()
        return {**common, "kty": "RSA", "alg": "RS256", "n": _number(numbers.n), "e": _number(numbers.e)}
    point, size = key.public_numbers(), (key.curve.key_size + 7) // 8
    name = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}[key.curve.name]
    return {**common, "kty": "EC", "crv": name, "x": _number(point.x, size), "y": _number(point.y, size)}


def _number(value: int, size: int = 0) -> str:
    raw = value.to_bytes(size or (value.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")
