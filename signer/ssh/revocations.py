"""Which SSH keys and certificates are revoked: asked for whenever the trust bundle is published."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attestors.wire.ssh.key_line import parse_key_line
from attestors.wire.ssh.keys import RevocableKey
from attestors.wire.ssh.krl import AnyAuthority, CertificateRevocations, Fingerprint, SerialRange
from signer.model.cluster import ClusterKey
from signer.model.policy import Policy
from signer.model.ssh_access import SSHSettings
from signer.store.caches import Caches

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


__all__ = ["PolicyRevocations", "Revocation", "RevocationsOf", "RevocationsUnknown"]
