"""Certificate authorities and leaf certificates for test clusters."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from signer.kube.connection import ClusterConnection

_BACKDATE: Final = datetime.timedelta(minutes=5)
_DAY: Final = datetime.timedelta(days=1)

_VERSION_3_SERIAL_1: Final = bytes.fromhex("a003020102020101")
_VERSION_3_SERIAL_0: Final = bytes.fromhex("a003020102020100")


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """A cluster CA with its key."""

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey = field(repr=False)
    name: x509.Name
    key_identifier: bytes

    @classmethod
    def from_pem(cls, certificate_pem: bytes, key_pem: bytes) -> CertificateAuthority:
        """An existing CA. Raises ``ValueError`` without a subject key identifier, or if the key is another one's."""
        key = serialization.load_pem_private_key(key_pem, None)
        if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
            raise ValueError("the CA's key is neither RSA nor elliptic")
        with warnings.catch_warnings():
            # Cluster API's CAs have serial number 0, for which parsing warns.
            warnings.simplefilter("ignore", CryptographyDeprecationWarning)
            certificate = x509.load_pem_x509_certificate(certificate_pem)
        if certificate.public_key() != key.public_key():
            raise ValueError("the key is not the certificate's")
        try:
            identifier = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        except x509.ExtensionNotFound:
            raise ValueError("the CA certificate has no subject key identifier") from None
        return cls(certificate_pem, key_pem, key, certificate.subject, identifier.digest)

    @classmethod
    def like_cluster_api(cls, age: datetime.timedelta = _BACKDATE) -> CertificateAuthority:
        """A CA as Cluster API makes it (``newSelfSignedCACert`` in its util/secret): RSA-2048, PKCS#1 PEM, serial 0.

        It is valid from ``age`` ago.
        """
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        now = _now()
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now - age)
            .not_valid_after(now + 3650 * _DAY)
            .add_extension(_key_usage(key_encipherment=True, key_cert_sign=True), critical=True)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )
        key_pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        return cls(_with_serial_zero(certificate, key), key_pem, key, name, identifier.digest)

    def issue_client(
        self,
        user: str,
        groups: Sequence[str],
        lifetime: datetime.timedelta = _DAY,
        age: datetime.timedelta = _BACKDATE,
    ) -> tuple[bytes, bytes]:
        """A client certificate (CN = ``user``, one O per group) and its P-256 key, both PEM.

        It is valid from ``age`` ago to ``lifetime`` from now.
        """
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        return self._issue(x509.Name(attributes), (ExtendedKeyUsageOID.CLIENT_AUTH,), (), lifetime, age)

    def issue_serving(self, user: str, names: Sequence[str]) -> tuple[bytes, bytes]:
        """A serving certificate for DNS names and IP addresses and its P-256 key, both PEM."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)])
        return self._issue(subject, (ExtendedKeyUsageOID.SERVER_AUTH,), names, 365 * _DAY, _BACKDATE)

    def issue_peer(self, user: str, names: Sequence[str]) -> tuple[bytes, bytes]:
        """The same for both usages, as kubeadm makes them for etcd's members."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)])
        usages = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
        return self._issue(subject, usages, names, 365 * _DAY, _BACKDATE)

    def _issue(
        self,
        subject: x509.Name,
        usages: Sequence[x509.ObjectIdentifier],
        names: Sequence[str],
        lifetime: datetime.timedelta,
        age: datetime.timedelta,
    ) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        now = _now()
        issuer_key = x509.AuthorityKeyIdentifier(self.key_identifier, None, None)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - age)
            .not_valid_after(now + lifetime)
            .add_extension(_key_usage(), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(issuer_key, critical=False)
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([general_name(n) for n in names]), critical=False
            )
        certificate = builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        return certificate, private_key_pem(key)


def with_client_certificate(
    connection: ClusterConnection, certificate: bytes, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
) -> ClusterConnection:
    """A connection to the same server with this client certificate and key (PEM)."""
    return replace(connection, client_certificate=certificate, client_key=private_key_pem(key), bearer_token=None)


def private_key_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    """PKCS#8 PEM of a private key."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_key_pem(key: rsa.RSAPrivateKey) -> bytes:
    """SubjectPublicKeyInfo PEM of a private key's public key."""
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _with_serial_zero(certificate: x509.Certificate, key: rsa.RSAPrivateKey) -> bytes:
    """PEM of the same certificate with serial number 0, which the builder refuses."""
    old = certificate.tbs_certificate_bytes
    if old.count(_VERSION_3_SERIAL_1) != 1:
        raise ValueError("the serial number was not found once")
    new = old.replace(_VERSION_3_SERIAL_1, _VERSION_3_SERIAL_0)
    signature = key.sign(new, padding.PKCS1v15(), hashes.SHA256())
    der = (
        certificate.public_bytes(serialization.Encoding.DER).replace(old, new).replace(certificate.signature, signature)
    )
    return _pem(der)


def _pem(der: bytes) -> bytes:
    # The standard library writes the PEM: parsing the certificate would warn about its serial number.
    return ssl.DER_cert_to_PEM_cert(der).encode()


def _key_usage(*, key_encipherment: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=key_encipherment,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def general_name(name: str) -> x509.GeneralName:
    """An IP address if ``name`` is one, else a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)
