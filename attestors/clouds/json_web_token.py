"""JSON Web Tokens in compact form, and the public keys that sign them: strict parsing, few algorithms.

Of RFC 7515 (JWS) and RFC 7519 (JWT) this accepts what clouds write: three parts, a header of ``alg``, ``kid`` and
``typ``, and claims in one JSON object. A header that names, contains or references keys is rejected. ``kid`` selects
the key among the issuer's own, and the algorithm must fit the kind of key. A token cannot select ``none``, and a public
key is never used as a shared secret (RFC 8725 section 2.1).
"""

from __future__ import annotations

import base64
import binascii
import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from attestors.clouds.json_objects import InvalidObject, parse_object

PublicKey: TypeAlias = rsa.RSAPublicKey | ec.EllipticCurvePublicKey

MAXIMUM_TOKEN_CHARACTERS: Final = 16 * 1024
MAXIMUM_KEY_SET_BYTES: Final = 64 * 1024
MAXIMUM_KEYS: Final = 64

_HEADER_NAMES: Final = frozenset({"alg", "kid", "typ"})
_KEY_ID: Final = re.compile(r"[A-Za-z0-9._=-]{1,128}")
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]+")
_MINIMUM_RSA_BITS: Final = 2048
_MAXIMUM_RSA_BITS: Final = 4096
_RSA_EXPONENT: Final = 65537
_COORDINATE_BYTES: Final = 48


class InvalidToken(ValueError):
    """The token is malformed, or its signature is not the key's; the message quotes nothing of it."""


class InvalidKeySet(ValueError):
    """The issuer's key set is malformed: never the fault of the token's bearer."""


class Algorithm(enum.Enum):
    """``alg`` of RFC 7518 section 3.1: the algorithms that clouds use."""

    RS256 = "RS256"
    ES384 = "ES384"


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
    """A token's parts. Trust nothing in it before :meth:`verify`; ``claims`` may be used to reject it."""

    algorithm: Algorithm
    key_id: str
    claims: Mapping[str, Any] = field(repr=False)
    _signed: bytes = field(repr=False)
    _signature: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> UnverifiedToken:
        """Parse a token.

        Raises:
            InvalidToken: not three parts in base64url without padding, a header with more or less than ``alg``,
                ``kid`` and ``typ``, an algorithm outside :class:`Algorithm`, claims that are not a JSON object, or a
                repeated key.
        """
        if len(text) > MAXIMUM_TOKEN_CHARACTERS:
            raise InvalidToken(f"the token has more than {MAXIMUM_TOKEN_CHARACTERS} characters")
        parts = text.split(".", 3)
        if len(parts) != 3:
            raise InvalidToken("the token does not have three parts")
        header, claims = (_json_object(_decoded(part)) for part in parts[:2])
        if set(header) - {"typ"} != _HEADER_NAMES - {"typ"} or str(header.get("typ", "JWT")).upper() != "JWT":
            raise InvalidToken("the token's header must have alg and kid, may have typ JWT, and nothing else")
        try:
            algorithm = Algorithm(header["alg"])
        except ValueError as error:
            raise InvalidToken("the token is signed with another algorithm than RS256 or ES384") from error
        key_id = header["kid"]
        if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
            raise InvalidToken("the token's kid is malformed")
        signed = f"{parts[0]}.{parts[1]}".encode("ascii")
        return cls(algorithm, key_id, MappingProxyType(claims), signed, _decoded(parts[2]))

    def verify(self, key: PublicKey) -> None:
        """Verify that the key made the signature, with the key's algorithm.

        Raises:
            InvalidToken: it did not.
        """
        try:
            if self.algorithm is Algorithm.RS256 and isinstance(key, rsa.RSAPublicKey):
                key.verify(self._signature, self._signed, padding.PKCS1v15(), hashes.SHA256())
                return
            if self.algorithm is Algorithm.ES384 and isinstance(key, ec.EllipticCurvePublicKey):
                key.verify(_dss_signature(self._signature), self._signed, ec.ECDSA(hashes.SHA384()))
                return
        except InvalidSignature as error:
            raise InvalidToken("the token's signature is not of its issuer's key") from error
        raise InvalidToken("the token's algorithm is not that of its issuer's key")


