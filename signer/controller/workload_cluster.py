"""One workload cluster, isolated from all others: its connection, its watch, its queue, its workers.

Whatever its API server does (hang, lie, answer garbage) costs this task only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from random import SystemRandom
from typing import Final

from signer.authority import IssuanceRefused
from signer.controller import conditions as condition_types
from signer.controller.adjudicator import Adjudication, Adjudicator, deferral_of
from signer.controller.announcer import Announcer
from signer.controller.authority_source import (
    AuthoritySource,
    AuthorityUnavailable,
    UnreadableSecret,
    decode_secret,
)
from signer.controller.conditions import PolicyCondition
from signer.controller.pending import PendingRequests, Put, request_name
from signer.controller.publisher import Publisher, StaleCertificateAuthority
from signer.controller.surroundings import Surroundings
from signer.controller.surveyor import Surveyor
from signer.kube.backoff import Backoff
from signer.kube.client import Client, JsonObject
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError, Conflict, NotFound, Unauthorized
from signer.kube.kubeconfig import KubeconfigRefused, parse_kubeconfig
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, SECRETS
from signer.kube.tls import TlsMaterialRefused
from signer.kube.watch import list_and_watch
from signer.kube.workqueue import QueueClosed, WorkQueue
from signer.model.cluster import ClusterKey
from signer.model.decision import Approve, Challenge, Decision, Defer, Deny, Fail, Ignore, Refused
from signer.model.reasons import Reason
from signer.model.signing_request import SigningRequest
from signer.rules.request import claimed_provider_id
from signer.store.inventory import ALL_PROVIDER_IDS, ProviderIDs

_LOG = logging.getLogger(__name__)
SURVEY_SECONDS: Final = 60.0
"""How often CA, attestors and connection are looked at when nothing asks for them."""
RECONNECT: Final = Backoff(base_seconds=0.5, maximum_seconds=30.0, jitter=0.5)
"""Pauses between connections. A server that answers 401 to everything costs one connection each half minute."""
PROVEN_SECONDS: Final = 30.0
"""A connection whose watch was well for this long proves that the next one need not wait."""
FAILURES_BEFORE_RECONNECT: Final = 5
"""Failed lists or watches in a row after which the kubeconfig Secret is read again."""
_REQUESTS_LEFT_OUT: Final = "RequestsLeftOut"


class _Reconnect(Exception):
    """The connection is to be made anew, from the Secret."""


class WorkloadCluster:
    """The controller's side of one workload cluster; a sink of its CSR watch."""

    def __init__(self, key: ClusterKey, surroundings: Surroundings) -> None:
        self.key = key
        self._around = surroundings
        self._authority_source = AuthoritySource(
            surroundings.management, key, now=surroundings.now, monotonic=surroundings.monotonic
        )
        self._adjudicator = Adjudicator(
            key,
            configuration=surroundings.configuration,
            registry=surroundings.registry,
            inventory=surroundings.inventory,
            reservations=surroundings.reservations,
            records=surroundings.records,
            authority_source=self._authority_source,
            now=surroundings.now,
            monotonic=surroundings.monotonic,
        )
        self._surveyor = Surveyor(key, surroundings, self._authority_source)
        self._announcer = Announcer(key, surroundings)
        self._queue: WorkQueue[str] = WorkQueue()
        self._pending = PendingRequests(key)
        self._reachable = PolicyCondition(
            condition_types.WORKLOAD_CLUSTER_REACHABLE, None, "Connecting", "not tried yet"
        )
        self._failures = 0
        self._reconnect = asyncio.Event()
        self._survey_wanted = asyncio.Event()
        self._authority_was_available = True
        self._stopped = asyncio.Event()
        self._attempts = 0
        self._random = SystemRandom()
        self._well_since: float | None = None

    # The life of the task

    async def run(self) -> None:
        """Serve the cluster until cancelled, or until :meth:`stop` was called and what was under way is done."""
        async with asyncio.TaskGroup() as tasks:
            survey = tasks.create_task(self._survey_for_ever())
            while not self._stopped.is_set():
                try:
                    await self._serve_one_connection()
                except _Reconnect:
                    self._reconnect.clear()
                    await self._pause()
            survey.cancel()

    async def _pause(self) -> None:
        """Wait before the next connection, longer each time, until one has proved itself."""
        seconds = RECONNECT.delay(self._attempts, self._random)
        self._attempts += 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()

    def close(self) -> None:
        """The cluster is no longer served: nothing shall be said of it any more."""
        self._around.metrics.forget_cluster(str(self.key))

    def stop(self) -> None:
        """Take no more work; ``run`` returns when what is under way is done."""
        self._stopped.set()
        self._queue.shutdown()
        self._reconnect.set()

    def wake(self, provider_ids: ProviderIDs) -> None:
        """Something that requests may wait for has changed."""
        names = self._pending if provider_ids == ALL_PROVIDER_IDS else self._pending.claiming(provider_ids)
        for name in names:
            self._queue.add(name)
        if provider_ids == ALL_PROVIDER_IDS:
            self._survey_wanted.set()

    async def _serve_one_connection(self) -> None:
        connection = await self._connection()
        try:
            client = Client(connection)
        except TlsMaterialRefused as error:
            raise self._unreachable("KubeconfigRefused", str(error)) from error
        self._pending.list_begins()
        async with client:
            publisher = Publisher(client, self._around.now)
            workers = [
                asyncio.create_task(self._work(client, publisher), name=f"{self.key} worker {number}")
                for number in range(self._around.configuration.workers_per_cluster)
            ]
            watch = asyncio.create_task(
                list_and_watch(
                    client,
                    CERTIFICATE_SIGNING_REQUESTS.collection(),
                    sink=self,
                    keep=self._pending.holds_of_list,
                ),
                name=f"{self.key} watch",
            )
            reconnect = asyncio.create_task(self._reconnect.wait())
            try:
                await asyncio.wait({watch, reconnect}, return_when=asyncio.FIRST_COMPLETED)
                if watch.done():
                    watch.result()
                raise _Reconnect
            finally:
                watch.cancel()
                reconnect.cancel()
                if self._stopped.is_set():
                    await asyncio.gather(*workers, return_exceptions=True)  # each ends after what it has in hand
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(watch, reconnect, *workers, return_exceptions=True)

    async def _connection(self) -> ClusterConnection:
        """The connection that the kubeconfig Secret gives.

        Raises:
            _Reconnect: there is none; the condition says why.
        """
        name = f"{self.key.name}-kubeconfig"
        try:
            secret = await self._around.management.get(SECRETS.object(name, self.key.namespace))
            return parse_kubeconfig(decode_secret(secret).get("value", b""))
        except NotFound:
            raise self._unreachable("KubeconfigMissing", f"Secret {self.key.namespace}/{name} does not exist") from None
        except (KubeconfigRefused, UnreadableSecret) as error:
            raise self._unreachable("KubeconfigRefused", f"Secret {self.key.namespace}/{name}: {error}") from error
        except ApiError as error:
            raise self._unreachable("ManagementClusterUnreachable", str(error)) from error

    def _unreachable(self, reason: str, message: str) -> _Reconnect:
        self._set_reachable(PolicyCondition(condition_types.WORKLOAD_CLUSTER_REACHABLE, False, reason, message))
        return _Reconnect()

    def _set_reachable(self, condition: PolicyCondition) -> None:
        if condition != self._reachable:
            level, text = logging.WARNING, "workload cluster cannot be reached"
            if condition.reason == _REQUESTS_LEFT_OUT:
                text = "workload cluster has more requests than are kept"
            elif condition.met:
                level, text = logging.INFO, "workload cluster is reachable"
            _LOG.log(
                level,
                text,
                extra={"cluster": str(self.key), "reason": condition.reason, "detail": condition.message},
            )
            self._reachable = condition
            self._survey_wanted.set()
        self._around.metrics.reachable.labels(str(self.key)).set(condition.met is True)

    # The watch's sink

    def replaced(self, objects: Sequence[JsonObject]) -> None:
        """All CSRs of the cluster as they are now."""
        left_out = self._pending.list_ends()
        names = {request_name(manifest) for manifest in objects}
        for name in self._pending:
            if name not in names:
                self._drop(name)
        for manifest in objects:
            self.applied(manifest)
        self._pending.left_out |= left_out

    def applied(self, item: JsonObject) -> None:
        """A CSR is new or has changed."""
        self._heard()
        name = request_name(item)
        put = self._pending.put(item) if self._pending.concerns_us(item) else Put.UNUSABLE
        if put is not Put.KEPT:
            self._drop(name)
            if put is Put.LEFT_OUT:
                self._set_reachable(self._watching())
            return
        self._queue.add(name)
        self._around.metrics.pending.labels(str(self.key)).set(len(self._pending))

    def removed(self, item: JsonObject) -> None:
        """A CSR is gone."""
        self._heard()
        self._drop(request_name(item))

    def _heard(self) -> None:
        """An event says as well as a bookmark does, and up to a minute earlier, that the watch is well again."""
        if self._reachable.met is not True:
            self.synced()

    def synced(self) -> None:
        """List or watch is well."""
        self._failures = 0
        now = self._around.monotonic()
        if self._well_since is None:
            self._well_since = now
        elif now - self._well_since >= PROVEN_SECONDS:
            self._attempts = 0
        self._set_reachable(self._watching())

    def _watching(self) -> PolicyCondition:
        kind = condition_types.WORKLOAD_CLUSTER_REACHABLE
        if self._pending.left_out:
            return PolicyCondition(
                kind, True, _REQUESTS_LEFT_OUT, "more requests wait than are kept; they are listed again later"
            )
        return PolicyCondition(kind, True, "Watching", "its requests are watched")

    def failed(self, error: ApiError, retry_in_seconds: float) -> None:
        """List or watch failed; the loop tries again by itself, but new credentials need a new connection."""
        self._failures += 1
        self._well_since = None
        self._pending.list_begins()
        self._set_reachable(
            PolicyCondition(condition_types.WORKLOAD_CLUSTER_REACHABLE, False, type(error).__name__, f"{error}")
        )
        if isinstance(error, Unauthorized) or self._failures >= FAILURES_BEFORE_RECONNECT:
            self._failures = 0
            self._reconnect.set()

    def _drop(self, name: str) -> None:
        self._pending.drop(name)
        self._around.metrics.pending.labels(str(self.key)).set(len(self._pending))
        self._announcer.forget(name)
        self._queue.discard(name)
        if self._pending.has_room_again:
            self._reconnect.set()  # a new connection begins with a list

    # The workers

    async def _work(self, client: Client, publisher: Publisher) -> None:
        with contextlib.suppress(QueueClosed):
            while True:
                name = await self._queue.get()
                try:
                    await self._handle(client, publisher, name)
                except Exception as error:  # noqa: BLE001 - one request's fault must not end the worker; it waits
                    _LOG.error("unexpected fault", exc_info=error, extra={"cluster": str(self.key), "csr": name})
                    self._around.metrics.decided(str(self.key), "", Defer.__name__, Reason.INTERNAL_ERROR)
                    if self._pending.get(name) is not None:
                        self._queue.retry(name)
                finally:
                    self._queue.done(name)

    async def _handle(self, client: Client, publisher: Publisher, name: str) -> None:
        manifest = self._pending.get(name)
        if manifest is None:
            return
        started = self._around.monotonic()
        adjudication = await self._adjudicator.adjudicate(manifest)
        decision = adjudication.decision
        try:
            await self._carry_out(publisher, manifest, adjudication)
        except NotFound:
            self._drop_this(name, manifest)
            return
        except Conflict:
            await self._read_again(client, name, manifest)
            return
        except StaleCertificateAuthority:
            decision = Defer(Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE, "the certificate authority has changed")
        except AuthorityUnavailable as error:
            decision = Defer(Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE, str(error))
        except IssuanceRefused as error:
            decision = Defer(Reason.INTERNAL_ERROR, f"the certificate would be a bad one: {error}")
        except ApiError as error:
            decision = deferral_of(Reason.WORKLOAD_CLUSTER_UNREACHABLE, error)
        self._conclude(name, manifest, adjudication, decision)
        self._around.metrics.handling_seconds.labels(type(decision).__name__).observe(
            self._around.monotonic() - started
        )

    async def _carry_out(self, publisher: Publisher, manifest: JsonObject, adjudication: Adjudication) -> None:
        match adjudication.decision:
            case Approve() as decision:
                if not isinstance(adjudication.parsed, SigningRequest):
                    raise TypeError("only a request that was read completely can be approved")
                authority = await self._authority_source.authority()
                await publisher.approve_and_sign(manifest, adjudication.parsed, decision, authority)
            case Deny() | Challenge() as decision:
                await publisher.deny(manifest, decision)
            case Fail() as decision:
                await publisher.fail(manifest, decision)
            case Defer() | Ignore():
                pass

    async def _read_again(self, client: Client, name: str, manifest: JsonObject) -> None:
        """The CSR changed while it was judged: judge what it is now."""
        try:
            current = await client.get(CERTIFICATE_SIGNING_REQUESTS.object(name))
        except NotFound:
            self._drop_this(name, manifest)
        except ApiError:
            if self._pending.is_still(name, manifest):
                self._queue.retry(name)
        else:
            # What the watch said meanwhile, that it is gone or another one, is not older than this answer.
            if self._pending.is_still(name, manifest):
                self.applied(current)

    def _conclude(self, name: str, manifest: JsonObject, adjudication: Adjudication, decision: Decision) -> None:
        if isinstance(decision, Defer):
            if not self._pending.is_still(name, manifest):
                return  # gone while it was judged; one that was re-created under its name is in the queue by itself
            self._wait(name, adjudication, decision)
        else:
            if not isinstance(decision, Ignore):
                self._pending.settled(manifest)
            self._drop_this(name, manifest)
        self._announcer.announce(name, adjudication.parsed, decision)

    def _drop_this(self, name: str, manifest: JsonObject) -> None:
        """A CSR that was re-created under the same name meanwhile is another one, and stays."""
        if self._pending.is_still(name, manifest):
            self._drop(name)

    def _wait(self, name: str, adjudication: Adjudication, decision: Defer) -> None:
        if isinstance(adjudication.parsed, SigningRequest):
            with contextlib.suppress(Refused):
                self._pending.claims(name, claimed_provider_id(adjudication.parsed))
        if decision.retry_after is not None:
            self._queue.add_after(name, decision.retry_after.total_seconds())
        else:
            self._queue.retry(name)

    async def _survey_for_ever(self) -> None:
        while True:
            await self._survey()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SURVEY_SECONDS):
                    await self._survey_wanted.wait()
            self._survey_wanted.clear()

    async def _survey(self) -> None:
        """Look at CA, attestors and connection, write the policy's conditions, wake who waited for the CA."""
        available = await self._surveyor.survey(self._adjudicator, self._reachable)
        if available and not self._authority_was_available:
            for name in self._pending:
                self._queue.add(name)
        self._authority_was_available = available
