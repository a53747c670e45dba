"""Exact, bounded parsing of a TPM's keys and signatures: TPMT_PUBLIC and TPMT_SIGNATURE.

Every parser consumes all of its bytes or raises :class:`MalformedStructure`; its result encodes to the same bytes.
Structures are those of the TPM 2.0 Library Specification, Part 2 (sections of revision 1.59). Key types and schemes
that this package does not use are rejected by their identifiers.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from attestors.tpm import constants as tpm
from attestors.tpm.constants import Curve, HashAlgorithm, ObjectAttribute, SignatureAlgorithm
from attestors.tpm.reader import MalformedStructure, Reader, sized
from attestors.tpm.selection import read_hash

PublicKey: TypeAlias = rsa.RSAPublicKey | ec.EllipticCurvePublicKey
_Identified = TypeVar("_Identified", bound=enum.Enum)

CRYPTOGRAPHY_HASHES: Final[Mapping[HashAlgorithm, hashes.HashAlgorithm]] = MappingProxyType(
    {
        HashAlgorithm.SHA256: hashes.SHA256(),
        HashAlgorithm.SHA384: hashes.SHA384(),
        HashAlgorithm.SHA512: hashes.SHA512(),
    }
)
CRYPTOGRAPHY_CURVES: Final[Mapping[Curve, ec.EllipticCurve]] = MappingProxyType(
    {Curve.NIST_P256: ec.SECP256R1(), Curve.NIST_P384: ec.SECP384R1(), Curve.NIST_P521: ec.SECP521R1()}
)


@dataclass(frozen=True, slots=True)
class Scheme:
    """A signing scheme: TPMT_RSA_SCHEME and TPMT_ECC_SCHEME (Part 2, 11.2.4.2 and 11.2.5.6)."""

    algorithm: SignatureAlgorithm
    hash: HashAlgorithm

    def encode(self) -> bytes:
        """Both identifiers, encoded."""
        return _uint16(self.algorithm.value) + _uint16(self.hash.value)


@dataclass(frozen=True, slots=True)
class RSAKey:
    """TPMS_RSA_PARMS and TPM2B_PUBLIC_KEY_RSA (Part 2, 12.2.3.5 and 11.2.4.5)."""

    key_bits: int
    exponent: int
    """As encoded: zero means 65537."""
    modulus: bytes

    def public_key(self) -> rsa.RSAPublicKey:
        """The key for ``cryptography``.

        Raises:
            MalformedStructure: the modulus is even or not of ``key_bits``, or the exponent is not 65537 or zero.
        """
        modulus = int.from_bytes(self.modulus, "big")
        if len(self.modulus) * 8 != self.key_bits or modulus.bit_length() != self.key_bits:
            raise MalformedStructure(f"TPMT_PUBLIC: the RSA modulus does not have {self.key_bits} bits")
        if modulus % 2 == 0:
            raise MalformedStructure("TPMT_PUBLIC: the RSA modulus is even")
        if self.exponent not in (0, tpm.RSA_DEFAULT_EXPONENT):
            raise MalformedStructure(f"TPMT_PUBLIC: the RSA exponent is not {tpm.RSA_DEFAULT_EXPONENT}")
        return rsa.RSAPublicNumbers(tpm.RSA_DEFAULT_EXPONENT, modulus).public_key()


@dataclass(frozen=True, slots=True)
class ECCKey:
    """TPMS_ECC_PARMS and TPMS_ECC_POINT (Part 2, 12.2.3.6 and 11.2.5.2)."""

    curve: Curve
    x: bytes
    y: bytes
    """As encoded: older TPMs omit leading zeros."""

    def public_key(self) -> ec.EllipticCurvePublicKey:
        """The key for ``cryptography``.

        Raises:
            MalformedStructure: the point is not on the curve.
        """
        x, y = int.from_bytes(self.x, "big"), int.from_bytes(self.y, "big")
        try:
            return ec.EllipticCurvePublicNumbers(x, y, CRYPTOGRAPHY_CURVES[self.curve]).public_key()
        except ValueError:
            raise MalformedStructure("TPMT_PUBLIC: the point is not on the curve") from None


@dataclass(frozen=True, slots=True)
class PublicArea:
    """TPMT_PUBLIC (Part 2, 12.2.4) of an asymmetric key."""

    name_algorithm: HashAlgorithm
    attributes: ObjectAttribute
    authorization_policy: bytes
    """Empty, or a digest of ``name_algorithm``."""
    symmetric_key_bits: int | None
    """TPMT_SYM_DEF_OBJECT: key bits of AES in CFB mode, or None for TPM_ALG_NULL."""
    scheme: Scheme | None
    key: RSAKey | ECCKey

    @property
    def name(self) -> bytes:
        """The object's name (Part 1, 16): a digest over the whole public area."""
        encoded = self.encode()
        return _uint16(self.name_algorithm.value) + hashlib.new(self.name_algorithm.text, encoded).digest()

    def encode(self) -> bytes:
        """TPMT_PUBLIC."""
        kind = tpm.TPM_ALG_RSA if isinstance(self.key, RSAKey) else tpm.TPM_ALG_ECC
        head = _uint16(kind) + _uint16(self.name_algorithm.value) + self.attributes.to_bytes(4, "big")
        symmetric = _uint16(tpm.TPM_ALG_NULL)
        if self.symmetric_key_bits is not None:
            symmetric = _uint16(tpm.TPM_ALG_AES) + _uint16(self.symmetric_key_bits) + _uint16(tpm.TPM_ALG_CFB)
        scheme = _uint16(tpm.TPM_ALG_NULL) if self.scheme is None else self.scheme.encode()
        if isinstance(self.key, RSAKey):
            key = _uint16(self.key.key_bits) + self.key.exponent.to_bytes(4, "big") + sized(self.key.modulus)
        else:
            key = _uint16(self.key.curve.value) + _uint16(tpm.TPM_ALG_NULL) + sized(self.key.x) + sized(self.key.y)
        return head + sized(self.authorization_policy) + symmetric + scheme + key


