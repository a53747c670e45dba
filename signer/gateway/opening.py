"""What a grant opens at the gateway now, proven by its certificate. Pure.

Of the object, nothing is believed but that the grant has not ended, and that it is ready. The certificate in its status
says who may come in, as whom, to which container and until when. A user authority of the Cluster has signed it.

A grant that is not ready admits nobody. Its sessions go on: the controller takes the certificate away when the grant
ends, and leaves it while something only holds the grant, such as an API server that does not answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from attestors.wire.ssh.certificate import Certificate, CertificateKind, parse_certificate_line
from attestors.wire.ssh.container_names import Container, parse_container_principal
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh.options import Extension, ForceCommand, Network, SourceAddress
from signer.model.access import AccessGrant, DeletedAt, InvalidAccessGrant, parse_access_grant
from signer.model.cluster import ClusterKey
from signer.model.fields import items_of, text_of
from signer.rules.access_certificates import Hop, parse_grant_key_id

CLOCK_TOLERANCE: Final = timedelta(minutes=2)
"""Certificates begin a minute before they are made. The gateway's clock may be so much slower than the controller's."""
LONGEST_CERTIFICATE: Final = timedelta(hours=2)
"""The controller makes them for an hour, beginning a minute before. A longer one is somebody else's, and would let
sessions go on for so long while the gateway is out of touch.
"""
_READY: Final = "Ready"
_MAXIMUM_CERTIFICATES: Final = 4
_MAXIMUM_CONDITIONS: Final = 32


class ClosedReason(StrEnum):
    """Why a grant opens nothing at the gateway."""

    NOT_FOR_CONTAINERS = "NotForContainers"
    INVALID = "Invalid"
    ENDED = "Ended"
    """It is being deleted, is suspended, or its certificate covers a session no more."""
    NOT_READY = "NotReady"
    """Something holds it."""
    NOT_CERTIFIED = "NotCertified"
    """Its status has no certificate for a container."""
    CERTIFICATE_REFUSED = "CertificateRefused"
    """The certificate is not the one that the controller makes for this grant."""
    AUTHORITY_UNKNOWN = "AuthorityUnknown"
    """Another key has signed the certificate than the Cluster's user authorities, or they are not known here."""
    NOT_CONNECTED = "NotConnected"
    """The gateway cannot act in the Cluster for the grant's creator."""
    EXPIRED = "Expired"
    """The certificate is not valid now."""


