"""The public key in a PKCS#10 request, as it stands there."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_LOADED_KEYS: Final = (bytes.fromhex("06092a864886f70d010101"), bytes.fromhex("06072a8648ce3d0201"))
"""rsaEncryption and id-ecPublicKey: what the library is asked to load. A Diffie-Hellman key of 8 KiB (X9.42, with a
subgroup) takes it seconds, and no other thread runs meanwhile."""

# What the library was seen to raise for hostile bytes; a KeyError for a TLS feature that it does not know.
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
    """The kinds of public key that a view can tell apart."""

    RSA = "RSA"
    ECDSA = "ECDSA"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class PublicKeyFacts:
    """What the key rules judge. ``bits`` is the modulus or curve size, ``exponent`` is zero unless RSA."""

    kind: KeyKind
    bits: int = 0
    exponent: int = 0
    curve: str = ""


def read_public_key(request: x509.CertificateSigningRequest) -> tuple[PublicKeyFacts, object, bytes]:
    """What is judged of the key, the library's object of it, and its SubjectPublicKeyInfo: the bytes that stand there.

    Of a key that the library cannot load, or that stands there in another encoding than its own, nothing but that.
    """
    standing = _standing_key(request.tbs_certrequest_bytes)
    if not _is_loaded(standing):
        return PublicKeyFacts(KeyKind.OTHER), None, b""
    try:
        key = request.public_key()
        subject_public_key_info = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except LIBRARY_ERRORS:
        # Explicit curve parameters, unknown curves, points off the curve: a key, but none that we sign.
        return PublicKeyFacts(KeyKind.OTHER), None, b""
    if subject_public_key_info != standing:
        # Compressed points, parameters left out: the binding and the certificate would hold other bytes than the CSR.
        return PublicKeyFacts(KeyKind.OTHER), None, b""
    if isinstance(key, rsa.RSAPublicKey):
        facts = PublicKeyFacts(KeyKind.RSA, key.key_size, key.public_numbers().e)
    elif isinstance(key, ec.EllipticCurvePublicKey):
        facts = PublicKeyFacts(KeyKind.ECDSA, key.curve.key_size, curve=key.curve.name)
    else:
        facts = PublicKeyFacts(KeyKind.OTHER)
    return facts, key, subject_public_key_info


def _standing_key(to_be_signed: bytes) -> bytes:
    """The key as it stands in the request, behind version and subject; the library has read it as DER before."""
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
    """Where the content of the DER element at ``start`` begins and ends."""
    length, content = der[start + 1], start + 2
    if length & 0x80:
        octets = length & 0x7F
        length = int.from_bytes(der[content : content + octets], "big")
        content += octets
    return content, content + length
