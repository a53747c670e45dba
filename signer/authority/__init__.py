"""The certificate authority of a workload cluster: read it, plan a certificate, issue it.

All functions are pure and synchronous: no clock, no network, no Kubernetes. The caller passes ``now`` and the Secret's
bytes, and gets PEM.
"""

from __future__ import annotations

from signer.authority.certificate_authority import (
    CertificateAuthority,
    IssuingSet,
    KeyWithheld,
    discovery_hashes,
    load_authority_certificates,
    load_certificate_authority,
)
from signer.authority.errors import (
    AuthorityError,
    CertificateAuthorityUnavailable,
    CertificateAuthorityUnavailableReason,
    IssuanceRefused,
    IssuanceRefusedReason,
)
from signer.authority.issuance import IssuanceRequest, NodePublicKey, issue, require_issuable
from signer.authority.lenient_certificate import CACertificate
from signer.authority.profiles import (
    CANARY,
    KUBELET_CLIENT,
    KUBELET_SERVING,
    CertificateProfile,
    CertificateUsage,
    Validity,
    certificate_validity,
    new_serial_number,
)

__all__ = [
    "load_certificate_authority",
    "load_authority_certificates",
    "discovery_hashes",
    "KeyWithheld",
    "CertificateAuthority",
    "CACertificate",
    "IssuingSet",
    "certificate_validity",
    "Validity",
    "new_serial_number",
    "IssuanceRequest",
    "CertificateProfile",
    "CertificateUsage",
    "KUBELET_CLIENT",
    "KUBELET_SERVING",
    "CANARY",
    "NodePublicKey",
    "issue",
    "require_issuable",
    "AuthorityError",
    "CertificateAuthorityUnavailable",
    "CertificateAuthorityUnavailableReason",
    "IssuanceRefused",
    "IssuanceRefusedReason",
]
