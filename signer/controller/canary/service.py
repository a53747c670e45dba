"""Runs the canary of one workload cluster, and keeps what it has found.

A finding is about one Cluster object, one CA certificate and one address of the API server. It is kept in memory: after
a restart, one more request proves it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Final, TypeAlias

from attestors.net.rate_limiter import TokenBucket
from signer.audit.log import AuditLog, AuditLogUnavailable
from signer.authority import CACertificate, IssuanceRefused, IssuingSet, discovery_hashes
from signer.authority.canary_certificate import issue_canary
from signer.authority.errors import CertificateAuthorityUnavailable
from signer.controller.canary.journal import journal_canary
from signer.controller.telemetry.metrics_collector import ServiceGauge
from signer.decision.authority_secrets import AuthorityUnavailable
from signer.decision.authority_source import AuthoritySource
from signer.decision.authority_trust import NO_TRUST_PROOF, NoTrustProof, TrustProof
from signer.kube.backoff import Backoff
from signer.kube.canary import Finding, NotProven, NotTrusted, Trusted, try_canary
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError
from signer.kube.resource_limits import ResourceLimits
from signer.kube.resources import CONFIG_MAPS
from signer.model.cluster import ClusterKey
from signer.model.condition import CERTIFICATE_AUTHORITY_TRUSTED, PolicyCondition
from signer.model.decision import Deferred, printable
from signer.model.fields import mapping_of, text_of
from signer.model.reasons import Reason
from signer.store.caches import Caches

_LOG = logging.getLogger(__name__)
REFUSED_SECONDS: Final = 60.0
"""Time until the canary is tried again after the API server has refused it. A change of the CA's Secret is earlier."""
RETRY: Final = Backoff(base_seconds=1.0, maximum_seconds=10.0, jitter=0.3)
"""After an attempt that proved nothing."""
PATIENCE_SECONDS: Final = 2.0
"""How long a request waits for the first attempt."""
TRIES_AT_ONCE: Final = 5
TRY_SECONDS: Final = 10.0
"""Beyond ``TRIES_AT_ONCE``, one attempt in this time, however often policy, Cluster and Secrets change."""
_DEFERRED: Final = timedelta(seconds=60)
"""A finding wakes the requests earlier."""
_MAXIMUM_NAMED: Final = 4
_TRUSTED_LIST: Final = CONFIG_MAPS.object("extension-apiserver-authentication", "kube-system")
"""Each API server adds the CAs there whose client certificates it accepts, and removes none (apiserver
``pkg/server/options/authentication.go``)."""


@dataclass(frozen=True, slots=True)
class NotTried:
    """The canary has not been tried since the CA, the Cluster or the API server's address is another one."""


_NOT_TRIED: Final = NotTried()
_Finding: TypeAlias = Finding | NotTried


@dataclass(frozen=True, slots=True)
class _Subject:
    """What a finding is about."""

    cluster_uid: str
    certificate: CACertificate
    server: str
    server_name: str


