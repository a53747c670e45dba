"""One workload cluster, isolated from all others: its connection, watch, queue and workers.

An API server that hangs, lies or sends garbage affects only its own cluster's task.
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
from signer.decision.clocks import ClusterClocks
from signer.decision.keys_for_nodes import KeysForNodes
from signer.kube.client import Client, JsonObject
from signer.kube.clocks import ServerTimes
from signer.kube.errors import ApiError
from signer.kube.http.tls_transport import TlsTransport
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.kube.supervision import supervised
from signer.kube.tls import TlsMaterialRefused
from signer.kube.watch import list_and_watch
from signer.model.cluster import ClusterKey
from signer.model.control_plane_names import ControlPlaneReport
from signer.store.caches import ALL_PROVIDER_IDS, Caches, ProviderIDs

_LOG = logging.getLogger(__name__)
RECONCILE_SECONDS: Final = 60.0
"""How often the status is reconciled without a change: CA, attestors, connection."""
RECONCILE_JITTER: Final = 0.2
"""Random fraction of the interval, so that a thousand clusters do not run in step."""
RECONCILE_BURST: Final = 20
RECONCILE_REFILL_SECONDS: Final = 10.0
"""Beyond the burst, one status reconciliation per interval: an API server that flaps many times a second must not cause
a write to the management cluster each time."""
FIRST_RECONCILE_SECONDS: Final = 5.0
"""The first reconciliation waits this long for the first connection, which saves one write per cluster."""
WATCH_SECONDS: Final = 40.0
"""Requested duration of each watch; the next watch serves as the health probe of the connection.

