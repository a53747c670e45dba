"""Events in the management cluster, so that ``kubectl describe machine`` says why its node did not join.

Best effort and off the hot path: a bounded queue, one writer, repeats counted instead of written. What is lost under
load is an Event, never a decision.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import OrderedDict
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
from signer.model.kubernetes_time import format_time

_LOG = logging.getLogger(__name__)
_QUEUE: Final = 256
_REMEMBERED: Final = 4096
BURST: Final = 25
"""Events about one object at once, whatever they say: their text is partly the requester's to choose."""
REFILL_SECONDS: Final = 300.0
"""After a burst, one more Event about that object each so many seconds (as client-go's EventSourceObjectSpamFilter)."""
NORMAL_BURST: Final = 100
NORMAL_PER_SECOND: Final = 5.0
"""Events about what went well, about all objects together: where thousands of nodes join at once nobody reads them all,
and each would cost the join's API server a tenth more. Five a second is client-go's default for a whole client."""
REPEAT_SECONDS: Final = 300.0
"""The same Event about the same object is written again at most this often, with its count."""
COMPONENT: Final = "node-attestation-controller"


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One thing that happened; equal ones are repeats."""

    subject: Subject
    type: str
    """``Normal`` or ``Warning``."""
    reason: str
    message: str
    hint: str = field(default="", compare=False)
    """Put behind the message. Repeats may differ in it: the first one's is written."""


@dataclass(slots=True)
class _Remembered:
    first: datetime
    written_at: float
    count: int


class Recorder:
    """Takes Events and writes them when there is time."""

    def __init__(
        self, client: Create, *, now: Callable[[], datetime], monotonic: Callable[[], float], identity: str
    ) -> None:
        self._client = client
        self._now = now
        self._monotonic = monotonic
        self._identity = identity
        self._queue: asyncio.Queue[Occurrence] = asyncio.Queue(_QUEUE)
        self._remembered: OrderedDict[Occurrence, _Remembered] = OrderedDict()
        self._resource_limits: OrderedDict[tuple[Subject, str], TokenBucket] = OrderedDict()
        self._normal = TokenBucket(NORMAL_BURST, 1 / NORMAL_PER_SECOND, monotonic)
        self.dropped = 0

    def record(self, occurrence: Occurrence) -> None:
        """Remember that it happened; never waits and never raises."""
        now = self._monotonic()
        remembered = self._remembered.get(occurrence)
        if remembered is not None and now - remembered.written_at < REPEAT_SECONDS:
            remembered.count += 1  # neither written nor charged again so soon
            return
        if not self._allow(occurrence):
            self.dropped += 1
            return
        try:
            self._queue.put_nowait(occurrence)
        except asyncio.QueueFull:
            self.dropped += 1
            return
        if remembered is None:
            remembered = self._remembered[occurrence] = _Remembered(self._now(), now, 0)
            if len(self._remembered) > _REMEMBERED:
                self._remembered.popitem(last=False)
        remembered.written_at = now
        remembered.count += 1

    def _allow(self, occurrence: Occurrence) -> bool:
        """Each reason has its own allowance: forged requests that claim a Machine hide only each other. What one object
        has no allowance for takes nothing of what all have together.
        """
        subject = (occurrence.subject, occurrence.reason)
        allowance = self._resource_limits.pop(subject, None) or TokenBucket(BURST, REFILL_SECONDS, self._monotonic)
        self._resource_limits[subject] = allowance
        if len(self._resource_limits) > _REMEMBERED:
            self._resource_limits.popitem(last=False)
        if not allowance.take_if_there():
            return False
        return occurrence.type != "Normal" or self._normal.take_if_there()

    async def run(self) -> None:
        """Write Events until cancelled."""
        while True:
            await self._write(await self._queue.get())

    async def flush(self) -> None:
        """Write what is queued, and wait for what :meth:`run` is writing, for a shutdown that drains."""
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
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._identity,
        }
