"""A queue of keys for workers in one event loop.

The semantics are client-go's (``client-go/util/workqueue``): a key stands for "look at this object again", so it is in
the queue at most once, is never with two workers at once, and when added while a worker has it, comes again afterwards.
Which of the ready keys comes next is a matter of their flows (:class:`FairQueue`). Time is the event loop's.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from random import Random, SystemRandom
from typing import Final, Generic, TypeVar

from signer.kube.backoff import Backoff
from signer.model.flow import ONE_FLOW, Flow, PriorityLevel

Key = TypeVar("Key", bound=Hashable)

CROWD: Final = 64
"""Ready keys of one requester above which whoever takes an unfiltered one must screen it, and put it back."""
LOOKS: Final = 7
"""How many unfiltered keys of crowds may come in a row while others wait: about as dear as a turn of work."""
TURNS_OF_OTHERS: Final = {PriorityLevel.UNFILTERED: 7, PriorityLevel.UNKNOWN_MACHINE: 15, PriorityLevel.REFUSED: 31}
"""How many turns of work in a row may go to better ones while such a key waits; a late denial harms nobody."""


class FairQueue(Generic[Key]):
    """The keys that are ready, each in its flow: nobody's many keys are in the way of another's few.

    What was found plausible goes first, but never alone. Within that, requesters take turns; of one requester, the
    claimed provider IDs; of one provider ID, the public keys; and the keys of one flow come as they were added. Where
    many keys of one requester wait, those that nobody has looked at yet come before all others: looking is cheap, and
    only then it is known which of them deserve a turn. Adding, taking and discarding cost the same however many keys
    there are.
    """

    def __init__(self) -> None:
        self._rounds: dict[PriorityLevel, _Round[Key]] = {priority_level: _Round() for priority_level in PriorityLevel}
        self._crowds: _Round[Key] = _Round()  # of the unfiltered, those whose requesters have many keys
        self._looks = 0
        self._turns_of_others = dict.fromkeys(PriorityLevel, 0)
        self._flows: dict[Key, Flow] = {}
        self._waiting: dict[str, int] = {}  # requester -> keys

    def __len__(self) -> int:
        return len(self._flows)

    def put(self, key: Key, flow: Flow) -> None:
        """``key`` waits in that flow: behind the others in it, unless it is in it already."""
        if key in self._flows:
            if self._flows[key] == flow:
                return
            self.discard(key)
        self._flows[key] = flow
        self._round_of(flow).put(flow.path, key)
        waiting = self._waiting[flow.requester] = self._waiting.get(flow.requester, 0) + 1
        if waiting == CROWD + 1:
            self._rounds[PriorityLevel.UNFILTERED].hand_over(flow.requester, self._crowds)

    def take(self) -> Key:
        """The key whose turn it is; it waits no longer. Raises KeyError where none waits."""
        present = [priority_level for priority_level in PriorityLevel if self._rounds[priority_level]]
        if self._crowds and (self._looks < LOOKS or not present):
            self._looks += 1
            # From both ends in turn: neither who came first nor who has just come waits for all that lie between.
            key = self._crowds.take(from_both_ends=True)
        elif present:
            self._looks = 0
            key = self._rounds[self._whose_turn(present)].take(from_both_ends=False)
        else:
            raise KeyError("no key waits")
        self._forget(key)
        return key

    def discard(self, key: Key) -> None:
        """``key`` waits no longer, if it did."""
        flow = self._flows.get(key)
        if flow is not None:
            self._round_of(flow).discard(flow.path, key)
            self._forget(key)

    def is_crowded(self, requester: str) -> bool:
        """Whether more than ``CROWD`` keys of that requester wait."""
        return self._waiting.get(requester, 0) > CROWD

    def _round_of(self, flow: Flow) -> _Round[Key]:
        if flow.priority_level is PriorityLevel.UNFILTERED and self.is_crowded(flow.requester):
            return self._crowds
        return self._rounds[flow.priority_level]

    def _whose_turn(self, present: list[PriorityLevel]) -> PriorityLevel:
        turn = present[0]
        for priority_level in present[1:]:
            if self._turns_of_others[priority_level] >= TURNS_OF_OTHERS[priority_level]:
                turn = priority_level
                break
        for priority_level in present:
            self._turns_of_others[priority_level] = (
                0 if priority_level is turn else self._turns_of_others[priority_level] + 1
            )
        return turn

    def _forget(self, key: Key) -> None:
        requester = self._flows.pop(key).requester
        waiting = self._waiting[requester] = self._waiting[requester] - 1
        if waiting == CROWD:
            self._crowds.hand_over(requester, self._rounds[PriorityLevel.UNFILTERED])
        elif not waiting:
            del self._waiting[requester]


class _Line(Generic[Key]):
    """The keys of one flow."""

    __slots__ = ("_keys", "_newest_is_next")

    def __init__(self) -> None:
        self._keys: OrderedDict[Key, None] = OrderedDict()
        self._newest_is_next = True

    def __len__(self) -> int:
        return len(self._keys)

    def put(self, path: tuple[str, ...], key: Key) -> None:
        self._keys[key] = None

    def take(self, *, from_both_ends: bool) -> Key:
        key, _ = self._keys.popitem(last=from_both_ends and self._newest_is_next)
        if from_both_ends:
            self._newest_is_next = not self._newest_is_next
        return key

    def discard(self, path: tuple[str, ...], key: Key) -> None:
        del self._keys[key]


class _Round(Generic[Key]):
    """Names that take turns; behind each is a line of keys, or the round of the next part of the path."""

    __slots__ = ("_members",)

    def __init__(self) -> None:
        self._members: OrderedDict[str, _Round[Key] | _Line[Key]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._members)

    def put(self, path: tuple[str, ...], key: Key) -> None:
        name, rest = path[0], path[1:]
        member = self._members.get(name)
        if member is None:
            member = self._members[name] = _Round() if rest else _Line()
        member.put(rest, key)

    def take(self, *, from_both_ends: bool) -> Key:
        name = next(iter(self._members))
        member = self._members[name]
        key = member.take(from_both_ends=from_both_ends)
        if member:
            self._members.move_to_end(name)
        else:
            del self._members[name]
        return key

    def discard(self, path: tuple[str, ...], key: Key) -> None:
        name = path[0]
        member = self._members[name]
        member.discard(path[1:], key)
        if not member:
            del self._members[name]

    def hand_over(self, name: str, other: _Round[Key]) -> None:
        """What is behind that name, if anything is, takes its turns there."""
        member = self._members.pop(name, None)
        if member is not None:
            other._members[name] = member


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
