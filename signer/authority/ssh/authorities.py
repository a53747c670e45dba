"""The two authorities of a cluster. Each signs one kind of certificate, and has no method for the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

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
    public_key: HostKey = field(init=False, compare=False)
    """What nodes trust."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "public_key", public_key_of(self.private_key))

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
    public_key: HostKey = field(init=False, compare=False)
    """What clients trust."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "public_key", public_key_of(self.private_key))

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
        read = parse_certificate(signed.blob)
        if read != signed:
            raise _self_check_failed("the certificate does not read back as what was signed")
        _require_right_signature(private_key, signed)
    except SSHRefused as error:
        raise _self_check_failed(str(error)) from error
    return signed


def _require_right_signature(private_key: AuthorityPrivateKey, signed: SignedCertificate) -> None:
    """A wrong signature never leaves: it may give the private key away.

    Ed25519 derives the nonce from key and message, so one right and one faulty signature of a message are two equations
    for the key. Making the signature again finds the fault in a third of the time that a verification takes
    (Poddebniak and others, Attacking Deterministic Signature Schemes using Fault Attacks). The public key, which is
    hashed too, is compared because a fault of the kept key would be in both. ECDSA may be randomized: verify.
    """
    if not isinstance(private_key, Ed25519PrivateKey):
        signed.verify()
        return
    if public_key_of(private_key) != signed.certificate.authority:
        raise _self_check_failed("the authority's key in memory is not what it was")
    if sign(private_key, signed.certificate.signed_bytes) != signed.signature:
        raise _self_check_failed("a second signature of the certificate differs from the first")


def _self_check_failed(message: str) -> SSHAuthorityRefused:
    return SSHAuthorityRefused(SSHAuthorityReason.SELF_CHECK_FAILED, message)