def decode_public(data: bytes) -> PublicArea:
    """Parse TPMT_PUBLIC: an RSA key of 2048, 3072 or 4096 bits, or a key on NIST P-256, P-384 or P-521.

    ``key.public_key()`` checks the key itself (bits of the modulus, point on the curve).

    Raises:
        MalformedStructure: anything else.
    """
    reader = Reader(data, "TPMT_PUBLIC", maximum_bytes=tpm.MAXIMUM_PUBLIC_BYTES)
    kind = reader.integer(2, "type")
    if kind not in (tpm.TPM_ALG_RSA, tpm.TPM_ALG_ECC):
        raise reader.malformed(f"type {kind:#06x} is neither RSA nor ECC")
    name_algorithm = read_hash(reader, "nameAlg")
    attributes = _read_attributes(reader)
    policy = reader.sized("authPolicy", maximum_bytes=tpm.MAXIMUM_DIGEST_BYTES)
    if len(policy) not in (0, name_algorithm.digest_bytes):
        raise reader.malformed("authPolicy is neither empty nor of nameAlg's size")
    symmetric_key_bits = _read_symmetric(reader)
    scheme = _read_scheme(reader, kind)
    key = _read_rsa_key(reader) if kind == tpm.TPM_ALG_RSA else _read_ecc_key(reader)
    reader.finish()
    return PublicArea(name_algorithm, attributes, policy, symmetric_key_bits, scheme, key)


def _read_attributes(reader: Reader) -> ObjectAttribute:
    bits = reader.integer(4, "objectAttributes")
    try:
        return ObjectAttribute(bits)
    except ValueError:
        raise reader.malformed("objectAttributes has reserved bits set") from None


def _read_symmetric(reader: Reader) -> int | None:
    algorithm = reader.integer(2, "symmetric")
    if algorithm == tpm.TPM_ALG_NULL:
        return None
    key_bits = reader.integer(2, "symmetric.keyBits")
    mode = reader.integer(2, "symmetric.mode")
    if algorithm != tpm.TPM_ALG_AES or key_bits not in tpm.AES_KEY_BITS or mode != tpm.TPM_ALG_CFB:
        raise reader.malformed("symmetric is not AES of 128 or 256 bits in CFB mode")
    return key_bits


