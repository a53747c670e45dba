"""The requests of one workload cluster as its watch and its lists tell of them: kept while they need something, queued.

What is judged is in :mod:`signer.controller.requests.handler`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from random import SystemRandom
from typing import Final, Protocol

from signer.controller.requests.batched_requeue import AT_ONCE, BatchedRequeue
from signer.controller.requests.bounded_request import UnusableRequest, bounded
from signer.controller.requests.pending import PendingRequests, Put, request_name
from signer.controller.requests.reachability import Reachability
from signer.controller.requests.relist import Relist
from signer.controller.telemetry.metrics_collector import QueueGauges
from signer.kube.client import JsonObject
from signer.kube.errors import UnexpectedAnswer
from signer.kube.scheduling import CooperativeYield
from signer.kube.workqueue import WorkQueue
from signer.store.caches import ALL_PROVIDER_IDS, REACHED_AGAIN, ProviderIDs

SOON_SECONDS: Final = 2.0
"""Within which the first request is looked at again that failed for the management cluster, once that is back."""
LOOKS_A_SECOND: Final = 100
"""At those that follow."""


class RequestMemory(Protocol):
    """Remembers something of each request for as long as it is kept."""

    def forget(self, name: str) -> None:
        """That CSR is settled or gone."""
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
        """``monotonic`` is a clock, in seconds; ``memories`` forget each request that is no longer kept."""
        self._reachability = reachability
        self._monotonic = monotonic
        self._memories = memories
        self._random = SystemRandom()
        self.pending = pending
        self.queue: WorkQueue[str] = WorkQueue(flow_of=pending.flow)
        self.relist_wanted = asyncio.Event()
        """Set while there is room for requests that overflowed: they are to be listed again."""
        self._to_judge = BatchedRequeue(self._judge_again)
        self._to_peek_at = BatchedRequeue(self._peek_again)
        self._beside = Relist(overtaken=True)
        self._listed: Iterator[None] = iter(())
        """What is to be done about the last list."""
        self._seen: dict[str, float] = {}
        """Since when each is kept, by the monotonic clock; the oldest first."""
        self._left_alone: set[str] = set()
        """Those of them that the policy leaves alone: nobody waits for us."""
        self._meanwhile: dict[str, JsonObject] = {}
        """How those are by now that a worker has: at most one for each worker, and bounded."""
        self._changed_once: set[str] = set()
        """Those that are kept and changed while they were judged, or of which the API server said so."""

    # What the watch says

    def replaced(self, objects: Sequence[JsonObject]) -> None:
        """All CSRs of the cluster as they are now. What there is to do about many is left to :meth:`settle`."""
        self._listed = self._take_list(objects)
        for _ in itertools.islice(self._listed, AT_ONCE):
            pass

    async def settle(self) -> None:
        """Do what is left to do about the last list; to be awaited before anything else is told."""
        cooperative_yield = CooperativeYield()
        try:
            for _ in self._listed:
                await cooperative_yield.leave_turn()
        finally:
            self._listed = iter(())

    def _take_list(self, objects: Sequence[JsonObject]) -> Iterator[None]:
        """One request in each step: to pack thousands of them takes most of a second."""
        overflow = self.pending.list_ends()
        self._meanwhile.clear()  # a list is newer
        self._beside.overtake()
        names = {request_name(manifest) for manifest in objects}
        for name in self.pending:
            if name not in names:
                self.drop(name)
                yield
        for manifest in objects:
            if manifest:  # those that had to make way for others are empty
                self._keep(manifest)
                yield
        self.pending.overflow |= overflow

    def applied(self, item: JsonObject) -> None:
        """A CSR is new or has changed."""
        self._beside.tell(request_name(item))
        if not self._is_held_back(item):
            self._keep(item)

    def _is_held_back(self, item: JsonObject) -> bool:
        """Whether a change can wait for the worker that has its CSR: it is our own approval mostly, come back through
        the watch, and the CSR is settled when the worker is done.
        """
        name = request_name(item)
        if not (self.queue.is_with_worker(name) and self.pending.is_still(name, item)):
            return False
        if not self.pending.concerns_us(item):
            return False
        try:
            self._meanwhile[name], _ = bounded(item)
        except UnusableRequest:
            return False
        return True

    def look_at_meanwhile(self, name: str) -> None:
        """The worker is done with it: if it is still kept, it is looked at as it is by now."""
        changed = self._meanwhile.pop(name, None)
        if changed is not None and self.pending.is_still(name, changed):
            self._keep(changed)

    def changed_while_judged(self, name: str, current: JsonObject) -> None:
        """It is to be judged as it is now: at once when that happens first, then after a pause that grows."""
        self._meanwhile.pop(name, None)
        look = self.queue.retry if name in self._changed_once else self.queue.add
        self._changed_once.add(name)
        self._keep(current, look)

    def _keep(self, item: JsonObject, look: Callable[[str], object] | None = None) -> None:
        """Keep it if it belongs here, and ``look`` at it; at once, if nothing else is said."""
        name = request_name(item)
        put = self.pending.put(item) if self.pending.concerns_us(item) else Put.UNUSABLE
        self._forget_evicted()
        if put is not Put.KEPT:
            self.drop(name)
            if put is Put.OVERFLOW:
                self._reachability.overflow_changed()
            return
        self._seen.setdefault(name, self._monotonic())
        (look or self.queue.add)(name)

    def removed(self, item: JsonObject) -> None:
        """A CSR is gone."""
        self._beside.tell(request_name(item))
        self.drop(request_name(item))

    # A list beside the watch

    async def keep_overflow(self, pages: AsyncIterator[JsonObject]) -> None:
        """Keep those of a list that were left out before. The list is to be asked for after this is called.

        Raises:
            ListOvertaken: the watch has begun anew, or has said too much meanwhile.
            ApiError: from ``pages``, or they hold what is no CSR.
        """
        beside = self._beside = Relist()
        self.pending.relist_begins()
        try:
            async for page in pages:
                await self._take_page(page, beside)
                del page  # the next one may be long in coming
            beside.require_current()
            self.pending.relist_ends()
        finally:
            beside.overtake()

    async def _take_page(self, page: JsonObject, beside: Relist) -> None:
        cooperative_yield = CooperativeYield()
        for item in page["items"]:
            if not isinstance(item, dict):
                raise UnexpectedAnswer("the list holds an item that is no object", status=200)
            await cooperative_yield.leave_turn()  # where others have to be pre-filtered for each
            name = request_name(item)
            if beside.is_newest(name) and name not in self.pending:
                self._keep(item)

    def wake(self, provider_ids: ProviderIDs) -> None:
        """Something that requests may wait for has changed."""
        if provider_ids == REACHED_AGAIN:
            self._look_soon(self.pending.waiting_for(provider_ids))
        elif provider_ids == ALL_PROVIDER_IDS:
            self._to_judge.add(tuple(self.pending))  # no Machine has changed: there is nothing new to be glanced at
        else:
            self._to_peek_at.add(self.pending.waiting_for(provider_ids))

    def _look_soon(self, names: Sequence[str]) -> None:
        """Those that failed for the management cluster, one after the other: one that comes and goes does not have
        thousands judged each time, and is not asked for those of all clusters in the moment in which it is back.
        """
        first = self._random.uniform(0.0, SOON_SECONDS)
        for place, name in enumerate(names):
            self.queue.add_after(name, first + place / LOOKS_A_SECOND)

    def _judge_again(self, name: str) -> None:
        if name in self.pending:
            self.queue.add(name)

    def _peek_again(self, name: str) -> None:
        self.pending.peek_again(name)
        self._judge_again(name)

    def stop(self) -> None:
        """Take no more work."""
        self.queue.shutdown()

    def close(self) -> None:
        """The cluster is no longer served."""
        self._to_judge.clear()
        self._to_peek_at.clear()
        self.pending.close()

    def _forget_evicted(self) -> None:
        """Requests that made way for others are forgotten, and the cluster's condition says that some overflowed."""
        evicted = self.pending.take_evicted()
        for name in evicted:
            self._forget(name)
        if evicted:
            self._reachability.overflow_changed()

    def drop(self, name: str) -> None:
        """It is settled or gone."""
        self.pending.drop(name)
        self._forget(name)
        if self.pending.has_room_again:
            self.relist_wanted.set()

    def _forget(self, name: str) -> None:
        self._seen.pop(name, None)
        self._left_alone.discard(name)
        self._meanwhile.pop(name, None)
        self._changed_once.discard(name)
        self.queue.discard(name)
        for memory in self._memories:
            memory.forget(name)

    # Figures for metrics

    def waits_for_us(self, name: str) -> None:
        """It is kept, and is to be decided."""
        self._left_alone.discard(name)

    def is_left_alone(self, name: str) -> None:
        """It is kept for the day that the policy changes."""
        self._left_alone.add(name)

    def waiting(self) -> int:
        """How many of those that are kept are to be decided."""
        return len(self.pending) - len(self._left_alone)

    def oldest_seconds(self) -> float:
        """How long the oldest of them has been waiting since it was seen; 0 where there is none."""
        since = next((since for name, since in self._seen.items() if name not in self._left_alone), None)
        return 0.0 if since is None else self._monotonic() - since

    def queue_gauges(self, now: float) -> QueueGauges:
        """How the queue stands; ``now`` is the event loop's time."""
        return QueueGauges(len(self.queue), self.queue.oldest_seconds(now), self.queue.longest_processing_seconds(now))