class Closed(Exception):
    """The grant opens nothing now. The message names no key."""

    def __init__(self, reason: ClosedReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Opening:
    """What the key's holder may do."""

    cluster: ClusterKey
    grant: str
    """Name of the AccessGrant, in the Cluster's namespace."""
    uid: str
    """Of the AccessGrant."""
    creator: str
    """The user's name in the management cluster, as admission proved it."""
    key_id: str
    container: Container
    ends: datetime
    """Of the certificate; the controller renews it while the grant lives."""
    has_terminal: bool
    has_port_forwarding: bool
    command: str
    """The only command that may run; empty for any."""
    sources: tuple[Network, ...]
    """Where the connection may come from; empty for anywhere."""
    key: PublicKey = field(repr=False)


def grant_of(manifest: Mapping[str, Any]) -> AccessGrant:
    """The grant, if it is one for a container that is neither deleted nor suspended.

    Raises:
        Closed: ``Invalid``, ``NotForContainers`` or ``Ended``.
    """
    try:
        grant = parse_access_grant(manifest)
    except InvalidAccessGrant as invalid:
        raise Closed(ClosedReason.INVALID, str(invalid)) from None
    if not isinstance(grant.target, Container):
        raise Closed(ClosedReason.NOT_FOR_CONTAINERS, "the grant is for nodes")
    if isinstance(grant.metadata.deletion, DeletedAt) or grant.is_suspended:
        raise Closed(ClosedReason.ENDED, "the grant is suspended, or has ended")
    return grant


def is_live(grant: AccessGrant) -> bool:
    """Whether the grant is ready, or was: its key's holder may learn why it opens nothing now."""
    return _is_ready(grant.status) or bool(items_of(grant.status, "certificates"))


def admitted(grant: AccessGrant, authorities: Sequence[PublicKey], now: datetime) -> Opening:
    """What the grant opens for a new session.

    Raises:
        Closed: nothing now.
    """
    opening = opening_of(grant, authorities, now)
    if not _is_ready(grant.status):
        message = "the access grant is not ready now; try again, and see the conditions in its status"
        raise Closed(ClosedReason.NOT_READY, message)
    return opening


def continued(grant: AccessGrant, session: Opening, authorities: Sequence[PublicKey], now: datetime) -> Opening:
    """What the grant opens for a session that runs, whether the grant is ready or not.

    Raises:
        Closed: the certificate is gone, is not valid now, or covers less than the session was opened with.
    """
    current = opening_of(grant, authorities, now)
    of_session, of_current = (
        (one.uid, one.cluster, one.creator, one.container, one.key, one.command) for one in (session, current)
    )
    is_narrower = (session.has_terminal and not current.has_terminal) or (
        session.has_port_forwarding and not current.has_port_forwarding
    )
    if of_session != of_current or is_narrower:
        raise Closed(ClosedReason.ENDED, "the grant's certificate does not cover the session any more")
    return current


def opening_of(grant: AccessGrant, authorities: Sequence[PublicKey], now: datetime) -> Opening:
    """What the grant opens. ``authorities`` are the Cluster's user authorities.

    Raises:
        Closed: nothing now.
    """
    certificate = _certificate(grant, authorities)
    creator, container = _names(grant, certificate)
    if (
        not certificate.valid_after <= (now + CLOCK_TOLERANCE).timestamp()
        or now.timestamp() >= certificate.valid_before
    ):
        raise Closed(ClosedReason.EXPIRED, "the grant's certificate is not valid now")
    if certificate.valid_before - certificate.valid_after > LONGEST_CERTIFICATE.total_seconds():
        raise Closed(ClosedReason.CERTIFICATE_REFUSED, "the certificate is for longer than the controller makes one")
    options = certificate.critical_options
    return Opening(
        cluster=grant.cluster,
        grant=grant.metadata.name,
        uid=grant.metadata.uid,
        creator=creator,
        key_id=certificate.key_id,
        container=container,
        ends=datetime.fromtimestamp(certificate.valid_before, UTC),
        has_terminal=Extension.PERMIT_PTY in certificate.extensions,
        has_port_forwarding=Extension.PERMIT_PORT_FORWARDING in certificate.extensions,
        command=next((one.command for one in options if isinstance(one, ForceCommand)), ""),
        sources=next((one.networks for one in options if isinstance(one, SourceAddress)), ()),
        key=certificate.public_key,
    )


def _is_ready(status: Mapping[str, Any]) -> bool:
    stated = [one for one in items_of(status, "conditions")[:_MAXIMUM_CONDITIONS] if isinstance(one, Mapping)]
    found = [text_of(one, "status") for one in stated if text_of(one, "type") == _READY]
    return found == ["True"]


def _certificate(grant: AccessGrant, authorities: Sequence[PublicKey]) -> Certificate:
    stated = items_of(grant.status, "certificates")
    lines = [text_of(one, "certificate") for one in stated[:_MAXIMUM_CERTIFICATES] if _is_for_container(one)]
    if len(lines) != 1 or len(stated) > _MAXIMUM_CERTIFICATES:
        raise Closed(ClosedReason.NOT_CERTIFIED, "the grant's status has no certificate for a container")
    try:
        signed = parse_certificate_line(lines[0])
        if signed.certificate.authority not in authorities:
            raise Closed(ClosedReason.AUTHORITY_UNKNOWN, "no user authority of the Cluster has signed the certificate")
        signed.verify()
    except SSHRefused as refused:
        raise Closed(ClosedReason.CERTIFICATE_REFUSED, str(refused)) from None
    return signed.certificate


def _is_for_container(stated: Any) -> bool:
    return isinstance(stated, Mapping) and stated.get("hop") == Hop.CONTAINER.value


def _names(grant: AccessGrant, certificate: Certificate) -> tuple[str, Container]:
    """The creator and the container; both are the certificate's, and are those of this grant."""
    if certificate.kind is not CertificateKind.USER or certificate.public_key != grant.public_key:
        raise Closed(ClosedReason.CERTIFICATE_REFUSED, "the certificate is for another key than the grant")
    if any(not isinstance(one, ForceCommand | SourceAddress) for one in certificate.critical_options):
        raise Closed(ClosedReason.CERTIFICATE_REFUSED, "the certificate has an option that the gateway cannot keep")
    if len(certificate.principals) != 1:
        raise Closed(ClosedReason.CERTIFICATE_REFUSED, "the certificate does not name one container")
    try:
        names = parse_grant_key_id(certificate.key_id)
        container = parse_container_principal(str(certificate.principals[0]))
    except SSHRefused as refused:
        raise Closed(ClosedReason.CERTIFICATE_REFUSED, str(refused)) from None
    metadata = grant.metadata
    if (names.namespace, names.name, names.uid) != (metadata.namespace, metadata.name, metadata.uid):
        raise Closed(ClosedReason.CERTIFICATE_REFUSED, "the certificate is that of another grant")
    if container != grant.target:
        raise Closed(ClosedReason.CERTIFICATE_REFUSED, "the certificate names another container than the grant")
    return names.creator, container


__all__ = [
    "CLOCK_TOLERANCE",
    "Closed",
    "ClosedReason",
    "Opening",
    "admitted",
    "continued",
    "grant_of",
    "is_live",
    "opening_of",
]
