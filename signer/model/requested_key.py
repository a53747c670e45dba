"""Reads the public key of a PKCS#10 request, in its original encoding."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_LOADED_KEYS: Final = (bytes.fromhex("06092a864886f70d010101"), bytes.fromhex("06072a8648ce3d0201"))
"""rsaEncryption and id-ecPublicKey: the library loads no other keys. A Diffie-Hellman key of 8 KiB (X9.42, with a
subgroup) would take it seconds, during which no other thread runs."""

# The library was observed to raise these for hostile bytes, such as a KeyError for an unknown TLS feature.
LIBRARY_ERRORS: Final = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    x509.UnsupportedGeneralNameType,
    x509.InvalidVersion,
    UnsupportedAlgorithm,
)


class KeyKind(enum.Enum):
    """The kinds of public keys that the rules tell apart."""

    RSA = "RSA"
    ECDSA = "ECDSA"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class PublicKeyFacts:
    """The facts that the key rules check. ``bits`` is the modulus or curve size; ``exponent`` is 0 except for RSA."""

    kind: KeyKind
    bits: int = 0
    exponent: int = 0
    curve: str = ""


def read_public_key(request: x509.CertificateSigningRequest) -> tuple[PublicKeyFacts, object, bytes]:
    """The key's facts, the library's key object, and the request's SubjectPublicKeyInfo in its original bytes.

    A key that the library cannot load, or encodes in other bytes than the request, has kind ``OTHER`` and no more.
    """
    original = _original_key(request.tbs_certrequest_bytes)
    if not _is_loaded(original):
        return PublicKeyFacts(KeyKind.OTHER), None, b""
    try:
        key = request.public_key()
        subject_public_key_info = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except LIBRARY_ERRORS:
        # Explicit curve parameters, unknown curves, points off the curve: the rules refuse the key.
        return PublicKeyFacts(KeyKind.OTHER), None, b""
    if subject_public_key_info != original:
        # Compressed points, omitted parameters: the binding and the certificate would hold other bytes than the CSR.
        return PublicKeyFacts(KeyKind.OTHER), None, b""
    if isinstance(key, rsa.RSAPublicKey):
        facts = PublicKeyFacts(KeyKind.RSA, key.key_size, key.public_numbers().e)
    elif isinstance(key, ec.EllipticCurvePublicKey):
        facts = PublicKeyFacts(KeyKind.ECDSA, key.curve.key_size, curve=key.curve.name)
    else:
        facts = PublicKeyFacts(KeyKind.OTHER)
    return facts, key, subject_public_key_info


def _original_key(to_be_signed: bytes) -> bytes:
    """The key's bytes in the request, after version and subject. The library has verified before that it is DER."""
    position, _ = _content(to_be_signed, 0)
    for _ in range(2):  # version, subject
        _, position = _content(to_be_signed, position)
    _, end = _content(to_be_signed, position)
    return to_be_signed[position:end]


def _is_loaded(subject_public_key_info: bytes) -> bool:
    algorithm, _ = _content(subject_public_key_info, 0)
    identifier, _ = _content(subject_public_key_info, algorithm)
    return subject_public_key_info.startswith(_LOADED_KEYS, identifier)


def _content(der: bytes, start: int) -> tuple[int, int]:
    """Start and end of the content of the DER element at ``start``."""
    length, content = der[start + 1], start + 2
    if length & 0x80:
        octets = length & 0x7F
        length = int.from_bytes(der[content : content + octets], "big")
        content += octets
    return content, content + length
