"""One workload cluster, isolated from all others: its connection, its watch, its queue, its workers.

Whatever its API server does (hang, lie, answer garbage) costs this task only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from random import SystemRandom
from typing import Final, NoReturn

from attestors.net.rate_limiter import TokenBucket
from signer.audit.log import NoAuditLog
from signer.controller.auto_approval.reconciler import AutoApprovalReconciler
from signer.controller.cluster.reachability import Reachability
from signer.controller.requests.handler import RequestHandler
from signer.controller.requests.overflow import PAGE_REQUESTS, OverflowRelist
from signer.controller.requests.publisher import Publisher
from signer.controller.status.status_reconciler import StatusReconciler
from signer.controller.surroundings import Surroundings
from signer.controller.telemetry.logs import log_context
from signer.controller.telemetry.metrics_collector import ClusterGauges
from signer.controller.workload_access import MAXIMUM_BODY_BYTES, WorkloadAccessRefused, workload_connection
from signer.decision.authority_source import AuthoritySource
from signer.decision.decider import Decider
from signer.kube.client import Client, JsonObject
from signer.kube.errors import ApiError, Unauthorized
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.kube.supervision import supervised
from signer.kube.tls import TlsMaterialRefused
from signer.kube.watch import list_and_watch
from signer.model.cluster import ClusterKey
from signer.store.caches import ALL_PROVIDER_IDS, REACHED_AGAIN, ProviderIDs

_LOG = logging.getLogger(__name__)
RECONCILE_SECONDS: Final = 60.0
"""How often CA, attestors and connection are looked at when nothing asks for them."""
RECONCILE_SPREAD: Final = 0.2
"""By how much of that, so that a thousand clusters do not keep in step."""
RECONCILES_AT_ONCE: Final = 20
RECONCILE_AGAIN_SECONDS: Final = 10.0
"""For each survey beyond those: an API server that is reached and lost again many times a second, each of which is a
reason to survey, is not to be a write to the management cluster each time."""
FIRST_RECONCILE_SECONDS: Final = 5.0
"""How long the first look waits to see what comes of the first connection, which saves a write for each cluster."""
WATCH_SECONDS: Final = 40.0
"""How long each watch is asked to last; the next is the health probe of the connection.

