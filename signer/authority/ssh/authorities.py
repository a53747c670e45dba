"""The two authorities of a cluster. Each signs one kind of certificate, and has no method for the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from attestors.wire.ssh.certificate import Certificate, CertificateKind, SignedCertificate, parse_certificate
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.keys import HostKey
from attestors.wire.ssh.signatures import public_key_of, sign
from signer.authority.ssh.errors import SSHAuthorityReason, SSHAuthorityRefused
from signer.authority.ssh.private_key import AuthorityPrivateKey
from signer.authority.ssh.requests import HostCertificateRequest, UserCertificateRequest


@dataclass(frozen=True, slots=True)
class UserAuthority:
    """Signs certificates of users. sshd trusts it by ``TrustedUserCAKeys``."""

    private_key: AuthorityPrivateKey = field(repr=False)

    @property
    def public_key(self) -> HostKey:
        """What nodes trust."""
        return public_key_of(self.private_key)

    def sign(self, request: UserCertificateRequest) -> SignedCertificate:
        """The certificate. The same request gives the same bytes (ECDSA: with OpenSSL 3.2 or later).

        Raises:
            SSHRefused: principals, options or extensions contradict each other.
            SSHAuthorityRefused: ``SubjectIsAuthority`` or ``SelfCheckFailed``.
        """
        valid_after, valid_before = request.validity
        certificate = Certificate(
            public_key=request.public_key,
            kind=CertificateKind.USER,
            serial=request.serial.number,
            key_id=str(request.key_id),
            principals=request.principals,
            valid_after=valid_after,
            valid_before=valid_before,
            authority=self.public_key,
            critical_options=request.critical_options,
            extensions=request.extensions,
            nonce=request.nonce.value,
        )
        return _signed(self.private_key, certificate)


@dataclass(frozen=True, slots=True)
class HostAuthority:
    """Signs certificates of hosts. Clients trust it by ``@cert-authority`` in ``known_hosts``."""

    private_key: AuthorityPrivateKey = field(repr=False)

    @property
    def public_key(self) -> HostKey:
        """What clients trust."""
        return public_key_of(self.private_key)

    def sign(self, request: HostCertificateRequest) -> SignedCertificate:
        """The certificate. The same request gives the same bytes (ECDSA: with OpenSSL 3.2 or later).

        Raises:
            SSHRefused: a principal is there twice, or there are too many.
            SSHAuthorityRefused: ``SubjectIsAuthority`` or ``SelfCheckFailed``.
        """
        valid_after, valid_before = request.validity
        certificate = Certificate(
            public_key=request.public_key,
            kind=CertificateKind.HOST,
            serial=request.serial.number,
            key_id=str(request.key_id),
            principals=request.principals,
            valid_after=valid_after,
            valid_before=valid_before,
            authority=self.public_key,
            nonce=request.nonce.value,
        )
        return _signed(self.private_key, certificate)


def _signed(private_key: AuthorityPrivateKey, certificate: Certificate) -> SignedCertificate:
    if certificate.public_key == certificate.authority:
        raise SSHAuthorityRefused(
            SSHAuthorityReason.SUBJECT_IS_AUTHORITY, "the key is the authority's own; certify another key"
        )
    signed = SignedCertificate(certificate, sign(private_key, certificate.signed_bytes))
    try:
        signed.verify()
        read = parse_certificate(signed.blob)
    except SSHRefused as error:
        raise SSHAuthorityRefused(SSHAuthorityReason.SELF_CHECK_FAILED, str(error)) from error
    if read != signed:
        raise SSHAuthorityRefused(
            SSHAuthorityReason.SELF_CHECK_FAILED, "the certificate does not read back as what was signed"
        )
    return signed