def parse_key_set(content: bytes) -> Mapping[str, PublicKey]:
    """The signing keys of a JSON Web Key Set (RFC 7517 section 5), by ``kid``.

    Keys of other kinds are skipped, as section 5 requires; a key of a supported kind must be valid.

    Raises:
        InvalidKeySet: malformed, no keys or too many, a repeated ``kid``, or a weak key.
    """
    if len(content) > MAXIMUM_KEY_SET_BYTES:
        raise InvalidKeySet(f"the key set has more than {MAXIMUM_KEY_SET_BYTES} bytes")
    try:
        entries = parse_object(content).get("keys")
    except InvalidObject as error:
        raise InvalidKeySet("the key set is not a JSON object") from error
    if not isinstance(entries, list) or len(entries) > MAXIMUM_KEYS:
        raise InvalidKeySet(f"the key set has no list of at most {MAXIMUM_KEYS} keys")
    keys: dict[str, PublicKey] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            raise InvalidKeySet("the key set holds an entry that is not a key")
        if entry.get("use", "sig") != "sig" or (entry.get("kty"), entry.get("crv")) not in _KINDS:
            continue
        key_id = entry.get("kid")
        if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id) or key_id in keys:
            raise InvalidKeySet("the key set holds a key without a unique name")
        keys[key_id] = _public_key(entry)
    if not keys:
        # Every issuer has a key: otherwise nodes would be denied for a fault of the issuer's server.
        raise InvalidKeySet("the key set holds no key that signs")
    return MappingProxyType(keys)


_KINDS: Final = (("RSA", None), ("EC", "P-384"))
"""A tuple, not a set: the value that is looked up may be any JSON, and lists are not hashable."""


def _public_key(entry: Mapping[str, Any]) -> PublicKey:
    try:
        if entry["kty"] == "EC":
            x, y = (_decoded(entry[name]) for name in ("x", "y"))
            return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP384R1(), b"\x04" + x + y)
        modulus, exponent = (int.from_bytes(_decoded(entry[name]), "big") for name in ("n", "e"))
        if not _MINIMUM_RSA_BITS <= modulus.bit_length() <= _MAXIMUM_RSA_BITS or exponent != _RSA_EXPONENT:
            raise InvalidKeySet(
                f"the key set holds an RSA key of less than {_MINIMUM_RSA_BITS} bits, or of an odd kind"
            )
        return rsa.RSAPublicNumbers(exponent, modulus).public_key()
    except (KeyError, TypeError, InvalidToken) as error:
        raise InvalidKeySet("the key set holds a key that lacks a number") from error
    except InvalidKeySet:
        raise
    except ValueError as error:
        raise InvalidKeySet("the key set holds an invalid key") from error


def _dss_signature(signature: bytes) -> bytes:
    """Convert r and s of fixed length (RFC 7518 section 3.4) to the DER that cryptography reads."""
    if len(signature) != 2 * _COORDINATE_BYTES:
        raise InvalidToken("the token's signature does not have the length of its algorithm")
    return encode_dss_signature(
        int.from_bytes(signature[:_COORDINATE_BYTES], "big"), int.from_bytes(signature[_COORDINATE_BYTES:], "big")
    )


def _decoded(text: str) -> bytes:
    """Decode base64url without padding, in canonical form (RFC 7515 section 2)."""
    if not _BASE64URL.fullmatch(text):
        raise InvalidToken("the token holds a part that is not base64url without padding")
    try:
        content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as error:
        raise InvalidToken("the token holds a part that is not base64url without padding") from error
    if base64.urlsafe_b64encode(content).rstrip(b"=") != text.encode("ascii"):
        raise InvalidToken("the token holds a part that is not canonical base64url")
    return content


def _json_object(content: bytes) -> Mapping[str, Any]:
    try:
        return parse_object(content)
    except InvalidObject as error:
        raise InvalidToken("the token holds a part that is not a JSON object, or has a repeated key") from error
