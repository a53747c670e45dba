"""A queue of keys for workers in one event loop.

The semantics are client-go's (``client-go/util/workqueue``): a key stands for "look at this object again", so it is in
the queue at most once, is never with two workers at once, and when added while a worker has it, comes again afterwards.
Which of the ready keys comes next is a matter of their flows (``signer.kube.fair_queue``). Time is the event loop's.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from random import Random, SystemRandom
from typing import Generic, TypeVar

from signer.kube.backoff import Backoff
from signer.kube.fair_queue import FairQueue
from signer.model.flow import ONE_FLOW, Flow

Key = TypeVar("Key", bound=Hashable)

DEFAULT_BACKOFF = Backoff(base_seconds=0.5, maximum_seconds=300.0, jitter=1.0)
_STALE_ENTRIES_KEPT = 64


def _loop_time(now: float | None) -> float:
    return asyncio.get_running_loop().time() if now is None else now


class QueueClosed(Exception):
    """The queue was shut down and holds nothing more for workers."""


class WorkQueue(Generic[Key]):
    """Keys to work on: now, later, or again after a failure. Made and used in one event loop.

    ``flow_of`` is asked each time a key becomes ready; by default all keys are in one flow, first come, first served.
    """

    def __init__(
        self,
        *,
        backoff: Backoff = DEFAULT_BACKOFF,
        random: Random | None = None,
        flow_of: Callable[[Key], Flow] = lambda key: ONE_FLOW,
    ) -> None:
        self._backoff = backoff
        self._flow_of = flow_of
        self._unattended: Callable[[], None] = lambda: None
        self._random = random if random is not None else SystemRandom()
        self._ready: OrderedDict[Key, float] = OrderedDict()  # key -> since when, oldest first
        self._order: FairQueue[Key] = FairQueue()  # of the ready keys
        self._processing: dict[Key, float] = {}  # key -> since when
        self._again: dict[Key, float] = {}  # added while processing -> since when
        self._due: dict[Key, tuple[float, int]] = {}  # delayed key -> (loop time, serial): the valid heap entry
        self._heap: list[tuple[float, int, Key]] = []
        self._serial = 0
        self._failures: dict[Key, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    # Adding

    def call_when_unattended(self, call: Callable[[], None]) -> None:
        """From now on ``call`` each time a key becomes ready while no worker waits for one: a worker is missing."""
        self._unattended = call

    def add(self, key: Key) -> None:
        """Work on ``key`` when its turn comes; a pending later time for it is dropped. One that is ready changes to
        its present flow.
        """
        if self._closed:
            return
        self._due.pop(key, None)
        now = asyncio.get_running_loop().time()
        if key in self._processing:
            self._again.setdefault(key, now)
        elif key in self._ready:
            self._order.put(key, self._flow_of(key))
        else:
            self._make_ready(key, now)

    def add_after(self, key: Key, seconds: float) -> None:
        """Work on ``key`` after ``seconds``, or earlier where it is waiting already."""
        if seconds <= 0:
            self.add(key)
            return
        if self._closed or key in self._ready or key in self._again:
            return
        due = asyncio.get_running_loop().time() + seconds
        known = self._due.get(key)
        if known is not None and known[0] <= due:
            return
        self._serial += 1
        self._due[key] = (due, self._serial)
        heapq.heappush(self._heap, (due, self._serial, key))
        self._compact()
        self._set_timer()

    def retry(self, key: Key) -> float:
        """Work on ``key`` again after its own backoff, which grows with each call; returns the seconds."""
        attempt = self._failures.get(key, 0)
        self._failures[key] = attempt + 1
        seconds = self._backoff.delay(attempt, self._random)
        self.add_after(key, seconds)
        return seconds

    def forget(self, key: Key) -> None:
        """``key`` succeeded: its backoff starts anew."""
        self._failures.pop(key, None)

    def discard(self, key: Key) -> None:
        """``key`` is no more: drop it wherever it waits. A worker that has it keeps it until ``done``."""
        self._ready.pop(key, None)
        self._order.discard(key)
        self._again.pop(key, None)
        self._due.pop(key, None)
        self._failures.pop(key, None)
        self._compact()

    # Working

    async def get(self) -> Key:
        """The key whose turn it is; the caller has it alone until ``done``.

        Raises QueueClosed after ``shutdown``.
        """
        while not self._ready:
            if self._closed:
                raise QueueClosed
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._getters:
                    self._getters.remove(waiter)
                elif self._ready and not self._wake_one():  # this getter was woken and goes away: it is for another
                    self._unattended()
                raise
        key = self._order.take()
        del self._ready[key]
        self._processing[key] = asyncio.get_running_loop().time()
        return key

    def done(self, key: Key) -> None:
        """The worker is through with ``key``. Raises KeyError where no worker had it."""
        del self._processing[key]
        since = self._again.pop(key, None)
        if since is not None:
            self._make_ready(key, since)

    def shutdown(self) -> None:
        """Take no more keys, and drop those that wait: what they stand for is found again at the next start.

        ``get`` raises QueueClosed.
        """
        self._closed = True
        self._due.clear()
        self._heap.clear()
        self._ready.clear()
        self._order = FairQueue()
        self._again.clear()
        self._set_timer()
        while self._getters:
            self._wake_one()

    def is_crowded(self, requester: str) -> bool:
        """Whether so many ready keys are that requester's that it is worth screening them before they are worked on."""
        return self._order.is_crowded(requester)

    def is_attended(self) -> bool:
        """Whether nothing is ready, and somebody waits for what will be: one more who waits is one too many."""
        return not self._ready and any(not waiter.done() for waiter in self._getters)

    def is_unattended(self) -> bool:
        """Whether something is ready, and nobody waits who could take it."""
        return bool(self._ready) and all(waiter.done() for waiter in self._getters)

    def call_if_unattended(self) -> None:
        """Call for a worker where something is ready, and none waits for it."""
        if self.is_unattended():
            self._unattended()

    def is_with_worker(self, key: Key) -> bool:
        """Whether a worker has ``key`` now."""
        return key in self._processing

    # Figures for metrics

    def __len__(self) -> int:
        """Keys that wait for a worker now."""
        return len(self._ready) + len(self._again)

    @property
    def delayed(self) -> int:
        """Keys that wait for their time."""
        return len(self._due)

    @property
    def processing(self) -> int:
        """Keys that are with a worker."""
        return len(self._processing)

    @property
    def failing(self) -> int:
        """Keys that were retried and not yet forgotten."""
        return len(self._failures)

    def oldest_seconds(self, now: float | None = None) -> float:
        """How long the longest-waiting ready key has waited; 0 where none waits. ``now`` is the event loop's time."""
        since = min((next(iter(waiting.values())) for waiting in (self._ready, self._again) if waiting), default=None)
        return 0.0 if since is None else _loop_time(now) - since

    def longest_processing_seconds(self, now: float | None = None) -> float:
        """How long a worker has had the same key at most; 0 where none works. ``now`` is the event loop's time."""
        since = min(self._processing.values(), default=None)
        return 0.0 if since is None else _loop_time(now) - since

    # Machinery

    def _make_ready(self, key: Key, since: float) -> None:
        self._ready[key] = since
        self._order.put(key, self._flow_of(key))
        if not self._wake_one():
            self._unattended()

    def _wake_one(self) -> bool:
        """Whether there was somebody to wake."""
        while self._getters:
            waiter = self._getters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return True
        return False

    def _compact(self) -> None:
        """Entries of keys that were dropped or moved stay in the heap; rebuild it before they outnumber the others."""
        if len(self._heap) > 2 * len(self._due) + _STALE_ENTRIES_KEPT:
            self._heap = [entry for entry in self._heap if self._is_valid(entry)]
            heapq.heapify(self._heap)
            self._set_timer()

    def _is_valid(self, entry: tuple[float, int, Key]) -> bool:
        return self._due.get(entry[2]) == (entry[0], entry[1])

    def _set_timer(self) -> None:
        while self._heap and not self._is_valid(self._heap[0]):
            heapq.heappop(self._heap)
        due = self._heap[0][0] if self._heap else None
        if self._timer is not None:
            if self._timer.when() == due and not self._timer.cancelled():
                return
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = asyncio.get_running_loop().call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        # The loop runs timers up to one clock tick early.
        now = asyncio.get_running_loop().time() + 0.001
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if self._is_valid(entry):
                self.add(entry[2])
        self._set_timer()
