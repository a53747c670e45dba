"""A self-signed certificate for ``/metrics``, created at startup and kept in memory.

It protects scrapers' tokens from passive eavesdropping. Prometheus must be configured not to verify it, as for other
Cluster API controllers; for more protection, put a proxy in front.
"""

from __future__ import annotations

import ssl
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from signer.kube.tls import load_certificate

LIFETIME: Final = timedelta(days=3650)
"""Longer than any process runs, so that the certificate never requires a restart."""
_BACKDATED: Final = timedelta(hours=1)
_COMMON_NAME: Final = "node-attestation-controller"


def self_signed_context(host_name: str, now: datetime) -> ssl.SSLContext:
    """The TLS server side, TLS 1.2 or later, with a fresh key and certificate for ``host_name`` and ``localhost``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _COMMON_NAME)])
    names = [x509.DNSName(one) for one in dict.fromkeys((host_name, "localhost")) if one.isascii()]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(
        context,
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
    return context
