"""Parses certificates, in one place."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

AlternativeName: TypeAlias = str | IPv4Address | IPv6Address | IPv4Network | IPv6Network | x509.GeneralName
"""A DNS name's text, an address, or a name of another kind, which this program never requests."""


def load_chain(pem: bytes) -> list[x509.Certificate]:
    """The certificates in ``pem``; at least one.

    Cluster API gives its CAs serial number 0, about which the library warns; the warning is suppressed.

    Raises:
        ValueError: there is none, or one is malformed.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Parsed a serial number which wasn't positive")
        try:
            return x509.load_pem_x509_certificates(pem)
        except x509.InvalidVersion as error:
            raise ValueError("a certificate of an unknown version") from error


def is_readable(der: bytes) -> bool:
    """Whether the library can read that certificate and its key."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Parsed a serial number which wasn't positive")
        try:
            public_key_info_of(x509.load_der_x509_certificate(der))
        except (ValueError, x509.InvalidVersion):
            return False
    return True


def name_of(holder: x509.Certificate | x509.CertificateSigningRequest) -> x509.Name:
    """The subject.

    Raises:
        ValueError: it is malformed; the library parses it only on access.
    """
    with _reading_a_name():
        return holder.subject


def issuer_of(certificate: x509.Certificate) -> x509.Name:
    """The issuer.

    Raises:
        ValueError: it is malformed.
    """
    with _reading_a_name():
        return certificate.issuer


def alternative_names_of(certificate: x509.Certificate) -> frozenset[AlternativeName]:
    """The subject alternative names; empty if there are none.

    Raises:
        ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType: the extensions are malformed.
    """
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(name.value if isinstance(name, (x509.DNSName, x509.IPAddress)) else name for name in names)


@contextlib.contextmanager
def _reading_a_name() -> Iterator[None]:
    """X.520 limits a common name, Kubernetes does not; the library's warning is suppressed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Attribute's length must be", category=UserWarning)
        try:
            yield
        except TypeError as error:  # the library raises it for a BIT STRING
            raise ValueError("a name with a value of another kind than text") from error


def public_key_info_of(certificate: x509.Certificate) -> bytes:
    """The certificate's SubjectPublicKeyInfo, DER.

    Raises:
        ValueError: its key is of an unknown kind.
    """
    try:
        return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except UnsupportedAlgorithm as error:
        raise ValueError("a key of an unknown kind") from error
