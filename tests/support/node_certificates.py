"""Client certificates of nodes with any validity, issued by a test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from attestors.wire.certificate_request import node_subject
from signer.testing.world import WorldCluster
from tests.support.certificates import CertificateAuthority

NEARLY_OVER: Final = (timedelta(hours=-9), timedelta(hours=1))
"""A validity of which a tenth is left."""
A_DAY: Final = (timedelta(0), timedelta(days=1))


def node_certificate(
    cluster: WorldCluster,
    public_key: CertificatePublicKeyTypes,
    node_name: str,
    validity: tuple[timedelta, timedelta] = A_DAY,
) -> str:
    """A client certificate (PEM) of that node, signed by the cluster's CA; ``validity`` is counted from now."""
    authority = CertificateAuthority.from_pem(cluster.api.ca_certificate_pem, cluster.api.ca_key_pem)
    now = datetime.now(UTC).replace(microsecond=0)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(node_subject(node_name))
        .issuer_name(authority.name)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + validity[0])
        .not_valid_after(now + validity[1])
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM).decode("ascii")
