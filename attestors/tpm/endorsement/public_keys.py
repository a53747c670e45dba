"""SubjectPublicKeyInfo to a key, with the accepted sizes.

The library's own loader rejects keys in genuine endorsement key certificates: those under id-RSAES-OAEP with the label
"TCPA" (TCG Credential Profiles for TPM 1.2, section 3.2.7), which STMicroelectronics kept for TPM 2.0. This module
takes RSA or elliptic curve from the algorithm, ignores the parameters of an RSA identifier, and passes the key's
numbers to the library.
"""

from __future__ import annotations

import hashlib
from typing import Final, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.tpm.endorsement import der
from attestors.tpm.endorsement.der import Element, Malformed

PublicKey: TypeAlias = rsa.RSAPublicKey | ec.EllipticCurvePublicKey

MINIMUM_RSA_BITS: Final = 2048
MAXIMUM_ENDORSEMENT_RSA_BITS: Final = 4096
"""The size of template H-7 (TCG EK Credential Profile 2.6, Annex B), the largest."""
MAXIMUM_AUTHORITY_RSA_BITS: Final = 8192
"""Twice the largest that any manufacturer uses; a verification takes well under a millisecond."""
_MINIMUM_RSA_EXPONENT: Final = 3
_MAXIMUM_RSA_EXPONENT: Final = 2**32 - 1
"""TPMS_RSA_PARMS has 32 bits for it, and a larger exponent would slow verification."""

_EC_PUBLIC_KEY: Final = "1.2.840.10045.2.1"
_RSA_ENCRYPTION: Final = "1.2.840.113549.1.1.1"
_RSAES_OAEP: Final = "1.2.840.113549.1.1.7"
_RSA_ALGORITHMS: Final = (_RSA_ENCRYPTION, _RSAES_OAEP)
_CURVES: Final[dict[str, type[ec.EllipticCurve]]] = {
    "1.2.840.10045.3.1.7": ec.SECP256R1,
    "1.3.132.0.34": ec.SECP384R1,
    "1.3.132.0.35": ec.SECP521R1,
}


def read_public_key(information: Element) -> PublicKey:
    """The key in a SubjectPublicKeyInfo (RFC 5280 4.1.2.7).

    Raises:
        Malformed: another structure, another kind of key, or one outside the bounds.
    """
    parts = der.children(information, der.SEQUENCE)
    if len(parts) != 2:
        raise Malformed("has a malformed public key")
    algorithm = der.children(parts[0], der.SEQUENCE)
    if not 1 <= len(algorithm) <= 2:
        raise Malformed("has a malformed public key algorithm")
    identifier = der.object_identifier(algorithm[0])
    octets = der.octets_of_bit_string(parts[1])
    try:
        if identifier in _RSA_ALGORITHMS:
            return _read_rsa(octets)
        if identifier == _EC_PUBLIC_KEY and len(algorithm) == 2:
            return _read_elliptic(algorithm[1], octets)
    except (ValueError, UnsupportedAlgorithm) as error:
        if isinstance(error, Malformed):
            raise
        raise Malformed("has an invalid public key") from None
    raise Malformed(f"has a public key of an unsupported algorithm ({identifier})")


def same_key(first: PublicKey, second: PublicKey) -> bool:
    """Whether the keys have the same numbers, however they were encoded."""
    return first.public_numbers() == second.public_numbers()


def fingerprint(key: PublicKey) -> str:
    """Hexadecimal SHA-256 of the key's SubjectPublicKeyInfo in standard DER.

    For a key under id-RSAES-OAEP that encoding differs from the certificate's. A certificate's key and the same key
    from the TPM (TPMT_PUBLIC) therefore have the same fingerprint.
    """
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def _read_rsa(octets: bytes) -> rsa.RSAPublicKey:
    numbers = [der.integer(number) for number in der.children(der.only(octets, der.SEQUENCE), der.SEQUENCE)]
    if len(numbers) != 2:
        raise Malformed("has a malformed RSA key")
    modulus, exponent = numbers
    if modulus < 0 or not MINIMUM_RSA_BITS <= modulus.bit_length() <= MAXIMUM_AUTHORITY_RSA_BITS:
        raise Malformed(f"has an RSA key outside {MINIMUM_RSA_BITS} to {MAXIMUM_AUTHORITY_RSA_BITS} bits")
    if not _MINIMUM_RSA_EXPONENT <= exponent <= _MAXIMUM_RSA_EXPONENT:
        raise Malformed("has an RSA key with an exponent out of bounds")
    return rsa.RSAPublicNumbers(exponent, modulus).public_key()


def _read_elliptic(parameters: Element, octets: bytes) -> ec.EllipticCurvePublicKey:
    curve = _CURVES.get(der.object_identifier(parameters))
    if curve is None:
        raise Malformed("has a key on an unsupported curve; P-256, P-384 and P-521 are supported")
    return ec.EllipticCurvePublicKey.from_encoded_point(curve(), octets)
