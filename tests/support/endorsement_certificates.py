"""Encodes X.509 certificates by hand, including those that no library writes: manufacturers' quirks, and attacks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeAlias

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from signer.authority.der import (
    bit_string,
    context_constructed,
    encode,
    integer,
    object_identifier,
    octet_string,
    sequence,
    time,
)

PrivateKey: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

NOT_BEFORE: Final = datetime(2020, 1, 1, tzinfo=UTC)
NOT_AFTER: Final = datetime(2040, 1, 1, tzinfo=UTC)
FOR_EVER: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)

EK_CERTIFICATE: Final = "2.23.133.8.1"
AK_CERTIFICATE: Final = "2.23.133.8.3"
NULL: Final = b"\x05\x00"
CRITICAL: Final = b"\x01\x01\xff"
WRITTEN_OUT_FALSE: Final = b"\x01\x01\x00"
DIGITAL_SIGNATURE: Final = b"\x03\x02\x07\x80"
KEY_ENCIPHERMENT: Final = b"\x03\x02\x05\x20"
KEY_AGREEMENT: Final = b"\x03\x02\x03\x08"
KEY_CERT_SIGN: Final = b"\x03\x02\x01\x06"

_PRINTABLE_STRING, _UTF8_STRING = 0x13, 0x0C


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A signature algorithm and its identifier."""

    identifier: str
    hash_algorithm: hashes.HashAlgorithm
    parameters: bytes = b""
    pss: bool = False

    @property
    def encoded(self) -> bytes:
        return sequence(object_identifier(self.identifier), self.parameters)

    def sign(self, key: PrivateKey, data: bytes) -> bytes:
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return key.sign(data, ec.ECDSA(self.hash_algorithm))
        if self.pss:
            salt = self.hash_algorithm.digest_size
            return key.sign(data, padding.PSS(padding.MGF1(self.hash_algorithm), salt), self.hash_algorithm)
        return key.sign(data, padding.PKCS1v15(), self.hash_algorithm)


def _pss_parameters(hash_identifier: str, salt: int) -> bytes:
    hash_algorithm = sequence(object_identifier(hash_identifier), NULL)
    mask = sequence(object_identifier("1.2.840.113549.1.1.8"), hash_algorithm)
    return sequence(
        context_constructed(0, hash_algorithm), context_constructed(1, mask), context_constructed(2, integer(salt))
    )


SHA1_RSA: Final = Algorithm("1.2.840.113549.1.1.5", hashes.SHA1(), NULL)  # noqa: S303 - an attack
SHA256_RSA: Final = Algorithm("1.2.840.113549.1.1.11", hashes.SHA256(), NULL)
SHA384_RSA: Final = Algorithm("1.2.840.113549.1.1.12", hashes.SHA384(), NULL)
SHA512_RSA: Final = Algorithm("1.2.840.113549.1.1.13", hashes.SHA512(), NULL)
SHA256_PSS: Final = Algorithm(
    "1.2.840.113549.1.1.10", hashes.SHA256(), _pss_parameters("2.16.840.1.101.3.4.2.1", 32), pss=True
)
SHA1_ECDSA: Final = Algorithm("1.2.840.10045.4.1", hashes.SHA1())  # noqa: S303 - an attack
SHA256_ECDSA: Final = Algorithm("1.2.840.10045.4.3.2", hashes.SHA256())
SHA384_ECDSA: Final = Algorithm("1.2.840.10045.4.3.3", hashes.SHA384())
SHA512_ECDSA: Final = Algorithm("1.2.840.10045.4.3.4", hashes.SHA512())


def name(*attributes: tuple[str, str], tag: int = _PRINTABLE_STRING) -> bytes:
    """A Name with one attribute in each SET."""
    return sequence(*(encode(0x31, _attribute(kind, value, tag)) for kind, value in attributes))


def name_in_one_set(*attributes: tuple[str, str], tag: int = _PRINTABLE_STRING) -> bytes:
    """A Name with all attributes in one SET, in the given order instead of DER's."""
    return sequence(encode(0x31, b"".join(_attribute(kind, value, tag) for kind, value in attributes)))


def common_name(text: str, tag: int = _PRINTABLE_STRING) -> bytes:
    return name(("2.5.4.3", text), tag=tag)


def _attribute(kind: str, value: str, tag: int) -> bytes:
    return sequence(object_identifier(kind), encode(tag, value.encode("utf-8")))


