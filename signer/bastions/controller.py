"""Watches Bastions, and works on each in turn."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from signer.bastions.metrics import BastionMetrics
from signer.bastions.reconciler import Again, BastionKey, BastionReconciler, Done, Retry
from signer.controller.diagnostics.health import Check, Report
from signer.kube.backoff import Backoff
from signer.kube.calls import ListWatch
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Conflict, NotFound
from signer.kube.resources import BASTIONS
from signer.kube.watch import list_and_watch
from signer.kube.workqueue import QueueClosed, WorkQueue
from signer.model.fields import mapping_of, text_of

_LOG = logging.getLogger(__name__)
WORKERS: Final = 16
BACKOFF: Final = Backoff(base_seconds=2.0, maximum_seconds=300.0, jitter=0.5)
QUIET_SECONDS: Final = 600.0
STUCK_SECONDS: Final = 600.0
OUT_OF_TOUCH_SECONDS: Final = 180.0


class BastionController:
    """The watch, the queue and its workers."""

    def __init__(
        self,
        client: ListWatch,
        reconciler: BastionReconciler,
        metrics: BastionMetrics,
        busy_seconds: Callable[[], float] = lambda: 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._reconciler = reconciler
        self._metrics = metrics
        self._busy_seconds = busy_seconds
        self._monotonic = monotonic
        self._queue: WorkQueue[BastionKey] = WorkQueue(backoff=BACKOFF)
        self._known: set[BastionKey] = set()
        self._reported = monotonic()
        self._synced: float | None = None
        """None before the first list."""

    async def watch(self) -> None:
        """Watch until cancelled."""
        await list_and_watch(self._client, BASTIONS.collection(), sink=self, keep=_keep)

    async def work(self) -> None:
        """One worker, until :meth:`close`."""
        while True:
            try:
                key = await self._queue.get()
            except QueueClosed:
                return
            try:
                await self._turn(key)
            finally:
                self._queue.done(key)

    def close(self) -> None:
        """Take no more work."""
        self._queue.shutdown()

    async def _turn(self, key: BastionKey) -> None:
        try:
            match await self._reconciler.reconcile(key):
                case Again(after):
                    self._queue.forget(key)
                    self._queue.add_after(key, after.total_seconds())
                case Retry():
                    self._queue.retry(key)
                case Done():
                    self._queue.forget(key)
        except (Conflict, NotFound):
            self._queue.retry(key)  # the object has changed or gone since it was read
        except ApiError as error:
            seconds = self._queue.retry(key)
            _LOG.warning(
                "cannot reconcile a bastion",
                extra={
                    "namespace": key.namespace,
                    "object": key.name,
                    "error": str(error),
                    "retryInSeconds": round(seconds, 1),
                },
            )
        except BaseException:  # a defect is for the task's supervisor, and the key is not lost by it
            self._queue.retry(key)
            raise

    # What the watch reports

    def replaced(self, objects: Sequence[JsonObject]) -> None:
        """See :class:`signer.kube.watch.Sink`."""
        self._known = {_key(item) for item in objects}
        for key in self._known:
            self._queue.add(key)
        self._seen()

    def applied(self, item: JsonObject) -> None:
        """See :class:`signer.kube.watch.Sink`."""
        key = _key(item)
        self._known.add(key)
        self._queue.add(key)
        self._seen()

    def removed(self, item: JsonObject) -> None:
        """See :class:`signer.kube.watch.Sink`."""
        key = _key(item)
        self._known.discard(key)
        self._queue.discard(key)
        self._seen()

    def synced(self) -> None:
        """See :class:`signer.kube.watch.Sink`."""
        self._synced = self._monotonic()
        self._seen()

    def failed(self, error: ApiError, retry_in_seconds: float) -> None:
        """See :class:`signer.kube.watch.Sink`."""
        self._reported = self._monotonic()
        _LOG.warning("cannot watch bastions", extra={"error": str(error), "retryInSeconds": round(retry_in_seconds, 1)})

    def _seen(self) -> None:
        self._reported = self._monotonic()
        self._metrics.bastions.set(len(self._known))

    # Health

    def alive(self) -> Report:
        """``/healthz``: fails if a restart may help."""
        now = self._monotonic()
        quiet = "the watch reports nothing" if now - self._reported > QUIET_SECONDS else ""
        stuck = "a provider does not return" if self._busy_seconds() > STUCK_SECONDS else ""
        return Report("healthz", (Check("ping"), Check("watch", quiet), Check("providers", stuck)))

    def ready(self) -> Report:
        """``/readyz``: whether Bastions are seen."""
        fault = "" if self._synced is not None else "Bastions are not listed yet"
        if self._synced is not None and self._monotonic() - self._synced > OUT_OF_TOUCH_SECONDS + QUIET_SECONDS:
            fault = "out of touch with the management cluster"
        return Report("readyz", (Check("ping"), Check("bastions", fault)))


def _key(item: JsonObject) -> BastionKey:
    metadata = mapping_of(item, "metadata")
    return BastionKey(text_of(metadata, "namespace"), text_of(metadata, "name"))


def _keep(item: JsonObject) -> bool:
    """Keep the names alone: each turn reads the object anew."""
    key = _key(item)
    item.clear()
    item["metadata"] = {"namespace": key.namespace, "name": key.name}
    return bool(key.namespace and key.name)
