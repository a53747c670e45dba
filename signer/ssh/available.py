"""Which SSH authorities may sign now: what a part that signs asks for, and why it gets none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from attestors.wire.node_access import Trust
from signer.authority.ssh.authorities import HostAuthority, UserAuthority
from signer.model.cluster import ClusterKey


class Reason(StrEnum):
    """Why a cluster's SSH authorities are not available; the reason of the condition ``SSHAuthoritiesAvailable``."""

    NOT_CHOSEN = "NotChosen"
    """The policy does not turn SSH on."""
    NOT_ALLOWED = "NotAllowed"
    """The operator does not allow SSH in that namespace."""
    PAUSED = "Paused"
    """The Cluster is paused. It may be moving, and two management clusters must not sign at once."""
    MALFORMED = "Malformed"
    """A Secret cannot be read as an SSH authority."""
    KEY_MISSING = "KeyMissing"
    """A Secret has no private key."""
    FOREIGN_AUTHORITY = "ForeignAuthority"
    """This controller's key sealed no such Secret."""
    EDITED_AUTHORITY = "EditedAuthority"
    """A Secret is not as this controller sealed it."""
    SWAPPED_AUTHORITY = "SwappedAuthority"
    """One of the two authorities is in the other's Secret."""
    BREAK_GLASS_KEY_IS_AUTHORITY = "BreakGlassKeyIsAuthority"
    """The policy names the key of one of the two authorities as a break-glass key. A certificate by it would open every
    node, whatever principals it has.
    """
    MASTER_SECRET_UNUSABLE = "MasterSecretUnusable"  # noqa: S105 - a reason
    """The Secret that the policy names as ``masterSecretRef`` does not exist, or holds no master secret. Going on
    without it would take the break-glass authority from the nodes.
    """
    NOT_KNOWN = "NotKnown"
    """The Secrets or the controller key could not be read, or no pass has been made."""


@dataclass(frozen=True, slots=True)
class NotAvailable:
    """Nothing may be signed."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class AvailableAuthorities:
    """A cluster's two authorities, as this controller made and sealed them."""

    user: UserAuthority = field(repr=False)
    host: HostAuthority = field(repr=False)
    trust: Trust
    """What nodes and clients should trust: these two, each followed by the second one of a rotation, and the policy's
    break-glass keys as user authorities."""
    user_created_at: datetime
    host_created_at: datetime
    renew_below: int = 0
    """A rotation waits for the next attested request of a node whose newest one reported a lower version of trust, and
    the trust bundle has the node make it now; 0 while none waits."""


SSHAuthoritiesOf: TypeAlias = Callable[[ClusterKey], AvailableAuthorities | NotAvailable]
"""The authorities of one Cluster. The answer holds for one signature: ask again for the next."""


class SSHAuthorities:
    """The authorities of all Clusters. Kept in memory: after a restart, the Secrets are read and verified again."""

    def __init__(self) -> None:
        self._known: dict[ClusterKey, AvailableAuthorities | NotAvailable] = {}
        self._wakes: list[Callable[[ClusterKey], None]] = []

    def on_change(self, wake: Callable[[ClusterKey], None]) -> None:
        """Call ``wake`` when other authorities of a Cluster count from now on, or none."""
        self._wakes.append(wake)

    def of(self, key: ClusterKey) -> AvailableAuthorities | NotAvailable:
        """Implements :data:`SSHAuthoritiesOf`."""
        return self._known.get(key, NotAvailable(Reason.NOT_KNOWN, "no pass over the Secrets has been made"))

    def has_looked(self, key: ClusterKey) -> bool:
        """Whether a pass over the Secrets has been made since the Cluster is served."""
        return key in self._known

    def offer(self, key: ClusterKey, authorities: AvailableAuthorities) -> None:
        """Have them sign from now on. Only after their seals were verified."""
        before = self._known.get(key)
        self._known[key] = authorities
        if not isinstance(before, AvailableAuthorities) or before.trust != authorities.trust:
            self._wake(key)

    def withhold(self, key: ClusterKey, why: NotAvailable) -> None:
        """Have nothing signed."""
        before = self._known.get(key)
        self._known[key] = why
        if before != why:
            self._wake(key)

    def forget(self, key: ClusterKey) -> None:
        """The Cluster is served no longer; nothing is signed."""
        if self._known.pop(key, None) is not None:
            self._wake(key)

    def _wake(self, key: ClusterKey) -> None:
        for wake in self._wakes:
            wake(key)


__all__ = ["AvailableAuthorities", "NotAvailable", "Reason", "SSHAuthorities", "SSHAuthoritiesOf"]