class CanaryService:
    """Implements :class:`~signer.controller.cluster.service.ClusterService` and
    :class:`~signer.decision.authority_trust.AuthorityTrust` for one cluster.
    """

    name = "canary"

    def __init__(
        self,
        key: ClusterKey,
        *,
        source: AuthoritySource,
        caches: Caches,
        resource_limits: ResourceLimits,
        audit_log: AuditLog,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        random: Random,
    ) -> None:
        """``resource_limits`` are those of all workload clusters."""
        self._key = key
        self._source = source
        self._caches = caches
        self._resource_limits = resource_limits
        self._audit_log = audit_log
        self._changed: Callable[[], None] = lambda: None
        self._trusted: Callable[[], None] = lambda: None
        self._now = now
        self._monotonic = monotonic
        self._random = random
        self.proof: TrustProof | NoTrustProof = NO_TRUST_PROOF
        """See AuthorityTrust."""
        self._subject: _Subject | None = None
        self._finding: _Finding = _NOT_TRIED
        self._failures = 0
        self._server: ClusterConnection | None = None
        self._wanted = asyncio.Event()
        self._found = asyncio.Event()
        self._bucket = TokenBucket(TRIES_AT_ONCE, TRY_SECONDS, monotonic)
        source.on_change(self._wanted.set)

    def on_change(self, changed: Callable[[], None], trusted: Callable[[], None]) -> None:
        """Call ``changed`` when there is another finding, and also ``trusted`` when it is that the CA is trusted.

        The text of any other finding may be the API server's, so it must not wake the requests.
        """
        self._changed, self._trusted = changed, trusted

    # AuthorityTrust

    async def require_trusted(self, authority: IssuingSet) -> None:
        """See AuthorityTrust."""
        finding = self._finding_on(authority)
        if isinstance(finding, NotTried):
            finding = await self._first_finding_on(authority)
        match finding:
            case Trusted():
                return
            case NotTrusted(message):
                raise Deferred(Reason.CERTIFICATE_AUTHORITY_NOT_TRUSTED, message, _DEFERRED)
            case NotProven(message):
                raise Deferred(Reason.CERTIFICATE_AUTHORITY_NOT_PROVEN, message, _DEFERRED)
            case NotTried():
                message = f"the canary of CA {_hash_of(authority)} has no answer yet"
                raise Deferred(Reason.CERTIFICATE_AUTHORITY_NOT_PROVEN, message, _DEFERRED)

    def _finding_on(self, authority: IssuingSet) -> _Finding:
        subject = self._subject_of(authority)
        return self._finding if subject is not None and subject == self._subject else _NOT_TRIED

    async def _first_finding_on(self, authority: IssuingSet) -> _Finding:
        """Let the service try the canary, and wait for its finding for a while."""
        if self._subject != self._subject_of(authority):
            self._wanted.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while isinstance(self._finding_on(authority), NotTried):
                    self._found.clear()
                    await self._found.wait()
        return self._finding_on(authority)

    def _subject_of(self, authority: IssuingSet) -> _Subject | None:
        server, cluster = self._server, self._caches.clusters.get(self._key.namespace, self._key.name)
        if server is None or cluster is None:
            return None
        return _Subject(cluster.uid, authority.client.certificate, server.server, server.tls_server_name or "")

    # ClusterService

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """See ClusterService."""
        return (self._condition(),)

    def gauges(self) -> Sequence[ServiceGauge]:
        """See ClusterService: the condition has a metric already."""
        return ()

    def wake(self) -> None:
        """See ClusterService."""
        if not isinstance(self._finding, Trusted):
            self._wanted.set()

    async def run(self, client: Client) -> None:
        """See ClusterService."""
        self._server = client.server
        self._found.set()  # what was found at this address before counts again
        pause: float | None = 0.0
        try:
            while True:
                await self._until_wanted(pause)
                pause = await self._look(client)
        finally:
            self.proof = NO_TRUST_PROOF
            self._server = None  # the next connection may be to another API server

    async def _until_wanted(self, seconds: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wanted.wait()

    async def _look(self, client: Client) -> float | None:
        """Try the canary if that is due. Returns the seconds until the next attempt, or None for no further one."""
        # The API server's refusal may come from a CA that has changed since it was read.
        not_before = self._monotonic() if isinstance(self._finding, NotTrusted) else float("-inf")
        try:
            authority = await self._source.authority(not_before=not_before)
        except AuthorityUnavailable:
            self._wanted.clear()
            return REFUSED_SECONDS  # condition CertificateAuthorityAvailable says why; a change of the CA is earlier
        self._wanted.clear()
        subject = self._subject_of(authority)
        if subject is None:
            return REFUSED_SECONDS  # the Cluster is gone: this task ends soon
        if subject != self._subject:
            self._subject, self._finding, self._failures = subject, _NOT_TRIED, 0
            self.proof = NO_TRUST_PROOF
        if isinstance(self._finding, Trusted):
            self.proof = TrustProof(authority, subject.cluster_uid)
            return None
        await asyncio.sleep(self._bucket.take())
        finding = await self._try(client, authority)
        if isinstance(finding, Trusted):
            self.proof = TrustProof(authority, subject.cluster_uid)
        self._keep(finding)
        match finding:
            case Trusted():
                return None
            case NotTrusted():
                return REFUSED_SECONDS
            case NotProven():
                self._failures += 1
                return RETRY.delay(self._failures - 1, self._random)

    def _keep(self, finding: Finding) -> None:
        before, self._finding = self._finding, finding
        self._found.set()
        if finding != before:
            self._changed()
            if isinstance(finding, Trusted):
                self._trusted()

    async def _try(self, client: Client, authority: IssuingSet) -> Finding:
        try:
            canary = await asyncio.to_thread(issue_canary, authority, self._now())
        except (CertificateAuthorityUnavailable, IssuanceRefused) as error:
            return NotProven(f"no canary can be issued: {error}")
        try:
            await journal_canary(canary, client.server, _hash_of(authority), self._key, self._audit_log, self._now())
        except AuditLogUnavailable as error:
            return NotProven(f"the canary is not in the audit log: {error}")
        finding = await try_canary(canary, client.server, authority, self._resource_limits)
        if isinstance(finding, Trusted):
            return finding
        _LOG.warning(
            "the API server has not accepted the canary",
            extra={"cluster": str(self._key), "caCertHash": _hash_of(authority), "error": finding.message},
        )
        authority_name = f"certificates of CA {_hash_of(authority)}"
        if isinstance(finding, NotProven):
            message = f"nothing shows yet that the API server accepts client {authority_name}: {finding.message}"
            return NotProven(printable(message))
        return NotTrusted(
            printable(
                f"the API server refuses client {authority_name} ({finding.message}); {await self._accepted_by(client)}"
            )
        )

    async def _accepted_by(self, client: Client) -> str:
        """The CAs whose client certificates the API server accepts, for people."""
        try:
            config_map = await client.get(_TRUSTED_LIST)
        except ApiError as error:
            return f"which CAs it accepts is unknown: {error}"
        hashes = discovery_hashes(text_of(mapping_of(config_map, "data"), "client-ca-file").encode("utf-8"))
        if not hashes:
            return "which CAs it accepts is unknown"
        return f"it accepts those of {', '.join(hashes[:_MAXIMUM_NAMED])}"

    def _condition(self) -> PolicyCondition:
        kind = CERTIFICATE_AUTHORITY_TRUSTED
        match self._finding:
            case Trusted(serving_chains):
                serving = (
                    "its own certificate chains to the CA that signs serving certificates"
                    if serving_chains
                    else "its own certificate does not chain to the CA that signs serving certificates, so nothing "
                    "shows that it accepts those"
                )
                return PolicyCondition(
                    kind, True, "Trusted", f"the API server accepts client certificates of the CA; {serving}"
                )
            case NotTrusted(message):
                return PolicyCondition(kind, False, str(Reason.CERTIFICATE_AUTHORITY_NOT_TRUSTED), message)
            case NotProven(message):
                return PolicyCondition(kind, None, str(Reason.CERTIFICATE_AUTHORITY_NOT_PROVEN), message)
            case NotTried():
                return PolicyCondition(kind, None, "NotTried", "the canary has not been tried yet")


def _hash_of(authority: IssuingSet) -> str:
    return authority.client.certificate.public_key_hash
