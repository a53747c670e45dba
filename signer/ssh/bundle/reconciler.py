"""Publishes the trust bundle of one workload cluster while it is connected, and says whether nodes can learn of it.

It writes one ConfigMap, and the grant by which nodes read it. While authorities or revocations are not known, it writes
nothing: the published bundle stays, and so does what nodes have.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Final, TypeAlias

from attestors.wire.statement import ClusterIdentity, MalformedStatement
from attestors.wire.statement.names import NODE_ACCESS_CONFIG_MAP
from signer.authority import CertificateAuthority
from signer.authority.errors import AuthorityError
from signer.kube.backoff import Backoff
from signer.kube.calls import GetCreateReplace
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Conflict, Forbidden
from signer.kube.supervision import until_wanted
from signer.model.cluster import ClusterKey
from signer.model.condition import ConditionType, PolicyCondition
from signer.model.decision import Deferred, printable
from signer.rotation.statements.readers import ensure_readers
from signer.ssh.available import AvailableAuthorities, NotAvailable, Reason, SSHAuthoritiesOf
from signer.ssh.bundle.content import BundleFacts, TooManyRevocations, renew_spread_seconds
from signer.ssh.bundle.publishing import (
    NothingPublished,
    PublishedBundle,
    publish_bundle,
    published_before,
)
from signer.ssh.revocations import PublishedRevocations, RevocationsOf, RevocationsUnknown
from signer.ssh.secrets import Absent
from signer.store.caches import Caches
from signer.store.statements import NotPublished

_LOG = logging.getLogger(__name__)
IDLE_SECONDS: Final = 600.0
"""While there is nothing to publish; a change of the authorities or of the policy is seen at once."""
VERIFIED_SECONDS: Final = 300.0
"""Between looks at what is published."""
WAITING: Final = Backoff(base_seconds=5.0, maximum_seconds=VERIFIED_SECONDS, jitter=0.2)

SSH_TRUST_PUBLISHED: Final = ConditionType("SSHTrustPublished", lambda policy: False)
"""It never counts toward Ready: kubelets get their certificates all the same."""
PUBLISHED: Final = "Published"
AUTHORITIES_NOT_AVAILABLE: Final = "AuthoritiesNotAvailable"
REVOCATIONS_UNKNOWN: Final = "RevocationsUnknown"
TOO_MANY_REVOCATIONS: Final = "TooManyRevocations"
FORBIDDEN: Final = "Forbidden"
FAILED: Final = "Failed"
_STAYS: Final = "what nodes have stays as it is"


class SignersUnavailable(Exception):
    """No CA by which nodes know the cluster can sign now; the message says why."""


Signers: TypeAlias = Callable[[], Awaitable[tuple[CertificateAuthority, ...]]]
"""The CAs by which a node may know the cluster.

Raises:
    SignersUnavailable: they cannot sign now.
