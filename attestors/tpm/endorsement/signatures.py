"""Signature algorithms of certificates, and their verification.

Accepted: RSA PKCS#1 v1.5, RSA-PSS and ECDSA, each with SHA-256, SHA-384 or SHA-512. SHA-1 is rejected wherever a
signature counts. A trust anchor's own signature does not count (see `chain`), so roots with SHA-1 are usable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from attestors.tpm.endorsement import der
from attestors.tpm.endorsement.der import Element, Malformed
from attestors.tpm.endorsement.public_keys import PublicKey

_RSASSA_PSS: Final = "1.2.840.113549.1.1.10"
_MASK_GENERATION_1: Final = "1.2.840.113549.1.1.8"
_HASHES: Final[dict[str, type[hashes.HashAlgorithm]]] = {
    "2.16.840.1.101.3.4.2.1": hashes.SHA256,
    "2.16.840.1.101.3.4.2.2": hashes.SHA384,
    "2.16.840.1.101.3.4.2.3": hashes.SHA512,
}
_RSA_PKCS1: Final[dict[str, type[hashes.HashAlgorithm]]] = {
    "1.2.840.113549.1.1.11": hashes.SHA256,
    "1.2.840.113549.1.1.12": hashes.SHA384,
    "1.2.840.113549.1.1.13": hashes.SHA512,
}
_ECDSA: Final[dict[str, type[hashes.HashAlgorithm]]] = {
    "1.2.840.10045.4.3.2": hashes.SHA256,
    "1.2.840.10045.4.3.3": hashes.SHA384,
    "1.2.840.10045.4.3.4": hashes.SHA512,
}
_ACCEPTED: Final = frozenset({_RSASSA_PSS, *_RSA_PKCS1, *_ECDSA})
_WEAK: Final = {
    "1.2.840.113549.1.1.4": "MD5 with RSA",
    "1.2.840.113549.1.1.5": "SHA-1 with RSA",
    "1.2.840.10045.4.1": "SHA-1 with ECDSA",
    "1.3.14.3.2.29": "SHA-1 with RSA",
}
_MAXIMUM_SALT_OCTETS: Final = 64
_PSS_TRAILER: Final = 1
_HASH, _MASK_GENERATION, _SALT, _TRAILER = 0xA0, 0xA1, 0xA2, 0xA3


class UnacceptableSignature(Exception):
    """The signature proves nothing. The message continues "the signature ..."."""


class OtherKeySignature(UnacceptableSignature):
    """The signature was not made with this key; another key may have made it."""


@dataclass(frozen=True, slots=True)
class SignatureAlgorithm:
    """An AlgorithmIdentifier, interpreted only for verification."""

    identifier: str
    parameters: bytes
    """As encoded; empty if absent or NULL, since encoders differ."""


def read_algorithm(element: Element) -> SignatureAlgorithm:
    """Raises `Malformed` if the element is not an AlgorithmIdentifier (RFC 5280 4.1.1.2)."""
    parts = der.children(element, der.SEQUENCE)
    if not 1 <= len(parts) <= 2:
        raise Malformed("has a malformed signature algorithm")
    parameters = parts[1].encoded if len(parts) == 2 else b""
    return SignatureAlgorithm(der.object_identifier(parts[0]), b"" if parameters == b"\x05\x00" else parameters)


def verify_signature(key: PublicKey, algorithm: SignatureAlgorithm, signed: bytes, signature: bytes) -> None:
    """Verify ``signature`` over ``signed``, the bytes as received.

    Raises:
        OtherKeySignature: it does not verify, or the algorithm does not fit the key.
        UnacceptableSignature: the algorithm is not accepted for any key.
    """
    try:
        if isinstance(key, rsa.RSAPublicKey):
            scheme, hash_algorithm = _rsa_scheme(algorithm)
            key.verify(signature, signed, scheme, hash_algorithm)
        else:
            key.verify(signature, signed, ec.ECDSA(_known(_ECDSA, algorithm)()))
    except Malformed:
        raise UnacceptableSignature("has malformed RSA-PSS parameters") from None
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        raise OtherKeySignature("does not verify with the issuer's key") from None


def _rsa_scheme(algorithm: SignatureAlgorithm) -> tuple[padding.AsymmetricPadding, hashes.HashAlgorithm]:
    if algorithm.identifier != _RSASSA_PSS:
        return padding.PKCS1v15(), _known(_RSA_PKCS1, algorithm)()
    hash_algorithm, mask_hash, salt_octets = _read_pss(algorithm.parameters)
    return padding.PSS(padding.MGF1(mask_hash), salt_octets), hash_algorithm


def _known(table: dict[str, type[hashes.HashAlgorithm]], algorithm: SignatureAlgorithm) -> type[hashes.HashAlgorithm]:
    if algorithm.identifier in _WEAK:
        raise UnacceptableSignature(f"is made with {_WEAK[algorithm.identifier]}, which can be forged")
    found = table.get(algorithm.identifier)
    if found is None:
        kind = OtherKeySignature if algorithm.identifier in _ACCEPTED else UnacceptableSignature
        raise kind(f"uses an algorithm that is not accepted for the issuer's key ({algorithm.identifier})")
    return found


def _read_pss(parameters: bytes) -> tuple[hashes.HashAlgorithm, hashes.HashAlgorithm, int]:
    """RSASSA-PSS-params (RFC 4055 3.1). The defaults are SHA-1, so hash and mask generation must be present."""
    fields = {field.tag: field.content for field in der.children(der.only(parameters, der.SEQUENCE), der.SEQUENCE)}
    if not {_HASH, _MASK_GENERATION} <= fields.keys():
        raise UnacceptableSignature("is made with SHA-1 with RSA-PSS, which can be forged")
    mask = der.children(der.only(fields[_MASK_GENERATION], der.SEQUENCE), der.SEQUENCE)
    if len(mask) != 2 or der.object_identifier(mask[0]) != _MASK_GENERATION_1:
        raise UnacceptableSignature("is made with RSA-PSS and an unknown mask generation function")
    salt_octets = der.integer(der.only(fields[_SALT], der.INTEGER)) if _SALT in fields else 20
    trailer = der.integer(der.only(fields[_TRAILER], der.INTEGER)) if _TRAILER in fields else _PSS_TRAILER
    if not 0 <= salt_octets <= _MAXIMUM_SALT_OCTETS or trailer != _PSS_TRAILER:
        raise UnacceptableSignature("has RSA-PSS parameters out of bounds")
    return _read_hash(der.only(fields[_HASH], der.SEQUENCE)), _read_hash(mask[1]), salt_octets


def _read_hash(element: Element) -> hashes.HashAlgorithm:
    found = _HASHES.get(read_algorithm(element).identifier)
    if found is None:
        raise UnacceptableSignature("is made with RSA-PSS and a hash that is not SHA-256, SHA-384 or SHA-512")
    return found()
