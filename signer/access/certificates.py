"""Which certificates a grant gets, and which it is refused.

What is refused is refused before anything is journaled: :meth:`GrantCertificates.certificates_of` returns only requests
that a certificate can say, for a key that is nobody else's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from attestors.wire.ssh.certificate import NONCE_BYTES
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.key_line import key_line, parse_key_line
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh.krl import CertificateRevocations, Fingerprint
from attestors.wire.ssh.options import Network, parse_network
from signer.access.parts import HopRequest, IssuanceFacts, NoBastion, TargetsFound
from signer.access.revocation_list import RevocationList
from signer.authority.ssh.errors import SSHAuthorityReason, SSHAuthorityRefused
from signer.authority.ssh.key_id import KeyID
from signer.authority.ssh.requests import Nonce, Serial
from signer.model.access import AccessGrant, AllNodes, Container, GrantTarget, Nodes
from signer.model.decision import printable
from signer.model.record import AttestedNode
from signer.rules.access_certificates import (
    GrantAccess,
    Hop,
    HopSources,
    certificate_request,
    grant_key_id,
    unsigned,
)
from signer.ssh.available import AvailableAuthorities, NotAvailable, SSHAuthoritiesOf
from signer.ssh.revocations import Revocation, RevocationsOf
from signer.store.caches import Caches

_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Any time: only whether a certificate can be made depends on it."""


class CertificateReason(StrEnum):
    """Why a grant gets no certificates."""

    NO_NODES = "NoNodes"
    """None of the grant's nodes has attested."""
    KEY_IS_AUTHORITY = "KeyIsAuthority"
    """The key is one of the authorities that nodes or clients of the cluster trust."""
    KEY_IS_HOST_KEY = "KeyIsHostKey"
    """A node, of any cluster, has the key as its host key: its private half is on that machine."""
    REVOKED = "Revoked"
    """The policy revokes the key, the key id of this grant, or the user authority."""
    NAME_INVALID = "NameInvalid"
    """A login or node can be in no certificate, or the names are more than OpenSSH reads."""
    KEY_ID_TOO_LONG = "KeyIDTooLong"
    """Namespace, names, UID and creator are more than 1024 characters, escaped."""
    OPTION_INVALID = "OptionInvalid"
    """The forced command or the networks can be in no certificate."""
    INGRESS_MISSING = "IngressMissing"
    """A certificate for a bastion counts from named networks alone."""
    LIFETIME_INVALID = "LifetimeInvalid"
    """There is no whole second left, or more than an hour was asked for."""
    AUTHORITIES_NOT_AVAILABLE = "AuthoritiesNotAvailable"
    """The policy's condition SSHAuthoritiesAvailable says why."""


_SSH_REASONS: Final = {
    SSHReason.KEY_ID_INVALID: CertificateReason.KEY_ID_TOO_LONG,
    SSHReason.OPTION_INVALID: CertificateReason.OPTION_INVALID,
    SSHReason.OPTIONS_NOT_SORTED: CertificateReason.OPTION_INVALID,
}


class NotCertified(SSHRefused):
    """The grant gets no certificates now. The message holds no key."""

    def __init__(self, why: CertificateReason, message: str) -> None:
        super().__init__(SSHReason.REVOKED if why is CertificateReason.REVOKED else SSHReason.KEY_INVALID, message)
        self.why = why
        self.message = printable(message)

    def __str__(self) -> str:
        return f"{self.why}: {self.message}"


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """What is known of the grant's key, and of what signs."""

    authority: PublicKey
    """That of users, which is to sign."""
    trusted: tuple[PublicKey, ...]
    """All authorities of users and hosts, break-glass ones among them."""
    holders: tuple[AttestedNode, ...]
    """Records of nodes, of any cluster, with the grant's key as host key."""
    revoked: tuple[Revocation, ...] = field(repr=False)


def access_of(facts: IssuanceFacts) -> GrantAccess:
    """What the grant opens: of the nodes that it names, those that have attested.

    Raises:
        NotCertified: ``NoNodes``.
    """
    grant, permissions = facts.grant, facts.grant.permissions
    return GrantAccess(
        cluster=grant.cluster,
        name=grant.metadata.name,
        uid=grant.metadata.uid,
        creator=facts.creator,
        epoch=facts.epoch,
        public_key=grant.ssh_public_key,
        logins=grant.logins,
        target=_target(grant, facts.targets),
        pty=permissions.pty,
        port_forwarding=permissions.port_forwarding,
        command=permissions.command,
    )


def _target(grant: AccessGrant, found: TargetsFound) -> GrantTarget:
    """Never more than the grant says, whatever was found."""
    match grant.target:
        case Container():
            return grant.target
        case AllNodes():
            return AllNodes()
        case Nodes(names):
            known = {one.node for one in found.nodes}
            attested = tuple(name for name in names if name in known)
            if not attested:
                raise NotCertified(CertificateReason.NO_NODES, "none of the grant's nodes has attested")
            return Nodes(attested)


