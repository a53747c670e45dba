"""Certificates of the embedded API itself: its CA, serving certificate and client certificates (P-256 keys)."""

from __future__ import annotations

import contextlib
import ipaddress
import ssl
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BACKDATE = timedelta(minutes=5)
_TEN_YEARS = timedelta(days=3650)
_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME, which the ``ssl`` module does not name."""
_HANDSHAKE, _CERTIFICATE = 22, 11
_MAXIMUM_ANCHORS = 10_000
SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def load_certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    """All certificates of a PEM bundle. Raises ValueError.

    Cluster API gives its CAs serial number 0, which RFC 5280 forbids and cryptography warns of.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*serial number.*")
        return tuple(x509.load_pem_x509_certificates(pem))


@dataclass(frozen=True, slots=True)
class Issuer:
    """A certificate authority with its key."""

    certificate_pem: bytes
    certificate: x509.Certificate
    key: SigningKey = field(repr=False)
    key_pem: bytes = field(repr=False)

    @classmethod
    def load(cls, certificate_pem: bytes, key_pem: bytes) -> Issuer:
        """A CA as a ``<cluster>-ca`` Secret holds it. Raises ValueError when the key is not the certificate's."""
        certificate = load_certificates(certificate_pem)[0]
        key = serialization.load_pem_private_key(key_pem, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise ValueError("the CA's key must be RSA or elliptic curve")
        if key.public_key() != certificate.public_key():
            raise ValueError("the CA's key does not belong to its certificate")
        return cls(certificate_pem, certificate, key, key_pem)

    @classmethod
    def new(cls, common_name: str = "kubernetes") -> Issuer:
        """A fresh self-signed CA."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        moment = datetime.now(UTC)
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=True,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(moment - _BACKDATE)
            .not_valid_after(moment + _TEN_YEARS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate.public_bytes(serialization.Encoding.PEM), certificate, key, _key_pem(key))

    def client(self, user: str, groups: Sequence[str], lifetime: timedelta) -> tuple[bytes, bytes]:
        """Certificate and key in PEM: CN is the user, O are the groups. A negative lifetime makes an expired one."""
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        return self._issue(subject, ExtendedKeyUsageOID.CLIENT_AUTH, (), lifetime)

    def serving(self, names: Sequence[str], addresses: Sequence[str]) -> tuple[bytes, bytes]:
        """Certificate and key in PEM for a server of these names and addresses."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        return self._issue(subject, ExtendedKeyUsageOID.SERVER_AUTH, alternatives, timedelta(days=365))

    def _issue(
        self,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        alternatives: Sequence[x509.GeneralName],
        lifetime: timedelta,
    ) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        moment = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(moment, moment + lifetime) - _BACKDATE)
            .not_valid_after(moment + lifetime)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(self._authority_key_identifier(), critical=False)
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)

    def _authority_key_identifier(self) -> x509.AuthorityKeyIdentifier:
        """The subject key identifier: a truncated SHA-256 as in Cluster API (Go 1.25), not the library's SHA-1."""
        try:
            own = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        except x509.ExtensionNotFound:
            return x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def server_context(certificate: bytes, key: bytes, client_authorities: bytes) -> ssl.SSLContext:
    """The server's TLS context: client certificates of these authorities (PEM) are requested and optional."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The standard library reads keys only from files; this one is gone before the server listens.
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + key)
        file.flush()
        context.load_cert_chain(file.name)
    context.load_verify_locations(cadata=client_authorities.decode())
    context.verify_mode = ssl.CERT_OPTIONAL
    _accept_any_client_certificate(context)
    return context


def _accept_any_client_certificate(context: ssl.SSLContext) -> None:
    """Let the handshake succeed with any client certificate, so that a foreign or expired one is told 401.

    The real server asks for a certificate and judges it above TLS; Python's ``ssl`` can only refuse the handshake. So
    each certificate becomes its own trust anchor while it arrives, and ``Authenticator`` decides what it is worth.
    Where the private callback is missing, a foreign certificate ends the handshake, which is stricter.
    """
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    seen: set[bytes] = set()

    def on_message(_: Any, direction: str, version: Any, content_type: Any, message_type: Any, data: bytes) -> None:
        if direction != "read" or content_type != _HANDSHAKE or message_type != _CERTIFICATE:
            return
        certificate = _first_certificate(data, version)
        if certificate and certificate not in seen and len(seen) < _MAXIMUM_ANCHORS:
            seen.add(certificate)
            # An undecodable certificate fails in the handshake anyway.
            with contextlib.suppress(ssl.SSLError, ValueError):
                context.load_verify_locations(cadata=certificate)

    if hasattr(context, "_msg_callback"):
        context._msg_callback = on_message


def _first_certificate(message: bytes, version: int) -> bytes:
    """The leaf of a TLS Certificate message (RFC 8446, 4.4.2; RFC 5246, 7.4.2); empty if there is none."""
    position = 4
    if version == ssl.TLSVersion.TLSv1_3:
        position += 1 + (message[position] if len(message) > position else 0)
    position += 3
    length = int.from_bytes(message[position : position + 3], "big")
    certificate = message[position + 3 : position + 3 + length]
    return certificate if len(certificate) == length else b""