Cluster API's ClusterCache asks for ``/`` every ten seconds, and gives up after five failures. That needs a second
connection for each cluster, kept open (a quarter more memory) or made each time (a hundred handshakes a second for a
thousand clusters). A watch that ends and begins anew, on the connection that there is, asks less of everybody, and says
more: that the credentials still hold, and that watches work. A server that hangs is noticed within 54 seconds.
"""
CONNECTS_AT_ONCE: Final = 32
"""Of all clusters together, of those whose API servers answer quickly."""
CONNECT_SECONDS: Final = 2.0
"""A connection whose first list takes longer goes on, and another begins."""
CONNECTIONS_BESIDE_WORKERS: Final = 5
"""Of each cluster, for who looks after its auto-approval, and who lists what was left out."""


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
        self._decider = Decider(
            key,
            configuration=surroundings.configuration,
            registry=surroundings.registry,
            caches=surroundings.caches,
            reservations=surroundings.reservations,
            records=surroundings.records,
            tokens=surroundings.bootstrap_tokens,
            lookups=surroundings.lookups,
            timings=surroundings.attestor_timings,
            authority_source=self._authority_source,
            now=surroundings.now,
            monotonic=surroundings.monotonic,
            audited=not isinstance(surroundings.audit_log, NoAuditLog),
        )
        self._status_reconciler = StatusReconciler(key, surroundings, self._authority_source)
        self._auto_approval = AutoApprovalReconciler(key, surroundings, self._authority_source)
        self._handling = RequestHandler(key, surroundings, self._decider, self)
        self._requests = self._handling.informer
        self._reconnect = asyncio.Event()
        self._reconcile_wanted = asyncio.Event()
        self._authority_was_available = True
        self._stopped = asyncio.Event()
        self._random = SystemRandom()
        self._reachable = Reachability(
            key,
            self._requests.pending,
            monotonic=surroundings.monotonic,
            random=self._random,
            changed=self._reconcile_wanted.set,
            reconnect=self._reconnect.set,
        )
        self._overflow = OverflowRelist(self._requests, surroundings, self._random, listed=self._reachable.kept_changed)
        self._leave_turn: Callable[[], None] = lambda: None
        """That a connection's beginning is over, well or not."""
        self._proven = asyncio.Event()
        """That the API server has answered over this connection."""
        self._loop_time: Callable[[], float] = time.monotonic

    # The life of the task

    async def run(self) -> None:
        """Serve the cluster until cancelled, or until :meth:`stop` was called and what was under way is done."""
        self._loop_time = asyncio.get_running_loop().time
        self._around.metrics.serve_cluster(str(self.key), self.gauges)
        with log_context(cluster=str(self.key)):
            await self._serve()

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            reconcile = tasks.create_task(self._reconcile_for_ever())
            while not self._stopped.is_set():
                try:
                    await self._serve_one_connection()
                except _Reconnect:
                    self._reconnect.clear()
                    await self._pause()
            reconcile.cancel()

    async def _pause(self) -> None:
        """Wait before the next connection."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._reachable.pause_seconds()):
                await self._stopped.wait()

    def close(self) -> None:
        """The cluster is no longer served: nothing shall be said of it any more."""
        self._requests.close()
        self._around.metrics.forget_cluster(str(self.key), self.gauges)

    def busy_seconds(self) -> float:
        """See :class:`~signer.controller.cluster.fleet.ServedCluster`."""
        return self._requests.queue_gauges(self._loop_time()).longest_processing_seconds

    def gauges(self) -> ClusterGauges:
        """How it stands."""
        caches, key = self._around.caches, self.key
        policy = caches.policies.get(key.namespace, key.name)
        return ClusterGauges(
            pending=self._requests.waiting(),
            oldest_pending_seconds=self._requests.oldest_seconds(),
            queue=self._requests.queue_gauges(self._loop_time()),
            reachable=self._reachable.condition.met is True,
            mode="" if policy is None or policy.mode is None else policy.mode.value,
            conditions=self._status_reconciler.conditions,
            authority_expiry=tuple(moment.timestamp() for moment in self._authority_source.expiry()),
            certificates=caches.certificate_lives.of(key),
            unattested_requesters=self._auto_approval.unattested_requesters(),
            now=self._around.now().timestamp(),
        )

    def stop(self) -> None:
        """Take no more work; ``run`` returns when what is under way is done."""
        self._stopped.set()
        self._requests.stop()
        self._reconnect.set()

    def wake(self, provider_ids: ProviderIDs) -> None:
        """Something that requests may wait for has changed."""
        self._requests.wake(provider_ids)
        if provider_ids == REACHED_AGAIN:
            return
        if provider_ids == ALL_PROVIDER_IDS:
            self._reconcile_wanted.set()
            self._auto_approval.look_again()
        else:
            self._overflow.may_be_known()

    async def _serve_one_connection(self) -> None:
        async with self._around.connects.turn() as leave:
            self._leave_turn = leave
            client = await self._client()
            self._proven.clear()
            self._reachable.connects()
            self._requests.pending.list_begins()
            await self._serve_over(client)

    async def _client(self) -> Client:
        """Raises _Reconnect where the Secret gives no connection."""
        try:
            connection = await workload_connection(self._around.management, self.key)
            return Client(
                connection,
                maximum_body_bytes=MAXIMUM_BODY_BYTES,
                connection_limit=CONNECTIONS_BESIDE_WORKERS + self._around.configuration.workers_per_cluster,
                resource_limits=self._around.resource_limits,
            )
        except WorkloadAccessRefused as error:
            raise self._unreachable(error.reason, str(error)) from error
        except TlsMaterialRefused as error:
            raise self._unreachable("KubeconfigRefused", str(error)) from error

    async def _serve_over(self, client: Client) -> None:
        async with client:
            workers = self._handling.workers_over(client, Publisher(client, self._around.now))
            watch = asyncio.create_task(
                list_and_watch(
                    client,
                    CERTIFICATE_SIGNING_REQUESTS.collection(),
                    sink=self,
                    keep=self._holds_of_list,
                    timeout_seconds=WATCH_SECONDS,
                    page_limit=PAGE_REQUESTS,
                    settle=self._requests.settle,
                ),
                name=f"{self.key} watch",
            )
            failed = self._around.metrics.task_failed
            auto_approval = asyncio.create_task(
                supervised("auto-approval", partial(self._reconcile_auto_approval, client), failed),
                name=f"{self.key} auto-approval",
            )
            overflow = asyncio.create_task(
                supervised("requests left out", partial(self._keep_overflow, client), failed),
                name=f"{self.key} left out",
            )
            reconnect = asyncio.create_task(self._reconnect.wait())
            try:
                await asyncio.wait({watch, reconnect}, return_when=asyncio.FIRST_COMPLETED)
                if watch.done():
                    watch.result()
                raise _Reconnect
            finally:
                beside = (watch, auto_approval, overflow, reconnect)
                for task in beside:
                    task.cancel()
                try:
                    if self._stopped.is_set():
                        await workers.finished()  # each ends after what it has in hand
                finally:  # also when that takes too long: another replica may serve the cluster then
                    await workers.end()
                    await asyncio.gather(*beside, return_exceptions=True)

    async def _reconcile_auto_approval(self, client: Client) -> None:
        await self._proven.wait()  # who does not even list has no door that could be looked at
        await self._auto_approval.run(client, self._reconcile_wanted.set)

    async def _keep_overflow(self, client: Client) -> NoReturn:
        await self._proven.wait()
        await self._overflow.keep(client)

    def _unreachable(self, reason: str, message: str) -> _Reconnect:
        self._reachable.cannot_connect(reason, message)
        return _Reconnect()

    # The watch's sink

    def replaced(self, objects: Sequence[JsonObject]) -> None:
        """All CSRs of the cluster as they are now."""
        self._auto_approval.list_ended()
        self._requests.replaced(objects)

    def _holds_of_list(self, item: JsonObject) -> bool:
        self._auto_approval.listed(item)
        return self._requests.pending.holds_of_list(item)

    def applied(self, item: JsonObject) -> None:
        """A CSR is new or has changed."""
        self._heard()
        self._auto_approval.saw(item)
        self._requests.applied(item)

    def removed(self, item: JsonObject) -> None:
        """A CSR is gone."""
        self._heard()
        self._requests.removed(item)

    def requests_overflowed(self) -> None:
        """See :class:`~signer.controller.requests.informer.HeedsBudget`."""
        self._reachable.kept_changed()

    def attested(self, provider_id: str) -> None:
        """See :class:`~signer.controller.requests.handler.Heeds`."""
        self._auto_approval.attested(provider_id)

    def list_again(self) -> None:
        """See :class:`~signer.controller.requests.informer.HeedsBudget`."""
        self._overflow.want()

    def refused(self, error: Unauthorized) -> None:
        """See :class:`~signer.controller.requests.handler.Heeds`. A watch that was begun with the same credentials goes
        on for as long as it was asked to last: kube-apiserver looks at them when a request begins.
        """
        self.failed(error, retry_in_seconds=0.0)

    def _heard(self) -> None:
        """An event says as well as a bookmark does, and up to a minute earlier, that the watch is well again."""
        if self._reachable.condition.met is not True:
            self.synced()

    def synced(self) -> None:
        """List or watch is well."""
        self._leave_turn()
        self._proven.set()
        self._reachable.well()

    def failed(self, error: ApiError, retry_in_seconds: float) -> None:
        """List or watch failed; the loop tries again by itself."""
        self._leave_turn()
        self._requests.pending.list_begins()
        self._reachable.failed(error)

    async def _reconcile_for_ever(self) -> None:
        await self._until_reconcile(FIRST_RECONCILE_SECONDS)
        bucket = TokenBucket(RECONCILES_AT_ONCE, RECONCILE_AGAIN_SECONDS, asyncio.get_running_loop().time)
        while True:
            await asyncio.sleep(bucket.wait_seconds())
            bucket.take()
            self._reconcile_wanted.clear()
            await self._reconcile()
            self._overflow.look()
            await self._until_reconcile(
                RECONCILE_SECONDS * self._random.uniform(1 - RECONCILE_SPREAD, 1 + RECONCILE_SPREAD)
            )

    async def _until_reconcile(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._reconcile_wanted.wait()

    async def _reconcile(self) -> None:
        """Look at CA, attestors and connection, write the policy's conditions, wake who waited for the CA."""
        available = await self._status_reconciler.reconcile(
            self._decider, self._reachable.condition, lambda: self._auto_approval.conditions
        )
        if available and not self._authority_was_available:
            self._requests.wake(ALL_PROVIDER_IDS)
        self._authority_was_available = available
