"""Records Events in the management cluster, so that ``kubectl describe machine`` shows why its node did not join.

This is best effort and off the hot path: a bounded queue, one writer, and deduplication. Under load an Event may be
lost, but never a decision.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from attestors.net.rate_limiter import TokenBucket
from signer.kube.calls import Create
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError
from signer.kube.resources import EVENTS
from signer.model.explain_command import with_hint
from signer.model.fields import format_time

_LOG = logging.getLogger(__name__)
_QUEUE: Final = 1024
QUEUED_OF_ONE_NAMESPACE: Final = 256
"""A tenant with a hostile API server and many Machines would otherwise keep the queue full, and everybody else's Events
would be lost."""
_REMEMBERED: Final = 4096
BURST: Final = 25
"""Burst of Events about one object and reason: the requester controls part of their text."""
REFILL_SECONDS: Final = 300.0
"""After a burst, one more Event per interval (as in client-go's EventSourceObjectSpamFilter)."""
NORMAL_BURST: Final = 100
NORMAL_PER_SECOND: Final = 5.0
"""Limit for Normal Events about all objects together. When thousands of nodes join at once, they have little value, and
each would add a tenth to the API server's cost of a join. Five a second is client-go's default for a whole client."""
REPEAT_SECONDS: Final = 300.0
"""A repeated Event is written at most this often, with its count."""
COMPONENT: Final = "node-attestation-controller"


@dataclass(frozen=True, slots=True)
class Subject:
    """The object of an Event."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An occurrence; equal occurrences are repeats."""

    subject: Subject
    type: str
    """``Normal`` or ``Warning``."""
    reason: str
    message: str
    hint: str = field(default="", compare=False)
    """Appended to the message. Repeats may differ in it; the first hint is written."""


@dataclass(slots=True)
class _Remembered:
    first: datetime
    written_at: float
    count: int


class Recorder:
    """Queues Events and writes them in the background."""

    def __init__(
        self,
        client: Create,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        identity: str,
        component: str = COMPONENT,
    ) -> None:
        self._client = client
        self._component = component
        self._now = now
        self._monotonic = monotonic
        self._identity = identity
        self._queue: asyncio.Queue[Occurrence] = asyncio.Queue(_QUEUE)
        self._queued: Counter[str] = Counter()
        """By namespace."""
        self._remembered: OrderedDict[Occurrence, _Remembered] = OrderedDict()
        self._buckets: OrderedDict[tuple[Subject, str], TokenBucket] = OrderedDict()
        self._normal = TokenBucket(NORMAL_BURST, 1 / NORMAL_PER_SECOND, monotonic)
        self.dropped = 0

    def record(self, occurrence: Occurrence) -> None:
        """Queue an Event; never waits and never raises."""
        now = self._monotonic()
        remembered = self._remembered.get(occurrence)
        if remembered is not None and now - remembered.written_at < REPEAT_SECONDS:
            remembered.count += 1  # neither written nor charged again within the interval
            return
        namespace = occurrence.subject.namespace
        if not self._allow(occurrence) or self._queued[namespace] >= QUEUED_OF_ONE_NAMESPACE:
            self.dropped += 1
            return
        try:
            self._queue.put_nowait(occurrence)
        except asyncio.QueueFull:
            self.dropped += 1
            return
        self._queued[namespace] += 1
        if remembered is None:
            remembered = self._remembered[occurrence] = _Remembered(self._now(), now, 0)
            if len(self._remembered) > _REMEMBERED:
                self._remembered.popitem(last=False)
        remembered.written_at = now
        remembered.count += 1

    def _allow(self, occurrence: Occurrence) -> bool:
        """Whether the rate limits allow an Event.

        Each object and reason has its own bucket, so that forged requests that claim a Machine suppress only each
        other. An Event that exceeds its own bucket takes nothing from the shared one.
        """
        subject = (occurrence.subject, occurrence.reason)
        bucket = self._buckets.pop(subject, None) or TokenBucket(BURST, REFILL_SECONDS, self._monotonic)
        self._buckets[subject] = bucket
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        if not bucket.take_if_there():
            return False
        return occurrence.type != "Normal" or self._normal.take_if_there()

    async def run(self) -> None:
        """Write Events until cancelled."""
        while True:
            await self._write(await self._queue.get())

    async def flush(self) -> None:
        """Write the queued Events, and wait for the one that :meth:`run` is writing, before a shutdown."""
        while not self._queue.empty():
            await self._write(self._queue.get_nowait())
        await self._queue.join()

    async def _write(self, occurrence: Occurrence) -> None:
        subject = occurrence.subject
        remembered = self._remembered.get(occurrence) or _Remembered(self._now(), self._monotonic(), 1)
        try:
            await self._client.create(EVENTS.collection(subject.namespace), self._manifest(occurrence, remembered))
        except ApiError as error:
            _LOG.info("cannot write an Event", extra={"object": subject.name, "error": str(error)})
        finally:
            self._queue.task_done()
            self._queued[subject.namespace] -= 1
            if not self._queued[subject.namespace]:
                del self._queued[subject.namespace]

    def _manifest(self, occurrence: Occurrence, remembered: _Remembered) -> JsonObject:
        subject = occurrence.subject
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{subject.name[:200]}.{uuid.uuid4().hex[:16]}", "namespace": subject.namespace},
            "involvedObject": {
                "apiVersion": subject.api_version,
                "kind": subject.kind,
                "namespace": subject.namespace,
                "name": subject.name,
                "uid": subject.uid,
            },
            "type": occurrence.type,
            "reason": occurrence.reason,
            "message": with_hint(occurrence.message, occurrence.hint),
            "firstTimestamp": format_time(remembered.first),
            "lastTimestamp": format_time(self._now()),
            "count": remembered.count,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._identity,
        }
