"""The certificate authority of a workload cluster: read it, plan a certificate, issue it, make its successor.

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
from signer.authority.link import (
    LinkCertificate,
    LinkNotPossible,
    LinkNotPossibleReason,
    ServerNames,
    new_with_old,
    old_with_new,
)
from signer.authority.pair import require_pair, require_service_account_pair
from signer.authority.presented import Presented, presented_by
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
from signer.authority.successor import (
    AuthorityKind,
    NewAuthority,
    RotatedCertificateAuthority,
    ServiceAccountKey,
    new_authority,
    new_service_account_key,
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
    "AuthorityKind",
    "RotatedCertificateAuthority",
    "NewAuthority",
    "ServiceAccountKey",
    "new_authority",
    "new_service_account_key",
    "LinkCertificate",
    "LinkNotPossible",
    "LinkNotPossibleReason",
    "ServerNames",
    "old_with_new",
    "new_with_old",
    "require_pair",
    "require_service_account_pair",
    "Presented",
    "presented_by",
    "AuthorityError",
    "CertificateAuthorityUnavailable",
    "CertificateAuthorityUnavailableReason",
    "IssuanceRefused",
    "IssuanceRefusedReason",
]