def hops_of(facts: IssuanceFacts) -> tuple[HopSources, ...]:
    """The hops, and where each sees the person come from.

    A node sees the bastion. If it is not known from where, any address may use the certificate there. The gateway sees
    the person, so it takes no certificate of a grant with a bastion.

    Raises:
        NotCertified: ``IngressMissing`` or ``OptionInvalid``.
    """
    ingress: tuple[Network, ...] = facts.grant.ingress
    last = Hop.CONTAINER if isinstance(facts.grant.target, Container) else Hop.NODE
    if isinstance(facts.bastion, NoBastion):
        return (HopSources(last, ingress),)
    if not ingress:
        raise NotCertified(
            CertificateReason.INGRESS_MISSING, "name the networks from which you reach the bastion in spec.ingress"
        )
    try:
        egress = tuple(map(parse_network, facts.bastion.egress))
    except SSHRefused as refused:
        raise NotCertified(CertificateReason.OPTION_INVALID, f"egress of the bastion: {refused.message}") from None
    return (HopSources(Hop.BASTION, ingress), HopSources(last, egress))


def require_acceptable_key(line: str, key_id: str, facts: KeyFacts) -> None:
    """The key is the creator's own, and neither it nor the key id is revoked.

    Raises:
        NotCertified: ``KeyIsAuthority``, ``KeyIsHostKey`` or ``Revoked``.
    """
    key = parse_key_line(line)
    if key in facts.trusted:
        raise NotCertified(
            CertificateReason.KEY_IS_AUTHORITY, "the key is one of the cluster's SSH authorities; use one of your own"
        )
    if facts.holders:
        raise NotCertified(CertificateReason.KEY_IS_HOST_KEY, "the key is the host key of a node; use one of your own")
    if any(_revokes(one, key, key_id) or _revokes(one, facts.authority, key_id) for one in facts.revoked):
        raise NotCertified(
            CertificateReason.REVOKED, "the policy revokes the key, the key id of this grant, or the user authority"
        )


def hop_requests(facts: IssuanceFacts, keys: KeyFacts) -> tuple[HopRequest, ...]:
    """One for each hop. Pure.

    Raises:
        NotCertified: none may be issued.
    """
    access, hops = access_of(facts), hops_of(facts)
    try:
        key_id = access.key_id
        require_acceptable_key(access.public_key, str(key_id), keys)
        found = []
        for hop in hops:
            request = certificate_request(access, hop, Serial(1), Nonce(bytes(NONCE_BYTES)), _EPOCH, facts.lifetime)
            unsigned(request, keys.authority)  # what cannot be said is refused now
            found.append(
                HopRequest(
                    hop=hop.hop,
                    public_key=request.public_key,
                    key_id=key_id,
                    principals=request.principals,
                    lifetime=facts.lifetime,
                    critical_options=request.critical_options,
                    extensions=request.extensions,
                )
            )
    except SSHAuthorityRefused as refused:
        lifetime = refused.reason is SSHAuthorityReason.LIFETIME_INVALID
        why = CertificateReason.LIFETIME_INVALID if lifetime else CertificateReason.NAME_INVALID
        raise NotCertified(why, refused.message) from None
    except NotCertified:
        raise
    except SSHRefused as refused:
        why = _SSH_REASONS.get(refused.reason, CertificateReason.NAME_INVALID)
        raise NotCertified(why, refused.message) from None
    return tuple(found)


class GrantCertificates:
    """Implements :class:`~signer.access.parts.Certificates` by what the caches know now."""

    def __init__(
        self,
        *,
        caches: Caches,
        authorities_of: SSHAuthoritiesOf,
        revocations_of: RevocationsOf,
        revocation_list: RevocationList,
        now: Callable[[], datetime],
    ) -> None:
        self._caches = caches
        self._authorities_of = authorities_of
        self._revocations_of = revocations_of
        self._revocation_list = revocation_list
        self._now = now

    def key_id_of(self, grant: AccessGrant, creator: str, epoch: int) -> KeyID:
        """See Certificates.

        Raises:
            SSHRefused: ``KeyIDInvalid``.
        """
        return grant_key_id(grant.cluster.namespace, grant.metadata.name, grant.metadata.uid, creator, epoch)

    def certificates_of(self, facts: IssuanceFacts) -> tuple[HopRequest, ...]:
        """See Certificates. From now on, the list of revocations has a place for the key id.

        Raises:
            NotCertified: none may be issued.
            RevocationsUnknown: it is not known what is revoked.
            RevocationListFull: the key id could not be revoked later.
            Deferred: the controller key is not available, or the caches are out of touch.
        """
        cluster = facts.grant.cluster
        available = self._authorities_of(cluster)
        if isinstance(available, NotAvailable):
            raise NotCertified(CertificateReason.AUTHORITIES_NOT_AVAILABLE, f"{available.reason}: {available.message}")
        self._caches.require_current(cluster.namespace)
        requests = hop_requests(facts, self._key_facts(facts, available))
        key_id = str(requests[0].key_id)
        self._revocation_list.reserve(cluster, key_id, self._now() + facts.lifetime)
        return requests

    def _key_facts(self, facts: IssuanceFacts, available: AvailableAuthorities) -> KeyFacts:
        trust, line = available.trust, key_line(facts.grant.public_key)
        return KeyFacts(
            available.user.public_key,
            (*trust.all_user_authorities, *trust.host_authorities),
            self._caches.authentic.with_host_key(line),
            self._revocations_of(facts.grant.cluster),
        )


def _revokes(revocation: Revocation, key: PublicKey, key_id: str) -> bool:
    """As sshd judges a certificate for the key, or by it."""
    match revocation:
        case CertificateRevocations():
            return key_id in revocation.key_ids
        case Fingerprint():
            return revocation == Fingerprint.of(key)
        case revoked:
            return revoked.blob == key.blob


__all__ = [
    "CertificateReason",
    "GrantCertificates",
    "KeyFacts",
    "NotCertified",
    "access_of",
    "hop_requests",
    "hops_of",
    "require_acceptable_key",
]