EMPTY_NAME: Final = sequence()


def extension(identifier: str, value: bytes, critical: bytes = b"") -> bytes:
    """An extension; ``critical`` is the encoded flag: `CRITICAL`, `WRITTEN_OUT_FALSE`, or nothing."""
    return sequence(object_identifier(identifier), critical, octet_string(value))


def basic_constraints(content: bytes = b"", critical: bytes = CRITICAL) -> bytes:
    return extension("2.5.29.19", sequence(content), critical)


def authority_constraints(path_length: int | None = None) -> bytes:
    return basic_constraints(CRITICAL + (b"" if path_length is None else integer(path_length)))


def key_usage(bits: bytes, critical: bytes = CRITICAL) -> bytes:
    """Key usage; ``bits`` is the whole BIT STRING, which may be malformed."""
    return extension("2.5.29.15", bits, critical)


def purposes(*identifiers: str, critical: bytes = b"") -> bytes:
    return extension("2.5.29.37", sequence(*(object_identifier(identifier) for identifier in identifiers)), critical)


def policies(critical: bytes = b"") -> bytes:
    return extension("2.5.29.32", sequence(sequence(object_identifier("2.5.29.32.0"))), critical)


def subject_key_identifier(identifier: bytes) -> bytes:
    return extension("2.5.29.14", octet_string(identifier))


def authority_key_identifier(identifier: bytes) -> bytes:
    return extension("2.5.29.35", sequence(encode(0x80, identifier)))


def issuer_location(url: str) -> bytes:
    location = sequence(object_identifier("1.3.6.1.5.5.7.48.2"), encode(0x86, url.encode("ascii")))
    return extension("1.3.6.1.5.5.7.1.1", sequence(location))


def tpm_specification(critical: bytes = b"") -> bytes:
    """Subject directory attributes with TPM 2.0, level 0, revision 138."""
    specification = sequence(encode(_UTF8_STRING, b"2.0"), integer(0), integer(138))
    attribute = sequence(object_identifier("2.23.133.2.16"), encode(0x31, specification))
    return extension("2.5.29.9", sequence(attribute), critical)


def tpm_name(directory_name: bytes, critical: bytes = CRITICAL) -> bytes:
    """Subject alternative name."""
    return extension("2.5.29.17", sequence(encode(0xA4, directory_name)), critical)


def tpm_attributes(manufacturer: str, model: str, version: str) -> tuple[tuple[str, str], ...]:
    return ("2.23.133.2.1", manufacturer), ("2.23.133.2.2", model), ("2.23.133.2.3", version)


def public_key_information(key: PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def oaep_public_key_information(key: rsa.RSAPrivateKey) -> bytes:
    """The key with id-RSAES-OAEP and the label "TCPA", as in certificates of STMicroelectronics and Infineon."""
    label = sequence(object_identifier("1.2.840.113549.1.1.9"), octet_string(b"TCPA"))
    algorithm = sequence(object_identifier("1.2.840.113549.1.1.7"), sequence(context_constructed(2, label)))
    return sequence(algorithm, bit_string(key.public_key().public_bytes(Encoding.DER, PublicFormat.PKCS1)))


@dataclass(frozen=True, slots=True)
class Draft:
    """A certificate before it is signed; the defaults are those of an ordinary endorsement key certificate."""

    issuer: bytes
    key_information: bytes
    subject: bytes = EMPTY_NAME
    serial: bytes = field(default_factory=lambda: integer(4711))
    version: int = 3
    not_before: datetime | bytes = NOT_BEFORE
    not_after: datetime | bytes = NOT_AFTER
    extensions: Iterable[bytes] | None = ()

    def signed(self, key: PrivateKey, algorithm: Algorithm, *, outer: Algorithm | None = None) -> bytes:
        """Sign it; ``outer`` is a different algorithm for the unsigned part."""
        content = sequence(
            b"" if self.version == 1 else context_constructed(0, integer(self.version - 1)),
            self.serial,
            algorithm.encoded,
            self.issuer,
            sequence(_time(self.not_before), _time(self.not_after)),
            self.subject,
            self.key_information,
            b"" if self.extensions is None else context_constructed(3, sequence(*self.extensions)),
        )
        signature = bit_string(algorithm.sign(key, content))
        return sequence(content, (outer or algorithm).encoded, signature)


def _time(moment: datetime | bytes) -> bytes:
    return moment if isinstance(moment, bytes) else time(moment)
