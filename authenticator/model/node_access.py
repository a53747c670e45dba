"""Whether this node believes what the controller says about SSH (:mod:`attestors.wire.node_access`)."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from attestors.wire.node_access import NodeAccess, Trust
from attestors.wire.ssh.certificate import CertificateKind, SignedCertificate
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.keys import PublicKey
from authenticator.model.ssh_state import SSHState, digest_of

CLOCK_SKEW_SECONDS: Final = 300
"""How far this node's clock may be behind the controller's."""


class AccessReason(enum.StrEnum):
    """Why this node does not accept a text that is well-formed."""

    FOREIGN_HOST_KEY = "ForeignHostKey"
    NOT_A_HOST_CERTIFICATE = "NotAHostCertificate"
    UNKNOWN_AUTHORITY = "UnknownAuthority"
    """The authority that signed is not one of the CAs of hosts, of the text or of a newer trust in force."""
    OTHER_NODE = "OtherNode"
    """The certificate does not name this node."""
    NOT_YET_VALID = "NotYetValid"
    EXPIRED = "Expired"
    OLDER_CERTIFICATE = "OlderCertificate"
    OLDER_TRUST = "OlderTrust"
    CHANGED_TRUST = "ChangedTrust"
    """Other authorities under the version that this node has."""


class AccessRefused(ValueError):
    """This node does not accept the text; the message says why."""

    def __init__(self, reason: AccessReason | SSHReason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class AcceptedAccess:
    """Everything in it holds for this node, now. Only :func:`accept_access` makes one."""

    host_certificates: tuple[SignedCertificate, ...]
    trust: Trust
    """What this node trusts from now on."""


@dataclass(frozen=True, slots=True)
class UnknownTrust:
    """The authorities of the trust in force are not known as a whole, only their version and digest."""


def accept_access(
    access: NodeAccess,
    *,
    host_keys: Sequence[PublicKey],
    node_name: str,
    state: SSHState,
    in_force: Trust | UnknownTrust,
    now: int,
) -> AcceptedAccess:
    """The whole text, or nothing of it.

    ``host_keys`` are this node's. The trust must be newer than that of ``state``, or the same. It may be older than
    ``in_force``, the trust of ``state``, if it was on its way while a bundle came. Then the newer trust stays, and an
    authority in it must have signed the certificates.

    Raises:
        AccessRefused: a certificate or the trust does not hold for this node.
    """
    trust = access.trust
    if trust.version < state.trust_version and isinstance(in_force, Trust):
        trust = in_force
    require_not_older(trust, state)
    for certificate in access.host_certificates:
        check_certificate(certificate, trust, host_keys=host_keys, node_name=node_name, now=now)
    return AcceptedAccess(access.host_certificates, trust)


def require_not_older(trust: Trust, state: SSHState) -> None:
    """Require that the trust is newer than that of ``state``, or the same.

    Raises:
        AccessRefused: it is not.
    """
    if trust.version < state.trust_version:
        raise AccessRefused(
            AccessReason.OLDER_TRUST,
            f"version {trust.version} of the trust; this node has version {state.trust_version}",
        )
    if trust.version == state.trust_version and digest_of(trust) != state.trust_digest:
        raise AccessRefused(
            AccessReason.CHANGED_TRUST, f"other authorities under version {state.trust_version}, which this node has"
        )


def check_certificate(
    signed: SignedCertificate, trust: Trust, *, host_keys: Sequence[PublicKey], node_name: str, now: int
) -> None:
    """Require that clients who trust these authorities accept the certificate for this node, now.

    Raises:
        AccessRefused: they do not.
    """
    certificate = signed.certificate
    if certificate.public_key not in host_keys:
        raise AccessRefused(
            AccessReason.FOREIGN_HOST_KEY,
            f"a certificate for {certificate.public_key.fingerprint}, no key of this host",
        )
    if certificate.kind is not CertificateKind.HOST:
        raise AccessRefused(AccessReason.NOT_A_HOST_CERTIFICATE, "the certificate is for a user")
    if certificate.authority not in trust.host_authorities:
        raise AccessRefused(
            AccessReason.UNKNOWN_AUTHORITY,
            f"{certificate.authority.fingerprint} signed, which is no listed CA of hosts",
        )
    try:
        signed.verify()
    except SSHRefused as refused:
        raise AccessRefused(refused.reason, f"a host certificate: {refused.message}") from None
    if node_name not in map(str, certificate.principals):
        raise AccessRefused(AccessReason.OTHER_NODE, f"the host certificate does not name {node_name}")
    if now + CLOCK_SKEW_SECONDS < certificate.valid_after:
        raise AccessRefused(
            AccessReason.NOT_YET_VALID, "the host certificate begins later; is this node's clock right?"
        )
    if now >= certificate.valid_before:
        raise AccessRefused(AccessReason.EXPIRED, "the host certificate has ended; is this node's clock right?")