def _read_scheme(reader: Reader, kind: int) -> Scheme | None:
    identifier = reader.integer(2, "scheme")
    if identifier == tpm.TPM_ALG_NULL:
        return None
    algorithm = _identified(reader, SignatureAlgorithm, identifier, "scheme")
    if (algorithm is SignatureAlgorithm.ECDSA) != (kind == tpm.TPM_ALG_ECC):
        raise reader.malformed("scheme does not belong to this type of key")
    return Scheme(algorithm, read_hash(reader, "scheme"))


def _read_rsa_key(reader: Reader) -> RSAKey:
    key_bits = reader.integer(2, "keyBits")
    if key_bits not in tpm.RSA_KEY_BITS:
        raise reader.malformed(f"an RSA key has 2048, 3072 or 4096 bits, not {key_bits}")
    exponent = reader.integer(4, "exponent")
    return RSAKey(key_bits, exponent, reader.sized("unique", maximum_bytes=tpm.MAXIMUM_RSA_BYTES))


def _read_ecc_key(reader: Reader) -> ECCKey:
    curve = _identified(reader, Curve, reader.integer(2, "curveID"), "curveID")
    if reader.integer(2, "kdf") != tpm.TPM_ALG_NULL:
        raise reader.malformed("kdf is not TPM_ALG_NULL")
    x = reader.sized("unique.x", maximum_bytes=curve.coordinate_bytes)
    return ECCKey(curve, x, reader.sized("unique.y", maximum_bytes=curve.coordinate_bytes))


@dataclass(frozen=True, slots=True)
class RSASignature:
    """TPMS_SIGNATURE_RSA (Part 2, 11.3.1)."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class ECDSASignature:
    """TPMS_SIGNATURE_ECC (Part 2, 11.3.2)."""

    r: bytes
    s: bytes


@dataclass(frozen=True, slots=True)
class Signature:
    """TPMT_SIGNATURE (Part 2, 11.3.4)."""

    scheme: Scheme
    value: RSASignature | ECDSASignature

    def encode(self) -> bytes:
        """TPMT_SIGNATURE."""
        value = self.value
        octets = sized(value.octets) if isinstance(value, RSASignature) else sized(value.r) + sized(value.s)
        return self.scheme.encode() + octets


def decode_signature(data: bytes) -> Signature:
    """Parse TPMT_SIGNATURE: RSASSA, RSAPSS or ECDSA over SHA-256, SHA-384 or SHA-512.

    Raises:
        MalformedStructure: anything else, including SHA-1.
    """
    reader = Reader(data, "TPMT_SIGNATURE", maximum_bytes=tpm.MAXIMUM_SIGNATURE_BYTES)
    algorithm = _identified(reader, SignatureAlgorithm, reader.integer(2, "sigAlg"), "sigAlg")
    scheme = Scheme(algorithm, read_hash(reader, "hash"))
    value: RSASignature | ECDSASignature
    if algorithm is SignatureAlgorithm.ECDSA:
        r = reader.sized("signatureR", maximum_bytes=tpm.MAXIMUM_ECC_BYTES)
        value = ECDSASignature(r, reader.sized("signatureS", maximum_bytes=tpm.MAXIMUM_ECC_BYTES))
    else:
        value = RSASignature(reader.sized("sig", maximum_bytes=tpm.MAXIMUM_RSA_BYTES))
    reader.finish()
    return Signature(scheme, value)


def _identified(reader: Reader, kind: type[_Identified], identifier: int, field: str) -> _Identified:
    try:
        return kind(identifier)
    except ValueError:
        accepted = ", ".join(member.name for member in kind)
        raise reader.malformed(f"{field} {identifier:#06x} is none of {accepted}") from None


def _uint16(number: int) -> bytes:
    return number.to_bytes(2, "big")
