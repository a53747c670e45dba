"""Signs instance identity documents as EC2 does, and arbitrary malformed ones as an attacker might.

The signer is independent of the code under test; tests compare it with `openssl cms` and with a genuine document.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from attestors.aws.document.certificates import PinnedCertificate, RegionCertificates, pin

REGION: Final = "eu-west-1"
OTHER_REGION: Final = "eu-central-1"
ACCOUNT: Final = "123456789012"
INSTANCE: Final = "i-0123456789abcdef0"
PRIVATE_IP: Final = "10.0.1.17"

SIGNED_DATA: Final = bytes.fromhex("06092a864886f70d010702")
DATA: Final = bytes.fromhex("06092a864886f70d010701")
ENVELOPED_DATA: Final = bytes.fromhex("06092a864886f70d010703")
SHA256: Final = bytes.fromhex("300b0609608648016503040201")
SHA1: Final = bytes.fromhex("300906052b0e03021a0500")
MD5: Final = bytes.fromhex("300c06082a864886f70d02050500")
SHA256_WITH_RSA: Final = bytes.fromhex("300d06092a864886f70d01010b0500")
RSA_ENCRYPTION: Final = bytes.fromhex("300d06092a864886f70d0101010500")
SHA1_WITH_RSA: Final = bytes.fromhex("300d06092a864886f70d0101050500")
CONTENT_TYPE: Final = bytes.fromhex("06092a864886f70d010903")
MESSAGE_DIGEST: Final = bytes.fromhex("06092a864886f70d010904")
SIGNING_TIME: Final = bytes.fromhex("06092a864886f70d010905")
ALGORITHM_PROTECTION: Final = bytes.fromhex("06092a864886f70d010934")
VERSION_1: Final = b"\x02\x01\x01"


def tlv(tag: int, *content: bytes) -> bytes:
    """A value in DER."""
    body = b"".join(content)
    if len(body) < 0x80:
        return bytes([tag, len(body)]) + body
    length = len(body).to_bytes((len(body).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + body


def indefinite(tag: int, *content: bytes) -> bytes:
    """A constructed value of indefinite length."""
    return bytes([tag, 0x80]) + b"".join(content) + b"\x00\x00"


@dataclass(frozen=True)
class Authority:
    """A signer of documents: AWS in one Region, or an attacker."""

    key: rsa.RSAPrivateKey = field(repr=False)
    certificate: x509.Certificate

    @property
    def pinned(self) -> PinnedCertificate:
        """The certificate as the controller pins it."""
        return pin(self.certificate)

    @property
    def der(self) -> bytes:
        """The certificate."""
        return self.certificate.public_bytes(Encoding.DER)

    def signature(self, signed: bytes, algorithm: hashes.HashAlgorithm | None = None) -> bytes:
        """A signature of ``signed``, by default with SHA-256."""
        return self.key.sign(signed, padding.PKCS1v15(), algorithm or hashes.SHA256())

    @property
    def issuer_and_serial_number(self) -> bytes:
        """IssuerAndSerialNumber of the certificate."""
        serial = self.certificate.serial_number
        return tlv(0x30, self.certificate.issuer.public_bytes(), tlv(0x02, serial.to_bytes(9, "big", signed=True)))


@functools.cache
def authority(name: str, *, bits: int = 2048, serial_number: int | None = None) -> Authority:
    """An authority with AWS's distinguished name, which is the same in all Regions."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=bits)
    distinguished = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "US"),
            x509.NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, "Washington State"),
            x509.NameAttribute(NameOID.LOCALITY_NAME, "Seattle"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Amazon Web Services LLC"),
        ]
    )
    # Nine octets, like AWS's, and one for each name.
    serial = serial_number or int.from_bytes(b"\xbd" + hashlib.sha256(name.encode()).digest()[:7], "big")
    certificate = (
        x509.CertificateBuilder()
        .subject_name(distinguished)
        .issuer_name(distinguished)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2195, 1, 1, tzinfo=UTC))
        .sign(key, hashes.SHA256())
    )
    return Authority(key, certificate)


def certificates(*regions: str) -> RegionCertificates:
    """A controller's pinned certificates, one authority per Region (default: the tests' two Regions)."""
    named = regions or (REGION, OTHER_REGION)
    return RegionCertificates(MappingProxyType({region: (authority(region).pinned,) for region in named}))