Cluster API's ClusterCache requests ``/`` every ten seconds and gives up after five failures. That needs a second
connection per cluster, either kept open (a quarter more memory) or opened each time (a hundred handshakes a second for
a thousand clusters). Restarting the watch on the existing connection costs less and proves more: the credentials are
still valid, and watches work. A server that hangs is detected within 54 seconds.
"""
CONNECTS_AT_ONCE: Final = 32
"""Connection attempts at once, of all clusters together."""
CONNECT_SECONDS: Final = 2.0
"""An attempt whose first list takes longer continues without its slot, and another attempt begins."""


class _Reconnect(Exception):
    """Reconnect with the current kubeconfig Secret."""


class WorkloadCluster:
    """The controller's side of one workload cluster; a sink of its CSR watch."""

    def __init__(
        self,
        key: ClusterKey,
        *,
        connector: WorkloadConnector,
        control_plane: ControlPlaneReport,
        handler: RequestHandler,
        clocks: ClusterClocks,
        server_clock: Callable[[Client], ServerTimes],
        reachability: Reachability,
        overflow: OverflowRelist,
        status: StatusReconciler,
        services: Sequence[ClusterService],
        observers: Sequence[RequestObserver],
        authority_source: AuthoritySource,
        keys_for_nodes: KeysForNodes,
        caches: Caches,
        metrics: Metrics,
        status_changed: asyncio.Event,
        reconnect: asyncio.Event,
        random: Random,
        now: Callable[[], datetime],
    ) -> None:
        """Parts set ``status_changed`` when their conditions change; ``reachability`` sets ``reconnect``."""
        self.key = key
        self._connector = connector
        self._control_plane = control_plane
        self._handler = handler
        self._clocks = clocks
        self._server_clock = server_clock
        self._requests = handler.informer
        self._reachability = reachability
        self._overflow = overflow
        self._status = status
        self._services = services
        self._observers = observers
        self._authority_source = authority_source
        self._keys_for_nodes = keys_for_nodes
        self._caches = caches
        self._metrics = metrics
        self._status_changed = status_changed
        self._reconnect = reconnect
        self._random = random
        self._now = now
        self._stopped = asyncio.Event()
        self._release_slot: Callable[[], None] = lambda: None
        """Frees the slot of a connection attempt once the attempt has succeeded or failed."""
        self._connected = asyncio.Event()
        """Set once the API server has answered over the current connection."""
        self._loop_time: Callable[[], float] = time.monotonic

    # Lifecycle

    async def run(self) -> None:
        """Serve the cluster until cancelled, or until :meth:`stop` was called and current requests are finished."""
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
        """Back off before the next connection."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._reachability.pause_seconds()):
                await self._stopped.wait()

    def close(self) -> None:
        """Release the requests and the metrics: the cluster is no longer served."""
        self._requests.close()
        self._metrics.forget_cluster(str(self.key), self.gauges)

    def busy_seconds(self) -> float:
        """See :class:`~signer.controller.cluster.fleet.ServedCluster`."""
        return self._requests.queue_gauges(self._loop_time()).longest_processing_seconds

    def gauges(self) -> ClusterGauges:
        """The gauges of this cluster."""
        caches, key = self._caches, self.key
        policy = caches.policies.get(key.namespace, key.name)
        return ClusterGauges(
            pending=self._requests.waiting(),
            oldest_pending_seconds=self._requests.oldest_seconds(),
            queue=self._requests.queue_gauges(self._loop_time()),
            reachable=self._reachability.condition.met is True,
            mode="" if policy is None or policy.mode is None else policy.mode.value,
            conditions=self._status.conditions,
            authority_expiry=tuple(expiry.timestamp() for expiry in self._authority_source.expiry()),
            certificates=caches.certificate_lives.of(key),
            services=tuple(gauge for service in self._services for gauge in service.gauges()),
            now=self._now().timestamp(),
        )

    def stop(self) -> None:
        """Take no more requests; ``run`` returns when the current ones are finished."""
        self._stopped.set()
        self._requests.stop()
        self._reconnect.set()

    def wake(self, provider_ids: ProviderIDs) -> None:
        """Something that requests may wait for has changed."""
        self._requests.wake(provider_ids)
        if provider_ids == ALL_PROVIDER_IDS:
            self._status_changed.set()
            for service in self._services:
                service.wake()

    def machines_changed(self) -> None:
        """Machines of the cluster have changed."""
        self._overflow.machine_changed()

    async def _serve_one_connection(self) -> None:
        async with self._connector.attempts.turn() as release_slot:
            self._release_slot = release_slot
            client = await self._client()
            self._connected.clear()
            self._reachability.connecting()
            self._requests.pending.begin_list()
            await self._serve_over(client)

    async def _client(self) -> Client:
        """Raises _Reconnect if the Secret gives no connection."""
        try:
            return await self._connector.client(self.key, self._handshake_done)
        except WorkloadAccessRefused as error:
            raise self._unreachable(error.reason, str(error)) from error
        except TlsMaterialRefused as error:
            raise self._unreachable("KubeconfigRefused", str(error)) from error

    def _handshake_done(self, transport: TlsTransport) -> None:
        self._control_plane.saw(transport.presented_chain()[0])

    async def _serve_over(self, client: Client) -> None:
        async with client:
            self._clocks.connected(client, self._server_clock(client))
            workers = self._handler.workers_over(client, Publisher(client, self._now, self._keys_for_nodes.text))
            watch = asyncio.create_task(
                list_and_watch(
                    client,
                    CERTIFICATE_SIGNING_REQUESTS.collection(),
                    sink=self,
                    keep=self._add_listed,
                    timeout_seconds=WATCH_SECONDS,
                    page_limit=PAGE_REQUESTS,
                    settle=self._requests.settle,
                ),
                name=f"{self.key} watch",
            )
            services = [
                asyncio.create_task(
                    supervised(
                        name, partial(self._run_when_connected, partial(run, client)), self._metrics.task_failed
                    ),
                    name=f"{self.key} {name}",
                )
                for name, run in (
                    ("clocks", lambda client: self._clocks.run()),
                    ("overflowed requests", self._overflow.run),
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
                tasks = (watch, *services, reconnect)
                for task in tasks:
                    task.cancel()
                try:
                    if self._stopped.is_set():
                        await workers.finished()  # each worker finishes its current request
                finally:  # also on a timeout: another replica may serve the cluster then
                    await workers.end()
                    await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_when_connected(self, run: Callable[[], Awaitable[None]]) -> None:
        """Start a service once the API server has answered a list; a server that hangs gets no further requests."""
        await self._connected.wait()
        await run()

    def _unreachable(self, reason: str, message: str) -> _Reconnect:
        self._reachability.cannot_connect(reason, message)
        return _Reconnect()

    # The watch's sink

    def replaced(self, objects: Sequence[JsonObject]) -> None:
        """A complete list of the cluster's CSRs arrived."""
        for observer in self._observers:
            observer.list_ended()
        self._requests.replaced(objects)

    def _add_listed(self, item: JsonObject) -> bool:
        for observer in self._observers:
            observer.listed(item)
        return self._requests.pending.add_listed(item)

    def applied(self, item: JsonObject) -> None:
        """A CSR is new or has changed."""
        self._event_received()
        for observer in self._observers:
            observer.observed(item)
        self._requests.applied(item)

    def removed(self, item: JsonObject) -> None:
        """A CSR is gone."""
        self._event_received()
        self._requests.removed(item)

    def _event_received(self) -> None:
        """An event proves that the watch works again, up to a minute earlier than a bookmark does."""
        if self._reachability.condition.met is not True:
            self.synced()

    def synced(self) -> None:
        """A list or watch succeeded."""
        self._release_slot()
        self._connected.set()
        self._reachability.succeeded()

    def failed(self, error: ApiError, retry_in_seconds: float) -> None:
        """A list or watch failed; the loop retries by itself."""
        self._release_slot()
        self._requests.pending.begin_list()
        self._reachability.failed(error)

    async def _reconcile_for_ever(self) -> None:
        await self._until_reconcile(FIRST_RECONCILE_SECONDS)
        bucket = TokenBucket(RECONCILE_BURST, RECONCILE_REFILL_SECONDS, asyncio.get_running_loop().time)
        while True:
            await asyncio.sleep(bucket.wait_seconds())
            bucket.take()
            self._status_changed.clear()
            await self._reconcile()
            self._overflow.check()
            await self._until_reconcile(
                RECONCILE_SECONDS * self._random.uniform(1 - RECONCILE_JITTER, 1 + RECONCILE_JITTER)
            )

    async def _until_reconcile(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._status_changed.wait()

    async def _reconcile(self) -> None:
        """Reconcile the status, and wake the requests once the cluster's CA is available again."""
        was_available = self._status.authority_available
        await self._status.reconcile()
        if self._status.authority_available and not was_available:
            self._requests.wake(ALL_PROVIDER_IDS)