"""


@dataclass(frozen=True, slots=True)
class _NothingToShow:
    """The policy does not turn SSH on, or no pass has been made."""


@dataclass(frozen=True, slots=True)
class _NotNow:
    """The bundle is not published as it should be."""

    reason: str
    message: str


class BundleReconciler:
    """Looks after the trust bundle of one workload cluster."""

    name: Final = "SSH trust bundle"

    def __init__(
        self,
        key: ClusterKey,
        *,
        caches: Caches,
        authorities_of: SSHAuthoritiesOf,
        revocations_of: RevocationsOf,
        published: PublishedRevocations,
        signers: Signers,
        changed: Callable[[], None],
        now: Callable[[], datetime],
        random: Random,
    ) -> None:
        """``published`` is told what is published. ``changed`` is called when conditions or status have changed."""
        self._key = key
        self._caches = caches
        self._authorities_of = authorities_of
        self._published_revocations = published
        self._revocations_of = revocations_of
        self._signers = signers
        self._changed = changed
        self._now = now
        self._random = random
        self._wanted = asyncio.Event()
        self._waits = 0
        self._published: PublishedBundle | NothingPublished = NothingPublished()
        self._shown: PublishedBundle | _NotNow | _NothingToShow = _NothingToShow()
        self._readers_ensured = False

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """For the policy's status."""
        match self._shown:
            case _NothingToShow():
                return ()
            case _NotNow(reason, message):
                return (PolicyCondition(SSH_TRUST_PUBLISHED, False, reason, printable(message)),)
            case PublishedBundle() as found:
                message = f"version {found.sequence}, trust version {found.payload.trust.version}"
                return (PolicyCondition(SSH_TRUST_PUBLISHED, True, PUBLISHED, message),)

    @property
    def status(self) -> JsonObject:
        """For ``status.ssh`` of the policy; empty unless the bundle is published."""
        found = self._shown
        return {"bundleVersion": found.sequence} if isinstance(found, PublishedBundle) else {}

    @property
    def is_published(self) -> bool | Absent:
        """For the metric; Absent if there is nothing to show."""
        return Absent() if isinstance(self._shown, _NothingToShow) else isinstance(self._shown, PublishedBundle)

    def wake(self) -> None:
        """The authorities, the Cluster or its policy have changed."""
        self._wanted.set()

    async def run(self, client: GetCreateReplace) -> None:
        """Work until cancelled."""
        self._published_revocations.begin(self._key)
        while True:
            self._wanted.clear()
            before = (tuple(self.conditions), self.status)
            pause = await self.look(client)
            if (tuple(self.conditions), self.status) != before:
                self._changed()
            await until_wanted(self._wanted, pause)

    async def look(self, client: GetCreateReplace) -> float:
        """One pass; returns how many seconds to wait before the next one."""
        found = self._authorities_of(self._key)
        if isinstance(found, NotAvailable):
            return self._without_authorities(found)
        try:
            published = await self._publish(client, found)
        except Conflict:
            return self._failed(FAILED, "another client writes the ConfigMap")
        except Forbidden as error:
            return self._failed(FORBIDDEN, f"{error}; grant what deploy/rbac/workload-ssh.yaml has")
        except RevocationsUnknown as error:
            return self._failed(REVOCATIONS_UNKNOWN, str(error))
        except TooManyRevocations as error:
            return self._failed(TOO_MANY_REVOCATIONS, str(error))
        except (ApiError, Deferred, NotPublished, SignersUnavailable, MalformedStatement, AuthorityError) as error:
            return self._failed(FAILED, str(error))
        self._published = self._shown = published
        self._waits = 0
        if published.written:
            _LOG.info(
                "the SSH trust bundle is published",
                extra={"cluster": str(self._key), "version": published.sequence},
            )
        return VERIFIED_SECONDS

    async def _publish(self, client: GetCreateReplace, found: AvailableAuthorities) -> PublishedBundle:
        cluster = self._caches.clusters.get(self._key.namespace, self._key.name)
        if cluster is None:
            raise RevocationsUnknown("there is no Cluster")
        self._caches.require_current(self._key.namespace)
        identity = ClusterIdentity(self._key.namespace, self._key.name, cluster.uid)
        keys = self._caches.authentic.statement_keys()
        if not self._published_revocations.is_found(self._key):
            self._published_revocations.found(self._key, await published_before(client, identity, keys))
        facts = BundleFacts(
            identity,
            found.trust,
            found.renew_below,
            renew_spread_seconds(found.renew_below, self._nodes()),
            self._revocations_of(self._key),
            await self._signers(),
        )
        await self._ensure_readers(client)
        published = await publish_bundle(client, facts, keys, self._now(), self._published)
        self._published_revocations.published(self._key, published.payload)
        return published

    def _nodes(self) -> int:
        """How many the Cluster has, or will have."""
        machines = (self._caches.machines_of(self._key), self._caches.instances_of(self._key))
        return sum(1 for one in machines for _ in one)

    async def _ensure_readers(self, client: GetCreateReplace) -> None:
        """Once in each process. A kubeconfig that is no administrator's may not create Roles: the manifest with its own
        grants has this one.
        """
        if not self._readers_ensured:
            with contextlib.suppress(Forbidden):
                await ensure_readers(client, NODE_ACCESS_CONFIG_MAP)
            self._readers_ensured = True

    def _without_authorities(self, found: NotAvailable) -> float:
        if found.reason is Reason.NOT_CHOSEN or (
            found.reason is Reason.NOT_KNOWN and isinstance(self._shown, _NothingToShow)
        ):
            self._shown = _NothingToShow()
        else:
            self._shown = _NotNow(AUTHORITIES_NOT_AVAILABLE, f"{found.reason}: {found.message}; {_STAYS}")
        return IDLE_SECONDS

    def _failed(self, reason: str, message: str) -> float:
        said = printable(message)
        _LOG.warning(
            "the SSH trust bundle is not published",
            extra={"cluster": str(self._key), "reason": reason, "error": said},
        )
        self._shown = _NotNow(reason, f"{said}; {_STAYS}")
        self._waits += 1
        return WAITING.delay(self._waits - 1, self._random)


__all__ = ["BundleReconciler", "Signers", "SignersUnavailable"]
