"""Which SSH keys and certificates are revoked: asked for whenever the trust bundle is published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import parse_key_line
from attestors.wire.ssh.keys import RevocableKey
from attestors.wire.ssh.krl import (
    AnyAuthority,
    CertificateRevocations,
    Fingerprint,
    SerialRange,
    parse_revocation_list,
)
from attestors.wire.statement import NodeAccessTrust
from signer.authority.ssh.requests import MAXIMUM_USER_LIFETIME
from signer.model.cluster import ClusterKey
from signer.model.policy import Policy
from signer.model.ssh_access import SSHSettings
from signer.store.caches import Caches

GRANT_KEY_IDS: Final = "grant/"
"""What key ids of access grants begin with."""
LONGEST: Final = MAXIMUM_USER_LIFETIME + timedelta(minutes=10)
"""Until every certificate of now has ended, also on nodes whose clock is behind."""

Revocation: TypeAlias = CertificateRevocations | RevocableKey | Fingerprint


class RevocationsUnknown(Exception):
    """What is revoked is not known now, so no list may replace the published one. The message says why."""


RevocationsOf: TypeAlias = Callable[[ClusterKey], tuple[Revocation, ...]]
"""Everything that is revoked in one Cluster.

Raises:
    RevocationsUnknown: an incomplete list would let revoked certificates in.
"""


class PolicyRevocations:
    """Those of ``spec.ssh.revoked``."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches

    def of(self, key: ClusterKey) -> tuple[Revocation, ...]:
        """Implements :data:`RevocationsOf`."""
        policy = self._caches.policies.get(key.namespace, key.name)
        if not isinstance(policy, Policy) or not isinstance(policy.ssh, SSHSettings):
            raise RevocationsUnknown("the policy does not turn SSH on, or is invalid")
        revoked = policy.ssh.revoked
        serials = tuple(SerialRange.single(int(serial)) for serial in revoked.serials)
        certificates = CertificateRevocations(AnyAuthority(), serials, revoked.key_ids)
        return (certificates, *map(parse_key_line, revoked.public_keys))


@dataclass(frozen=True, slots=True)
class NothingOfOurs:
    """No bundle of this controller is published."""


@dataclass(frozen=True, slots=True)
class _Found:
    key_ids: frozenset[str]
    until: datetime
    had_one: bool


@dataclass(frozen=True, slots=True)
class _Published:
    payload: NodeAccessTrust
    key_ids: frozenset[str]


class PublishedRevocations:
    """The key ids of access grants that the published bundle revokes.

    Those that a process finds published when it begins are kept until every certificate of that time has ended: the
    list that had them may be lost, an older one of its versions, or of a wing that is switched off since.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._found: dict[ClusterKey, _Found] = {}
        self._published: dict[ClusterKey, _Published] = {}
        self._told: list[Callable[[ClusterKey], None]] = []

    def on_publication(self, told: Callable[[ClusterKey], None]) -> None:
        """Have ``told`` called when nodes can read another bundle, and when this process first finds one as it should
        be: from then on authorities and revocations of the Cluster are known.
        """
        self._told.append(told)

    def begin(self, key: ClusterKey) -> None:
        """The Cluster is connected: another replica may have published since this process looked."""
        self._found.pop(key, None)

    def is_found(self, key: ClusterKey) -> bool:
        """Whether this process has looked at what is published."""
        return key in self._found

    def found(self, key: ClusterKey, payload: NodeAccessTrust | NothingOfOurs) -> None:
        """What is published when this process begins to look after the Cluster's bundle."""
        had_one = isinstance(payload, NodeAccessTrust)
        key_ids = _grants_in(payload) if isinstance(payload, NodeAccessTrust) else frozenset[str]()
        self._found[key] = _Found(key_ids, self._now() + LONGEST, had_one)

    def published(self, key: ClusterKey, payload: NodeAccessTrust) -> None:
        """What nodes can read from now on; the same value while nothing changes."""
        known = self._published.get(key)
        if known is None or known.payload is not payload:
            self._published[key] = _Published(payload, _grants_in(payload))
            for told in self._told:
                told(key)

    def had_one(self, key: ClusterKey) -> bool:
        """Whether a bundle of this controller was published when this process began."""
        return key in self._found and self._found[key].had_one

    def has(self, key: ClusterKey, key_id: str) -> bool:
        """Whether nodes can read that this key id is revoked."""
        known = self._published.get(key)
        return known is not None and key_id in known.key_ids

    def of(self, key: ClusterKey) -> tuple[Revocation, ...]:
        """Implements :data:`RevocationsOf`: what is kept."""
        found = self._found.get(key)
        if found is None:
            raise RevocationsUnknown("what is published has not been read")
        if not found.key_ids or found.until <= self._now():
            return ()
        return (CertificateRevocations(AnyAuthority(), key_ids=tuple(found.key_ids)),)


def _grants_in(payload: NodeAccessTrust) -> frozenset[str]:
    """
    Raises:
        RevocationsUnknown: the published list cannot be read.
    """
    try:
        published = parse_revocation_list(payload.revocation_list)
    except SSHRefused as refused:
        raise RevocationsUnknown(f"the published list cannot be read: {refused}") from refused
    key_ids = (key_id for one in published.certificates for key_id in one.key_ids)
    return frozenset(key_id for key_id in key_ids if key_id.startswith(GRANT_KEY_IDS))


def combined(*sources: RevocationsOf) -> RevocationsOf:
    """Everything that any of them revokes."""
    return lambda key: tuple(one for source in sources for one in source(key))


__all__ = [
    "GRANT_KEY_IDS",
    "LONGEST",
    "NothingOfOurs",
    "PolicyRevocations",
    "PublishedRevocations",
    "Revocation",
    "RevocationsOf",
    "RevocationsUnknown",
    "combined",
]
