"""The source of a cluster's CAs: Secrets that are read by name, and kept for a minute.

Secrets are not watched: that grant would give the controller every Secret of the management cluster. Which Secrets hold
the CAs depends on policy and control plane (:mod:`signer.model.authority_suffixes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Protocol, TypeAlias

from signer.authority import IssuingSet
from signer.configuration import AllowedAuthorities
from signer.decision.authority_secrets import (
    Answer,
    AuthoritySecrets,
    AuthorityUnavailable,
    AuthorityUnreachable,
    LoadAuthority,
)
from signer.kube.calls import Get
from signer.kube.errors import ApiError, Forbidden
from signer.model.authority_suffixes import (
    BY_CONTROL_PLANE,
    ONE_AUTHORITY,
    AfterRotation,
    AuthorityChoice,
    AuthoritySuffixes,
    ByExistence,
    FormerAuthorities,
    NoRecord,
    NotRotated,
    Published,
    RotatingAuthorities,
    RotationOfAuthorities,
    SeparateNodeClients,
    suffixes_for,
)
from signer.model.cluster import ClusterKey, ClusterView
from signer.model.decision import Deferred
from signer.model.policy import NodeClientAuthority, Policy
from signer.store.caches import Caches, UnreadablePolicy

KEPT_SECONDS: Final = 60.0
"""Time for which a CA is used before its Secret is read again."""
FAILURE_KEPT_SECONDS: Final = 5.0

_Policy: TypeAlias = Policy | UnreadablePolicy | None


class ChooseSecrets(Protocol):
    """Names the Secrets of the cluster's CAs. Called for each use of the CAs, so it makes no calls."""

    def __call__(self) -> AuthorityChoice:
        """The Secrets' suffixes.

        Raises:
            AuthorityUnavailable: the operator does not allow those that the policy names.
        """
        ...


class KnowsRotation(Protocol):
    """Knows what a rotation says about one cluster's CAs. Makes no calls."""

    def __call__(self, key: ClusterKey) -> RotationOfAuthorities:
        """What the rotation's record says now.

        Raises:
            Deferred: the controller key is not available.
        """
        ...


def no_rotation(key: ClusterKey) -> RotationOfAuthorities:
    """Where the rotation of CAs is switched off."""
    return NotRotated()


@dataclass(slots=True)
class ChosenSecrets:
    """Implements :class:`ChooseSecrets` by the cluster's policy, within the operator's bounds, by its Cluster, and by
    the rotation of its CAs.
    """

    key: ClusterKey
    caches: Caches
    allowed: AllowedAuthorities
    rotation: KnowsRotation = no_rotation
    _chosen: tuple[_Policy, ClusterView | None, AuthoritySuffixes | ByExistence] | None = field(
        default=None, init=False
    )
    """The policy and Cluster that were looked at last, and their choice."""

    def __call__(self) -> AuthorityChoice:
        """See ChooseSecrets."""
        before = self._without_rotation()
        try:
            rotation = self.rotation(self.key)
        except Deferred as error:  # without the controller key, no record says who signs
            raise AuthorityUnreachable(str(error.defer.reason), error.defer.message) from error
        if isinstance(rotation, NotRotated) or before != ONE_AUTHORITY:
            return before
        if isinstance(rotation, RotatingAuthorities) or (
            isinstance(rotation, SeparateNodeClients) and self._is_separate()
        ):
            return rotation
        if isinstance(rotation, NoRecord):
            return AfterRotation(before, frozenset(), published=Published.READ)
        accepted = rotation.also_accepted if isinstance(rotation, FormerAuthorities) else ()
        return AfterRotation(before, rotation.retired, accepted)

    def _is_separate(self) -> bool:
        """Whether the policy still has a node-client authority sign."""
        policy = self.caches.policies.get(self.key.namespace, self.key.name)
        return isinstance(policy, Policy) and policy.node_client_authority is NodeClientAuthority.SEPARATE

    def _without_rotation(self) -> AuthoritySuffixes | ByExistence:
        policy = self.caches.policies.get(self.key.namespace, self.key.name)
        cluster = self.caches.clusters.get(self.key.namespace, self.key.name)
        if self._chosen is None or self._chosen[0] is not policy or self._chosen[1] is not cluster:
            self._chosen = policy, cluster, self._choose(policy, cluster)
        return self._chosen[2]

    def _choose(self, policy: _Policy, cluster: ClusterView | None) -> AuthoritySuffixes | ByExistence:
        choice = policy.certificate_authorities if isinstance(policy, Policy) else BY_CONTROL_PLANE
        if isinstance(choice, AuthoritySuffixes):
            allowed = self.allowed.allowed_in(self.key.namespace)
            for suffix in (choice.client, choice.serving):
                if suffix not in allowed:
                    raise AuthorityUnavailable(
                        "CertificateAuthorityNotAllowed",
                        f"spec.certificateAuthorities names suffix {suffix}, which this controller does not allow in "
                        f"namespace {self.key.namespace}: its configuration file says which, in certificateAuthorities",
                    )
        return suffixes_for(choice, "" if cluster is None else cluster.control_plane_kind)


