"""The public keys by which an API server verifies service-account tokens: its JWKS (RFC 7517). Pure.

kube-apiserver serves it at ``/openid/v1/jwks`` since 1.20, from the files of ``--service-account-key-file`` by which it
verifies tokens (``cmd/kube-apiserver/app/server.go``, ``ServiceAccountPublicKeys``). So what it publishes is what it
accepts, and it reads both at its start. Whoever answers for the workload cluster is not trusted: sizes and counts are
bounded, and a key counts by its numbers, not by its ID alone.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

KEY_SET_PATH: Final = "/openid/v1/jwks"
MEDIA_TYPE: Final = "application/jwk-set+json"
"""The only one that kube-apiserver produces there: it answers 406 to others (``pkg/routes/openidmetadata.go``)."""
MAXIMUM_BYTES: Final = 64 * 1024
MAXIMUM_KEYS: Final = 32
"""An API server has one key, or two while it is replaced."""
MAXIMUM_IDENTIFIER_CHARACTERS: Final = 256
_MAXIMUM_NUMBER_CHARACTERS: Final = 4096
"""An RSA modulus of 16,384 bits has 2,731."""
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_CURVES: Final[Mapping[str, ec.EllipticCurve]] = {
    "P-256": ec.SECP256R1(),
    "P-384": ec.SECP384R1(),
    "P-521": ec.SECP521R1(),
}


class InvalidKeySet(ValueError):
    """It is no key set that an API server publishes. The message quotes nothing of it."""


def key_identifier(public_key_hash: str) -> str:
    """``kid`` of the key with that hash (``sha256:`` and the SHA-256 of its SubjectPublicKeyInfo, in hexadecimal).

    Kubernetes ``pkg/serviceaccount/jwt.go``, ``keyIDFromPublicKey``: the same digest in base64url.
    """
    digest = bytes.fromhex(public_key_hash.removeprefix("sha256:"))
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def publishes(document: Mapping[str, Any], public_key_hash: str) -> bool:
    """Whether the key set has that key under its ID.

    Raises:
        InvalidKeySet: it is malformed, too large, or has one ID twice.
    """
    return read_key_set(document).get(key_identifier(public_key_hash)) == public_key_hash


def read_key_set(document: Mapping[str, Any]) -> Mapping[str, str]:
    """The hash of each key, by its ID; empty for a key of a kind that signs no service-account token.

    Raises:
        InvalidKeySet: see :func:`publishes`.
    """
    keys = document.get("keys")
    if not isinstance(keys, list) or len(keys) > MAXIMUM_KEYS:
        raise InvalidKeySet(f"has no list of at most {MAXIMUM_KEYS} keys")
    found: dict[str, str] = {}
    for one in keys:
        if not isinstance(one, Mapping):
            raise InvalidKeySet("has a key that is no object")
        identifier = _text(one, "kid", MAXIMUM_IDENTIFIER_CHARACTERS)
        if identifier in found:
            raise InvalidKeySet("has two keys with the same ID")
        found[identifier] = _hash(one)
    return found


def _hash(key: Mapping[str, Any]) -> str:
    kind = _text(key, "kty", MAXIMUM_IDENTIFIER_CHARACTERS)
    try:
        if kind == "RSA":
            public: rsa.RSAPublicKey | ec.EllipticCurvePublicKey
            public = rsa.RSAPublicNumbers(_number(key, "e"), _number(key, "n")).public_key()
        elif kind == "EC":
            curve = _CURVES.get(_text(key, "crv", MAXIMUM_IDENTIFIER_CHARACTERS))
            if curve is None:
                return ""
            public = ec.EllipticCurvePublicNumbers(_number(key, "x"), _number(key, "y"), curve).public_key()
        else:
            return ""
    except InvalidKeySet:
        raise
    except ValueError as error:  # a point that is not on the curve, an even exponent
        raise InvalidKeySet("has a key with impossible numbers") from error
    digest = hashlib.sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
    return f"sha256:{digest}"


def _text(key: Mapping[str, Any], name: str, maximum: int) -> str:
    value = key.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= maximum:
        raise InvalidKeySet(f"has a key whose {name} is no text of at most {maximum} characters")
    return value


def _number(key: Mapping[str, Any], name: str) -> int:
    """An unsigned number, base64url without padding (RFC 7518 section 2)."""
    text = _text(key, name, _MAXIMUM_NUMBER_CHARACTERS)
    if _BASE64URL.fullmatch(text) is None or len(text) % 4 == 1:
        raise InvalidKeySet(f"has a key whose {name} is not base64url")
    return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")
