"""The keys with which AWS signs the documents of each Region: shipped certificates, and those of the operator.

A certificate is a pin: only its key and the signer's name are used, and there is no authority above it and no
revocation. ``PROVENANCE.md`` beside this file gives the sources of the shipped certificates.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding

from attestors.aws.document import ber
from attestors.aws.document.ber import Reader
from attestors.aws.document.errors import (
    IdentityDocumentMalformed,
    RegionCertificateMissing,
    RegionCertificatesUnreadable,
)
from attestors.aws.partitions import Region, UnknownRegion, parse_region

SHIPPED_FOLDER: Final = Path(__file__).with_name("region_certificates")
FINGERPRINTS_FILE: Final = Path(__file__).with_name("fingerprints.txt")
_SUFFIX: Final = ".pem"
_MAXIMUM_FILE_BYTES: Final = 32 * 1024
_MAXIMUM_FILES: Final = 256
_MAXIMUM_CERTIFICATES: Final = 4
"""Per Region: the old and the new one while AWS rotates, and two spare."""
_KEY_BITS: Final = (2048, 8192)
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_CERTIFICATE: Final = "the certificate"


@dataclass(frozen=True, slots=True)
class PinnedCertificate:
    """A certificate of AWS's signing key."""

    issuer_and_serial_number: bytes
    """Content of IssuerAndSerialNumber in DER, which identifies the signer (RFC 5652 10.2.4)."""
    key: rsa.RSAPublicKey = field(repr=False)
    fingerprint: str
    """SHA-256 of the certificate in DER, hexadecimal."""


@dataclass(frozen=True, slots=True)
class RegionCertificates:
    """The certificates of each Region, by Region name."""

    by_region: Mapping[str, tuple[PinnedCertificate, ...]] = field(repr=False)

    def of(self, region: Region) -> tuple[PinnedCertificate, ...]:
        """The certificates of this Region; at least one.

        Raises:
            RegionCertificateMissing: there is none.
        """
        pinned = self.by_region.get(region.name, ())
        if not pinned:
            raise RegionCertificateMissing(
                f"there is no certificate for the AWS Region {region.name}: the operator can add its RSA-2048 "
                "certificate for instance identity documents"
            )
        return pinned


def load_region_certificates(
    folder: Path | None = None, *, replacing: frozenset[str] = frozenset()
) -> RegionCertificates:
    """The shipped certificates, and those in the operator's folder: one file per Region, ``<region>.pem``.

    A file for a Region with a known certificate must hold that certificate. If AWS rotates a Region's certificate, name
    the Region in ``replacing``; then the file's certificates are trusted instead.

    Raises:
        RegionCertificatesUnreadable: a file is not named for a Region, holds no certificate or an unusable one, or
        another
            one than is known; or a Region in ``replacing`` has no file.
    """
    shipped = shipped_certificates()
    if folder is None:
        files: Mapping[str, tuple[PinnedCertificate, ...]] = {}
    else:
        files = _read_folder(folder)
    absent = replacing - files.keys()
    if absent:
        raise RegionCertificatesUnreadable(f"{min(absent)} is to be replaced, but there is no {min(absent)}{_SUFFIX}")
    known = known_fingerprints()
    for name, pinned in files.items():
        if name in known and name not in replacing and {one.fingerprint for one in pinned} != {known[name]}:
            raise RegionCertificatesUnreadable(
                f"{name}{_SUFFIX} is not the certificate that AWS is known to use in {name}; if AWS has changed it, "
                "name the Region among those that are to be replaced"
            )
    return RegionCertificates(MappingProxyType({**shipped.by_region, **files}))


@functools.cache
def shipped_certificates() -> RegionCertificates:
    """The certificates in this package.

    Raises:
        RegionCertificatesUnreadable: the installation is damaged.
    """
    return RegionCertificates(MappingProxyType(dict(_read_folder(SHIPPED_FOLDER))))


@functools.cache
def known_fingerprints() -> Mapping[str, str]:
    """SHA-256 of the certificate of each Region, including Regions whose certificate is not shipped."""
    lines = (line.split() for line in FINGERPRINTS_FILE.read_text("ascii").splitlines())
    return MappingProxyType(dict(lines))


def pin(certificate: x509.Certificate) -> PinnedCertificate:
    """Pin a certificate.

    Raises:
        RegionCertificatesUnreadable: it has no RSA key of an accepted size.
    """
    key = certificate.public_key()
    if not isinstance(key, rsa.RSAPublicKey) or not _KEY_BITS[0] <= key.key_size <= _KEY_BITS[1]:
        raise RegionCertificatesUnreadable(f"has no RSA key of {_KEY_BITS[0]} to {_KEY_BITS[1]} bits")
    fingerprint = hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()
    return PinnedCertificate(_issuer_and_serial_number(certificate), key, fingerprint)


def _issuer_and_serial_number(certificate: x509.Certificate) -> bytes:
    """Issuer and serial number as encoded in the certificate, since a signer copies them (RFC 5280 4.1)."""
    reader = Reader(ber.only(certificate.tbs_certificate_bytes, ber.SEQUENCE, _CERTIFICATE).content, _CERTIFICATE)
    if reader.at(ber.CONTEXT_0):
        reader.element(ber.CONTEXT_0, "version")
    serial_number = reader.element(ber.INTEGER, "serialNumber")
    reader.element(ber.SEQUENCE, "signature")
    return reader.element(ber.SEQUENCE, "issuer").encoded + serial_number.encoded


def _read_folder(folder: Path) -> dict[str, tuple[PinnedCertificate, ...]]:
    """Every file of the folder, except hidden ones (``..data`` of mounted ConfigMaps)."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
        if not 0 < len(paths) <= _MAXIMUM_FILES:
            raise RegionCertificatesUnreadable(f"{folder} must hold 1 to {_MAXIMUM_FILES} certificates")
        return {_region_of(path): tuple(_read_file(path)) for path in paths}
    except OSError as error:
        raise RegionCertificatesUnreadable(f"{error.filename or folder}: {error.strerror}") from error


def _region_of(path: Path) -> str:
    try:
        if path.suffix == _SUFFIX:
            return parse_region(path.stem).name
    except UnknownRegion:
        pass
    raise RegionCertificatesUnreadable(f"{path.name} is not named for an AWS Region, such as eu-west-1{_SUFFIX}")


def _read_file(path: Path) -> Iterable[PinnedCertificate]:
    with path.open("rb") as file:
        content = file.read(_MAXIMUM_FILE_BYTES + 1)
    certificates = _PEM.findall(content)
    if len(content) > _MAXIMUM_FILE_BYTES or not 0 < len(certificates) <= _MAXIMUM_CERTIFICATES:
        raise RegionCertificatesUnreadable(f"{path.name} must hold 1 to {_MAXIMUM_CERTIFICATES} certificates in PEM")
    for certificate in certificates:
        try:
            yield pin(x509.load_pem_x509_certificate(certificate))
        except (RegionCertificatesUnreadable, IdentityDocumentMalformed) as error:
            raise RegionCertificatesUnreadable(f"{path.name} {error}") from error
        except ValueError as error:
            raise RegionCertificatesUnreadable(f"{path.name} holds a certificate that cannot be read") from error