@dataclass(frozen=True, slots=True)
class _Kept:
    choice: AuthorityChoice
    looked_at: float
    """When the last attempt to read began."""
    read_at: float
    """When the read that returned ``answer`` began; never later than ``looked_at``."""
    answer: Answer


class AuthoritySource:
    """The CAs of one workload cluster."""

    def __init__(
        self,
        client: Get,
        cluster: ClusterKey,
        *,
        choose: ChooseSecrets,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        load: LoadAuthority | None = None,
    ) -> None:
        """``load`` creates the CA from the Secret's data if private keys are not available."""
        self._secrets = AuthoritySecrets(client, cluster, now=now, monotonic=monotonic, load=load)
        self._cluster = cluster
        self._choose = choose
        self._monotonic = monotonic
        self._kept: _Kept | None = None
        self._reading = asyncio.Lock()
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever a read gives other CAs than the read before."""
        self._listeners.append(changed)

    def last_read(self) -> tuple[IssuingSet, ...]:
        """The CAs that were last read; empty if none could be read."""
        kept = self._kept
        return (kept.answer,) if kept is not None and isinstance(kept.answer, IssuingSet) else ()

    def expiry(self) -> tuple[datetime, ...]:
        """When the first of the CAs that were last read expires; empty if none could be read."""
        return tuple(one.not_after for one in self.last_read())

    async def authority(self, *, not_before: float = float("-inf")) -> IssuingSet:
        """The CAs for signing and for verification, from a read of the Secrets at ``not_before`` (of the monotonic
        clock) or later.

        Raises:
            AuthorityUnavailable: a Secret is missing or unusable, or not allowed, or the controller may not read it.
            AuthorityUnreachable: the management cluster cannot be asked, and no recent enough read is cached.
        """
        choice = self._choose()
        kept = self._kept
        if kept is None or self._is_stale(kept, choice, not_before):
            async with self._reading:  # one read for all concurrent callers
                kept = self._kept
                if kept is None or self._is_stale(kept, choice, not_before):
                    kept = await self._read_and_keep(choice, not_before)
        if kept.read_at < not_before:
            message = f"the CA of Cluster {self._cluster} cannot be read now"
            raise AuthorityUnreachable("ManagementClusterUnreachable", message)
        if isinstance(kept.answer, AuthorityUnavailable):
            raise type(kept.answer)(kept.answer.reason, str(kept.answer))
        return kept.answer

    def _is_stale(self, kept: _Kept, choice: AuthorityChoice, not_before: float) -> bool:
        if kept.read_at < not_before or kept.choice != choice:
            return True
        return self._monotonic() - kept.looked_at > _kept_seconds(kept)

    async def _read_and_keep(self, choice: AuthorityChoice, not_before: float) -> _Kept:
        before = self._kept
        kept = self._kept = await self._read(before, choice, not_before)
        if before is None or kept.answer is not before.answer:
            for changed in self._listeners:
                changed()
        return kept

    async def _read(self, before: _Kept | None, choice: AuthorityChoice, not_before: float) -> _Kept:
        read_at = self._monotonic()
        try:
            answer = await self._secrets.read(choice, not_before=not_before)
        except ApiError as error:
            # An outage of the management cluster must not stop renewals; a denied read must.
            usable = before is not None and before.choice == choice and isinstance(before.answer, IssuingSet)
            if before is not None and usable and not isinstance(error, Forbidden):
                return replace(before, looked_at=read_at)
            failure = AuthorityUnavailable if isinstance(error, Forbidden) else AuthorityUnreachable
            unreachable = failure(
                "ManagementClusterUnreachable", f"the Secrets of the CA of Cluster {self._cluster}: {error}"
            )
            return _Kept(choice, read_at, read_at, unreachable)
        return _Kept(choice, read_at, read_at, answer)


def _kept_seconds(kept: _Kept) -> float:
    return KEPT_SECONDS if isinstance(kept.answer, IssuingSet) else FAILURE_KEPT_SECONDS
