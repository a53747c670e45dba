"""Informer of one workload cluster's requests: keeps the pending ones from lists and watch events, and queues them.

:mod:`signer.controller.requests.handler` handles the queue.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from random import SystemRandom
from typing import Final, Protocol

from signer.controller.requests.bounded_request import UnusableRequest, bounded
from signer.controller.requests.pending import PendingRequests, Put, request_name
from signer.controller.requests.reachability import Reachability
from signer.controller.telemetry.metrics_collector import QueueGauges
from signer.kube.client import JsonObject
from signer.kube.errors import UnexpectedAnswer
from signer.kube.scheduling import CooperativeYield
from signer.kube.workqueue import WorkQueue
from signer.model.flow import Flow
from signer.store.caches import ALL_PROVIDER_IDS, REACHED_AGAIN, ProviderIDs

BATCH_SIZE: Final = 100
"""About 5 ms of work when each name is peeked at."""


class BatchedRequeue:
    """Applies a function to names in order: to a few at once, to many in batches.

    One batch is applied per iteration of the event loop, which all clusters share.
    """

    def __init__(self, process: Callable[[str], None]) -> None:
        """``process`` must not raise; it is also called with names that no longer exist."""
        self._process = process
        self._names: OrderedDict[str, None] = OrderedDict()
        self._next: asyncio.Handle | None = None

    def __len__(self) -> int:
        return len(self._names)

    def add(self, names: Sequence[str]) -> None:
        """Process the names. A small set does not wait behind a large one that was added before."""
        if len(names) <= BATCH_SIZE:
            for name in names:
                self._process(name)
            return
        self._names.update(dict.fromkeys(names))
        if self._next is None:
            self._process_batch()

    def clear(self) -> None:
        """Drop the names that are still to be processed."""
        self._names.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _process_batch(self) -> None:
        self._next = (
            asyncio.get_running_loop().call_soon(self._process_batch) if len(self._names) > BATCH_SIZE else None
        )
        for _ in range(min(BATCH_SIZE, len(self._names))):
            name, _ = self._names.popitem(last=False)
            self._process(name)


MAXIMUM_OBSERVED: Final = 20_000
"""Requests that the watch may report while a list is read; they take at most 1.5 MiB."""


class ListOvertaken(Exception):
    """The watch restarted or reported too many requests: the rest of the list may be stale."""


class Relist:
    """Names that the watch has reported since the list was requested: the watch is newer than the list."""

    def __init__(self, *, overtaken: bool = False) -> None:
        """``overtaken`` means that no list is being read."""
        self._observed: set[int] = set()  # hashes of 64 bits, under a secret of the process: a quarter of the names
        self._overtaken = overtaken

    def observe(self, name: str) -> None:
        """The watch reported an event of the request ``name``."""
        if len(self._observed) >= MAXIMUM_OBSERVED:
            self.expire()
        if not self._overtaken:
            self._observed.add(hash(name))

    def expire(self) -> None:
        """The watch restarted with its own list, or this list was read to its end."""
        self._overtaken = True
        self._observed = set()

    def require_current(self) -> None:
        """Raises ListOvertaken when the list may be stale."""
        if self._overtaken:
            raise ListOvertaken("the watch restarted or reported too many requests meanwhile")

    def is_newest(self, name: str) -> bool:
        """Whether the list has the newest known state of the request.

        Raises:
            ListOvertaken: the list may be stale.
        """
        self.require_current()
        return hash(name) not in self._observed


RECHECK_SPREAD_SECONDS: Final = 2.0
"""Once the management cluster is back, the first request that failed for it is requeued within this random delay."""
RECHECKS_PER_SECOND: Final = 100
"""Rate at which the others follow."""


class RequestMemory(Protocol):
    """Keeps state of each request for as long as the request is kept."""

    def forget(self, name: str) -> None:
        """The CSR is settled or gone."""
        ...


class RequestInformer:
    """Keeps and queues the requests of one cluster."""

    def __init__(
        self,
        pending: PendingRequests,
        reachability: Reachability,
        *,
        monotonic: Callable[[], float],
        memories: Sequence[RequestMemory] = (),
    ) -> None:
        """``monotonic`` is a clock, in seconds. ``memories`` are told to forget each request that is no longer kept."""
        self._reachability = reachability
        self._monotonic = monotonic
        self._memories = memories
        self._random = SystemRandom()
        self.pending = pending
        self.queue: WorkQueue[str] = WorkQueue(flow_of=self._flow)
        self.relist_needed = asyncio.Event()
        """Set while there is budget for overflowed requests, which must be relisted."""
        self._requeue_batches = BatchedRequeue(self._requeue_pending)
        self._reclassify_batches = BatchedRequeue(self._refresh_flow)
        self._relist = Relist(overtaken=True)
        self._listed: Iterator[None] = iter(())
        """Remaining steps of applying the last list."""
        self._first_seen: dict[str, float] = {}
        """When each request was first kept, on the monotonic clock; the oldest first."""
        self._left_alone: set[str] = set()
        """The requests that the policy leaves alone, which are not counted as pending."""
        self._changed_while_processing: dict[str, JsonObject] = {}
        """The newest state of requests that a worker is handling: at most one per worker, and bounded."""
        self._changed_once: set[str] = set()
        """Requests that have changed, according to the API server, while they were being decided."""

    # Sink of the watch

    def replaced(self, objects: Sequence[JsonObject]) -> None:
        """A list of all CSRs arrived. The first batch is applied at once; :meth:`settle` applies the rest."""
        self._listed = self._apply_list(objects)
        for _ in itertools.islice(self._listed, BATCH_SIZE):
            pass

    async def settle(self) -> None:
        """Apply the rest of the last list. The caller awaits this before it delivers events."""
        cooperative_yield = CooperativeYield()
        try:
            for _ in self._listed:
                await cooperative_yield.leave_turn()
        finally:
            self._listed = iter(())

    def _apply_list(self, objects: Sequence[JsonObject]) -> Iterator[None]:
        """Apply a list, one request per step: packing thousands of them takes most of a second."""
        overflow = self.pending.end_list()
        self._changed_while_processing.clear()  # a list is newer
        self._relist.expire()
        names = {request_name(manifest) for manifest in objects}
        for name in self.pending:
            if name not in names:
                self.drop(name)
                yield
        for manifest in objects:
            if manifest:  # evicted ones are empty
                self._keep(manifest)
                yield
        self.pending.overflow |= overflow

    def applied(self, item: JsonObject) -> None:
        """A CSR is new or has changed."""
        self._relist.observe(request_name(item))
        if not self._postpone(item):
            self._keep(item)

    def _postpone(self, item: JsonObject) -> bool:
        """Whether the change waits until a worker is done with the CSR.

        Usually it is the watch event of the worker's own approval, and the CSR is settled when the worker is done.
        """
        name = request_name(item)
        if not (self.queue.is_with_worker(name) and self.pending.has_same_uid(name, item)):
            return False
        if not self.pending.is_relevant(item):
            return False
        try:
            self._changed_while_processing[name], _ = bounded(item)
        except UnusableRequest:
            return False
        return True

    def requeue_if_changed(self, name: str) -> None:
        """The worker is done: requeue the CSR if it changed meanwhile and is still kept."""
        changed = self._changed_while_processing.pop(name, None)
        if changed is not None and self.pending.has_same_uid(name, changed):
            self._keep(changed)

    def changed_while_deciding(self, name: str, current: JsonObject) -> None:
        """Requeue a CSR whose write conflicted: at once the first time, then with backoff."""
        self._changed_while_processing.pop(name, None)
        enqueue = self.queue.retry if name in self._changed_once else self.queue.add
        self._changed_once.add(name)
        self._keep(current, enqueue)

    def _keep(self, item: JsonObject, enqueue: Callable[[str], object] | None = None) -> None:
        """Keep the CSR if it is relevant, and queue it with ``enqueue``; by default at once."""
        name = request_name(item)
        alone = len(self.queue) == 0
        put = self.pending.put(item, alone=alone) if self.pending.is_relevant(item) else Put.UNUSABLE
        self._forget_evicted()
        if put is not Put.KEPT:
            self.drop(name)
            if put is Put.OVERFLOW:
                self._reachability.overflow_changed()
            return
        self._first_seen.setdefault(name, self._monotonic())
        (enqueue or self.queue.add)(name)

    def _flow(self, name: str) -> Flow:
        """The flow to queue a CSR in. It matters only where others wait for a worker, too."""
        return self.pending.flow(name) if len(self.queue) > 1 else self.pending.known_flow(name)

    def removed(self, item: JsonObject) -> None:
        """A CSR is gone."""
        self._relist.observe(request_name(item))
        self.drop(request_name(item))

    # Relist

    async def add_overflow(self, pages: AsyncIterator[JsonObject]) -> None:
        """Add the overflowed requests from a list, whose first page must not be requested before this call.

        Raises:
            ListOvertaken: the watch restarted or reported too many requests meanwhile.
            ApiError: from ``pages``, or an item is not an object.
        """
        relist = self._relist = Relist()
        self.pending.begin_relist()
        try:
            async for page in pages:
                await self._apply_page(page, relist)
                del page  # free its memory: the next page may take long
            relist.require_current()
            self.pending.end_relist()
        finally:
            relist.expire()

    async def _apply_page(self, page: JsonObject, relist: Relist) -> None:
        cooperative_yield = CooperativeYield()
        for item in page["items"]:
            if not isinstance(item, dict):
                raise UnexpectedAnswer("the list holds an item that is no object", status=200)
            await cooperative_yield.leave_turn()  # adding one request may pre-filter many others
            name = request_name(item)
            if relist.is_newest(name) and name not in self.pending:
                self._keep(item)

    def wake(self, provider_ids: ProviderIDs) -> None:
        """Something that requests may wait for has changed."""
        if provider_ids == REACHED_AGAIN:
            self._requeue_spread(self.pending.names_waiting_for(provider_ids))
        elif provider_ids == ALL_PROVIDER_IDS:
            self._requeue_batches.add(tuple(self.pending))  # no Machine has changed, so flows stay the same
        else:
            self._reclassify_batches.add(self.pending.names_waiting_for(provider_ids))

    def _requeue_spread(self, names: Sequence[str]) -> None:
        """Requeue requests that failed for the management cluster, spread over time.

        A management cluster that flaps thus does not cause thousands of decisions each time, and is not flooded by all
        clusters' requests the moment it returns.
        """
        first = self._random.uniform(0.0, RECHECK_SPREAD_SECONDS)
        for position, name in enumerate(names):
            self.queue.add_after(name, first + position / RECHECKS_PER_SECOND)

    def _requeue_pending(self, name: str) -> None:
        if name in self.pending:
            self.queue.add(name)

    def _refresh_flow(self, name: str) -> None:
        self.pending.refresh_flow(name)
        self._requeue_pending(name)

    def stop(self) -> None:
        """Shut the queue down: workers take no more requests."""
        self.queue.shutdown()

    def close(self) -> None:
        """Release what is kept: the cluster is no longer served."""
        self._requeue_batches.clear()
        self._reclassify_batches.clear()
        self.pending.close()

    def _forget_evicted(self) -> None:
        """Forget evicted requests, and report the overflow in the cluster's condition."""
        evicted = self.pending.pop_evicted()
        for name in evicted:
            self._forget(name)
        if evicted:
            self._reachability.overflow_changed()

    def drop(self, name: str) -> None:
        """Drop a CSR that is settled or gone, and request a relist if there is budget for overflowed ones."""
        self.pending.drop(name)
        self._forget(name)
        if self.pending.can_relist:
            self.relist_needed.set()

    def _forget(self, name: str) -> None:
        self._first_seen.pop(name, None)
        self._left_alone.discard(name)
        self._changed_while_processing.pop(name, None)
        self._changed_once.discard(name)
        self.queue.discard(name)
        for memory in self._memories:
            memory.forget(name)

    # Metrics

    def mark_waiting(self, name: str) -> None:
        """The CSR is kept and will be decided."""
        self._left_alone.discard(name)

    def mark_left_alone(self, name: str) -> None:
        """The CSR is kept in case the policy changes."""
        self._left_alone.add(name)

    def waiting(self) -> int:
        """The number of requests to decide, without those that the policy leaves alone."""
        return len(self.pending) - len(self._left_alone)

    def oldest_seconds(self) -> float:
        """How long the oldest of them has waited since it was first kept, in seconds; 0 if there is none."""
        since = next((since for name, since in self._first_seen.items() if name not in self._left_alone), None)
        return 0.0 if since is None else self._monotonic() - since

    def queue_gauges(self, now: float) -> QueueGauges:
        """The queue's gauges; ``now`` is the event loop's time."""
        return QueueGauges(len(self.queue), self.queue.oldest_seconds(now), self.queue.longest_processing_seconds(now))