def document(**changes: object) -> bytes:
    """A document with EC2's whitespace; members changed to ``...`` are omitted."""
    members: dict[str, object] = {
        "accountId": ACCOUNT,
        "architecture": "x86_64",
        "availabilityZone": f"{changes.get('region', REGION)}a",
        "billingProducts": None,
        "devpayProductCodes": None,
        "marketplaceProductCodes": None,
        "imageId": "ami-0123456789abcdef0",
        "instanceId": INSTANCE,
        "instanceType": "m7i.large",
        "kernelId": None,
        "pendingTime": "2026-01-02T02:04:05Z",
        "privateIp": PRIVATE_IP,
        "ramdiskId": None,
        "region": REGION,
        "version": "2017-09-30",
    } | changes
    kept = {name: value for name, value in members.items() if value is not ...}
    return json.dumps(kept, indent=2, separators=(",", " : ")).encode()


def attribute(kind: bytes, *values: bytes) -> bytes:
    """A signed attribute."""
    return tlv(0x30, kind, tlv(0x31, *values))


def content_type_attribute(kind: bytes = DATA) -> bytes:
    """The content-type attribute."""
    return attribute(CONTENT_TYPE, kind)


def message_digest_attribute(content: bytes) -> bytes:
    """The message-digest attribute."""
    return attribute(MESSAGE_DIGEST, tlv(0x04, hashlib.sha256(content).digest()))


def signing_time_attribute() -> bytes:
    """The signing-time attribute."""
    return attribute(SIGNING_TIME, tlv(0x17, b"260102020406Z"))


def algorithm_protection_attribute(digest: bytes = SHA256, signature: bytes = SHA256_WITH_RSA) -> bytes:
    """The CMS algorithm protection attribute."""
    return attribute(ALGORITHM_PROTECTION, tlv(0x30, digest, b"\xa1" + signature[1:]))


def attributes_for(content: bytes) -> list[bytes]:
    """AWS's four signed attributes, in DER order."""
    return [
        content_type_attribute(),
        signing_time_attribute(),
        algorithm_protection_attribute(),
        message_digest_attribute(content),
    ]


def signer_info(
    signer: Authority,
    content: bytes,
    *,
    attributes: Sequence[bytes] | None = (),
    digest_algorithm: bytes = SHA256,
    signature_algorithm: bytes = SHA256_WITH_RSA,
    hash_algorithm: hashes.HashAlgorithm | None = None,
    identifier: bytes | None = None,
    version: bytes = VERSION_1,
    signature: bytes | None = None,
    unsigned: bytes = b"",
) -> bytes:
    """A SignerInfo; ``attributes``: an empty sequence for AWS's four, None for none."""
    if attributes is not None and not attributes:
        attributes = attributes_for(content)
    signed = content if attributes is None else tlv(0x31, *attributes)
    if signature is None:
        signature = signer.signature(signed, hash_algorithm)
    return tlv(
        0x30,
        version,
        identifier or signer.issuer_and_serial_number,
        digest_algorithm,
        b"" if attributes is None else tlv(0xA0, *attributes),
        signature_algorithm,
        tlv(0x04, signature),
        unsigned,
    )


def streamed_content(content: bytes, size: int = 1000) -> bytes:
    """The content in segments, as by a streaming encoder."""
    segments = (content[start : start + size] for start in range(0, len(content), size))
    return indefinite(0x24, *(tlv(0x04, segment) for segment in segments))


def signed_data(
    *signers: bytes,
    content: bytes | None,
    streamed: bool = True,
    version: bytes = VERSION_1,
    digest_algorithms: Sequence[bytes] = (SHA256,),
    content_type: bytes = DATA,
    content_info_type: bytes = SIGNED_DATA,
    between: bytes = b"",
) -> bytes:
    """ContentInfo with these signers; ``content`` is the encoded OCTET STRING, or None for none.

    ``between`` is written in place of certificates.
    """
    wrap = indefinite if streamed else tlv
    encapsulated = wrap(0x30, content_type, b"" if content is None else wrap(0xA0, content))
    inside = wrap(0x30, version, tlv(0x31, *digest_algorithms), encapsulated, between, tlv(0x31, *signers))
    return wrap(0x30, content_info_type, wrap(0xA0, inside))


def sign(content: bytes, signer: Authority | None = None) -> bytes:
    """A PKCS#7 signature as EC2 makes it."""
    chosen = signer or authority(REGION)
    return signed_data(signer_info(chosen, content), content=streamed_content(content))


def recorded(pkcs7: bytes) -> bytes:
    """Encoded as by the metadata service: base64 in lines, without a newline at the end."""
    return base64.encodebytes(pkcs7).rstrip(b"\n")
