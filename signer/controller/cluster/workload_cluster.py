"""One workload cluster, isolated from all others: its connection, its watch, its queue, its workers.

Whatever its API server does (hang, lie, answer garbage) costs this task only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from random import Random
from typing import Final

from attestors.net.rate_limiter import TokenBucket
from signer.controller.cluster.service import ClusterService, RequestObserver
from signer.controller.requests.handler import RequestHandler
from signer.controller.requests.overflow import PAGE_REQUESTS, OverflowRelist
from signer.controller.requests.publisher import Publisher
from signer.controller.requests.reachability import Reachability
from signer.controller.status.status_reconciler import StatusReconciler
from signer.controller.telemetry.logs import log_context
from signer.controller.telemetry.metrics import Metrics
from signer.controller.telemetry.metrics_collector import ClusterGauges
from signer.controller.workload_access import WorkloadAccessRefused, WorkloadConnector
from signer.decision.authority_source import AuthoritySource
from signer.kube.client import Client, JsonObject
from signer.kube.errors import ApiError
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.kube.supervision import supervised
from signer.kube.tls import TlsMaterialRefused
from signer.kube.watch import list_and_watch
from signer.model.cluster import ClusterKey
from signer.store.caches import ALL_PROVIDER_IDS, REACHED_AGAIN, Caches, ProviderIDs

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


class _Reconnect(Exception):
    """The connection is to be made anew, from the Secret."""


class WorkloadCluster:
    """The controller's side of one workload cluster; a sink of its CSR watch."""

    def __init__(
        self,
        key: ClusterKey,
        *,
        connector: WorkloadConnector,
        handler: RequestHandler,
        reachability: Reachability,
        overflow: OverflowRelist,
        status: StatusReconciler,
        services: Sequence[ClusterService],
        observers: Sequence[RequestObserver],
        authority_source: AuthoritySource,
        caches: Caches,
        metrics: Metrics,
        status_wanted: asyncio.Event,
        reconnect: asyncio.Event,
        random: Random,
        now: Callable[[], datetime],
    ) -> None:
        """``status_wanted`` is set by parts whose conditions changed, ``reconnect`` by ``reachability``."""
        self.key = key
        self._connector = connector
        self._handler = handler
        self._requests = handler.informer
        self._reachability = reachability
        self._overflow = overflow
        self._status = status
        self._services = services
        self._observers = observers
        self._authority_source = authority_source
        self._caches = caches
        self._metrics = metrics
        self._status_wanted = status_wanted
        self._reconnect = reconnect
        self._random = random
        self._now = now
        self._stopped = asyncio.Event()
        self._leave_turn: Callable[[], None] = lambda: None
        """That a connection's beginning is over, well or not."""
        self._proven = asyncio.Event()
        """That the API server has answered over this connection."""
        self._loop_time: Callable[[], float] = time.monotonic

    # The life of the task

    async def run(self) -> None:
        """Serve the cluster until cancelled, or until :meth:`stop` was called and what was under way is done."""
        self._loop_time = asyncio.get_running_loop().time
        self._metrics.serve_cluster(str(self.key), self.gauges)
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
            async with asyncio.timeout(self._reachability.pause_seconds()):
                await self._stopped.wait()

    def close(self) -> None:
        """The cluster is no longer served: nothing shall be said of it any more."""
        self._requests.close()
        self._metrics.forget_cluster(str(self.key), self.gauges)

    def busy_seconds(self) -> float:
        """See :class:`~signer.controller.cluster.fleet.ServedCluster`."""
        return self._requests.queue_gauges(self._loop_time()).longest_processing_seconds

    def gauges(self) -> ClusterGauges:
        """How it stands."""
        caches, key = self._caches, self.key
        policy = caches.policies.get(key.namespace, key.name)
        return ClusterGauges(
            pending=self._requests.waiting(),
            oldest_pending_seconds=self._requests.oldest_seconds(),
            queue=self._requests.queue_gauges(self._loop_time()),
            reachable=self._reachability.condition.met is True,
            mode="" if policy is None or policy.mode is None else policy.mode.value,
            conditions=self._status.conditions,
            authority_expiry=tuple(moment.timestamp() for moment in self._authority_source.expiry()),
            certificates=caches.certificate_lives.of(key),
            services=tuple(gauge for service in self._services for gauge in service.gauges()),
            now=self._now().timestamp(),
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
            self._status_wanted.set()
            for service in self._services:
                service.wake()
        else:
            self._overflow.may_be_known()

    async def _serve_one_connection(self) -> None:
        async with self._connector.attempts.turn() as leave:
            self._leave_turn = leave
            client = await self._client()
            self._proven.clear()
            self._reachability.connects()
            self._requests.pending.list_begins()
            await self._serve_over(client)

    async def _client(self) -> Client:
        """Raises _Reconnect where the Secret gives no connection."""
        try:
            return await self._connector.client(self.key)
        except WorkloadAccessRefused as error:
            raise self._unreachable(error.reason, str(error)) from error
        except TlsMaterialRefused as error:
            raise self._unreachable("KubeconfigRefused", str(error)) from error

    async def _serve_over(self, client: Client) -> None:
        async with client:
            workers = self._handler.workers_over(client, Publisher(client, self._now))
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
            services = [
                asyncio.create_task(
                    supervised(name, partial(self._run_when_proven, partial(run, client)), self._metrics.task_failed),
                    name=f"{self.key} {name}",
                )
                for name, run in (
                    ("overflowed requests", self._overflow.keep),
                    *((service.name, service.run) for service in self._services),
                )
            ]
            reconnect = asyncio.create_task(self._reconnect.wait())
            try:
                await asyncio.wait({watch, reconnect}, return_when=asyncio.FIRST_COMPLETED)
                if watch.done():
                    watch.result()
                raise _Reconnect
            finally:
                beside = (watch, *services, reconnect)
                for task in beside:
                    task.cancel()
                try:
                    if self._stopped.is_set():
                        await workers.finished()  # each ends after what it has in hand
                finally:  # also when that takes too long: another replica may serve the cluster then
                    await workers.end()
                    await asyncio.gather(*beside, return_exceptions=True)

    async def _run_when_proven(self, run: Callable[[], Awaitable[None]]) -> None:
        """No service begins before the API server has answered a list: one that does not is asked nothing more."""
        await self._proven.wait()
        await run()

    def _unreachable(self, reason: str, message: str) -> _Reconnect:
        self._reachability.cannot_connect(reason, message)
        return _Reconnect()

    # The watch's sink

    def replaced(self, objects: Sequence[JsonObject]) -> None:
        """All CSRs of the cluster as they are now."""
        for observer in self._observers:
            observer.list_ended()
        self._requests.replaced(objects)

    def _holds_of_list(self, item: JsonObject) -> bool:
        for observer in self._observers:
            observer.listed(item)
        return self._requests.pending.holds_of_list(item)

    def applied(self, item: JsonObject) -> None:
        """A CSR is new or has changed."""
        self._heard()
        for observer in self._observers:
            observer.saw(item)
        self._requests.applied(item)

    def removed(self, item: JsonObject) -> None:
        """A CSR is gone."""
        self._heard()
        self._requests.removed(item)

    def _heard(self) -> None:
        """An event says as well as a bookmark does, and up to a minute earlier, that the watch is well again."""
        if self._reachability.condition.met is not True:
            self.synced()

    def synced(self) -> None:
        """List or watch is well."""
        self._leave_turn()
        self._proven.set()
        self._reachability.well()

    def failed(self, error: ApiError, retry_in_seconds: float) -> None:
        """List or watch failed; the loop tries again by itself."""
        self._leave_turn()
        self._requests.pending.list_begins()
        self._reachability.failed(error)

    async def _reconcile_for_ever(self) -> None:
        await self._until_reconcile(FIRST_RECONCILE_SECONDS)
        bucket = TokenBucket(RECONCILES_AT_ONCE, RECONCILE_AGAIN_SECONDS, asyncio.get_running_loop().time)
        while True:
            await asyncio.sleep(bucket.wait_seconds())
            bucket.take()
            self._status_wanted.clear()
            await self._reconcile()
            self._overflow.look()
            await self._until_reconcile(
                RECONCILE_SECONDS * self._random.uniform(1 - RECONCILE_SPREAD, 1 + RECONCILE_SPREAD)
            )

    async def _until_reconcile(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._status_wanted.wait()

    async def _reconcile(self) -> None:
        """Reconcile the status, and wake requests that waited for the cluster's CA."""
        was_available = self._status.authority_available
        await self._status.reconcile()
        if self._status.authority_available and not was_available:
            self._requests.wake(ALL_PROVIDER_IDS)
