"""The certificate of a canary: one client certificate of a CA that is good for nothing but to show whether a server
accepts that CA. :mod:`signer.kube.canary` makes the request.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from signer.authority.certificate_authority import IssuingSet
from signer.authority.der import read_blocks
from signer.authority.issuance import IssuanceRequest, issue
from signer.authority.profiles import CANARY, CertificateUsage, certificate_validity, new_serial_number

__all__ = ["CanaryCertificate", "issue_canary"]

_NAME_CHARACTERS: Final = 16


@dataclass(frozen=True, slots=True)
class CanaryCertificate:
    """A certificate with its key, both PEM, for one request."""

    user: str
    serial_number: int
    not_after: datetime
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the certificate's DER encoding, in hexadecimal."""
        (block,) = read_blocks(self.certificate, maximum_bytes=len(self.certificate), maximum_blocks=1)
        return hashlib.sha256(block.content).hexdigest()


def issue_canary(authority: IssuingSet, now: datetime) -> CanaryCertificate:
    """A certificate of the CA that signs client certificates, with a new key. Takes up to 5 ms of CPU time.

    Raises:
        CertificateAuthorityUnavailable: the CA expires too soon.
        IssuanceRefused: the CA must not sign it.
    """
    signing = authority.client.certificate
    key = ec.generate_private_key(ec.SECP256R1())
    validity = certificate_validity(now, CANARY.maximum_duration, None, signing.not_after)
    # Named after the CA, so that an administrator can find it in the audit log of the API server.
    name = signing.public_key_hash.partition(":")[2][:_NAME_CHARACTERS]
    request = IssuanceRequest(
        profile=CANARY,
        subject_common_name=CANARY.user_prefix + name,
        organization=CANARY.organization,
        public_key=key.public_key(),
        dns_names=(),
        ip_addresses=(),
        usages=frozenset({CertificateUsage.DIGITAL_SIGNATURE, CertificateUsage.CLIENT_AUTH}),
        serial_number=new_serial_number(),
        not_before=validity.not_before,
        not_after=validity.not_after,
    )
    return CanaryCertificate(
        user=request.subject_common_name,
        serial_number=request.serial_number,
        not_after=request.not_after,
        certificate=issue(authority, request),
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
