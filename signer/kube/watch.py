"""List and watch one collection for as long as the process runs.

This is not the official client's loop, which spins on a clean end of stream and on 410. The order of calls (Kubernetes
API concepts, "Efficient detection of changes"): list all pages; watch from the list's resourceVersion with bookmarks;
watch again from the last resourceVersion received; list again when it is older than the server's history.

A watch that is accepted and then silent, without bookmarks, is either quiet or hangs. The loop lists again, which
answers the question: Kubernetes 1.20 sends no bookmarks for a collection without events, and that is no failure.

Every iteration waits at least half of ``Backoff.base_seconds``, whatever the server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random, SystemRandom
from typing import Any, NoReturn, Protocol

from signer.kube.backoff import Backoff
from signer.kube.calls import ListWatch
from signer.kube.client import LIST_PAGE_OBJECTS, WATCH_IDLE_SECONDS, JsonObject, Parameters
from signer.kube.errors import (
    ApiError,
    Cause,
    Forbidden,
    Gone,
    ServerError,
    TooManyRequests,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
    error_for_status,
    retry_after_seconds,
)
from signer.kube.scheduling import CooperativeYield

DEFAULT_BACKOFF = Backoff(base_seconds=0.2, maximum_seconds=30.0, jitter=0.5)
WATCH_SECONDS = 290.0
"""Below the five minutes after which many load balancers cut a connection; varied by ±10 %."""
STABLE_SECONDS = 10.0
"""A stream that lived this long shows that the server works."""
MAXIMUM_OBJECTS = 100_000
LIST_AFTER_SILENCE_SECONDS = 25.0
"""A list after a silent watch that takes longer is a failure: perhaps the watch hung, too. So a server that hangs is
reported two and a half minutes after it accepted a watch."""
FAILURES_BEFORE_RELIST = 5
"""A server that was restored from a backup refuses a resourceVersion of its future, but never with 410."""
_EMPTY_STREAMS_TOLERATED = 3
_RESOURCE_VERSION = re.compile(r"[!-~]{1,128}", re.ASCII)


class Sink(Protocol):
    """Receives the state of the collection. Its methods are called in order, and must neither block nor raise."""

    def replaced(self, objects: Sequence[JsonObject]) -> None:
        """The collection consists of exactly these objects now. (List items have no kind.)"""

    def applied(self, item: JsonObject) -> None:
        """One object was added or modified."""

    def removed(self, item: JsonObject) -> None:
        """One object was deleted; ``item`` is its last state."""

    def synced(self) -> None:
        """The server confirms that no change was missed up to now (by a list or a bookmark)."""

    def failed(self, error: ApiError, retry_in_seconds: float) -> None:
        """List or watch failed, and is retried after the delay. The known objects may be stale."""


class Census(Protocol):
    """Counts the objects of the collection, for a sink that does not keep all of them."""

    def list_begins(self) -> None:
        """A list begins; an earlier one may have failed on its way."""

    def added(self, item: JsonObject) -> None:
        """The watch reports a new object. The sink is told next."""

    def needs_list(self) -> bool:
        """Whether the collection must be listed again, which the caller then does."""


class _NoCensus:
    def list_begins(self) -> None:
        """Nothing is counted."""

    def added(self, item: JsonObject) -> None:
        """Nothing is counted."""

    def needs_list(self) -> bool:
        """Never."""
        return False


NO_CENSUS: Census = _NoCensus()


class _ListNeeded(Exception):
    """The census needs a list."""


class _Next(enum.Enum):
    LIST = enum.auto()
    LIST_AFTER_SILENCE = enum.auto()
    """List within ``LIST_AFTER_SILENCE_SECONDS``."""
    WATCH = enum.auto()


async def list_and_watch(
    client: ListWatch,
    path: str,
    *,
    sink: Sink,
    params: Parameters | None = None,
    backoff: Backoff = DEFAULT_BACKOFF,
    timeout_seconds: float = WATCH_SECONDS,
    idle_seconds: float = WATCH_IDLE_SECONDS,
    page_limit: int = LIST_PAGE_OBJECTS,
    keep: Callable[[JsonObject], bool] = lambda item: True,
    maximum_objects: int = MAXIMUM_OBJECTS,
    established: Callable[[], None] = lambda: None,
    settle: Callable[[], Awaitable[None]] | None = None,
    census: Census = NO_CENSUS,
    clock: Callable[[], float] | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    random: Random | None = None,
) -> NoReturn:
    """Report the collection at ``path`` to ``sink`` until cancelled.

    ``params`` are selectors of every list and watch. Only those items of a list for which ``keep`` returns true are
    held and reported: other clients may fill a collection with unrelated objects. ``keep`` is called as a page arrives,
    and may cut an object down in place to the part that ``sink.replaced`` needs, so that no list is ever held whole.
    More than ``maximum_objects`` kept items are refused (UnexpectedAnswer to ``sink.failed``). After watches
    that were silent for ``idle_seconds``, the collection is listed again. ``established`` is called when an accepted
    watch has lived for ``STABLE_SECONDS``, even if it was silent. ``settle`` is awaited after each ``sink.replaced``,
    before anything else is reported, for the remaining work of a large list. ``census`` counts the objects. ``clock``
    (seconds, monotonic), ``sleep`` and ``random`` are for tests.

    Raises only what ``sink`` raises.
    """
    loop = _Loop(
        client=client,
        path=path,
        sink=sink,
        params=params or {},
        backoff=backoff,
        timeout_seconds=timeout_seconds,
        idle_seconds=idle_seconds,
        page_limit=page_limit,
        keep=keep,
        maximum_objects=maximum_objects,
        established=established,
        settle=settle,
        census=census,
        clock=clock if clock is not None else asyncio.get_running_loop().time,
        random=random if random is not None else SystemRandom(),
    )
    while True:
        await sleep(await loop.turn())


@dataclass(slots=True)
class _Loop:
    """The state between two iterations: where to watch from, and the number of consecutive failures."""

    client: ListWatch
    path: str
    sink: Sink
    params: Parameters
    backoff: Backoff
    timeout_seconds: float
    idle_seconds: float
    page_limit: int
    keep: Callable[[JsonObject], bool]
    maximum_objects: int
    established: Callable[[], None]
    settle: Callable[[], Awaitable[None]] | None
    census: Census
    clock: Callable[[], float]
    random: Random
    next: _Next = _Next.LIST
    resource_version: str = ""
    attempt: int = 0
    empty_streams: int = 0
    progressed: bool = False
    silent: bool = False
    """Whether the current watch was accepted and has sent nothing, not even a bookmark."""
    silent_seconds: float = 0.0
    """How long the consecutive watches before it were silent too."""

    async def turn(self) -> float:
        """One list, if one is needed, and one watch; returns the seconds to wait before the next iteration."""
        delay = await self._turn()
        # Silent watches add up, however short each is: a server that was restored from a backup may accept a version of
        # its future, and is silent until it reaches it.
        if self.next is _Next.WATCH and (self.silent_seconds > self.idle_seconds or self.census.needs_list()):
            self.next = _Next.LIST
        return delay

    async def _turn(self) -> float:
        watching_since: float | None = None
        try:
            self.progressed = self.silent = False
            if self.next is not _Next.WATCH:
                await self._list()
            watching_since = self.clock()
            await self._watch()
        except _ListNeeded:
            self.next = _Next.LIST
            self.attempt = self.empty_streams = 0
            return self.backoff.delay(0, self.random)
        except Gone as error:
            return self._failure(error, watching_since, _Next.LIST)
        except Unreachable as error:
            if self.silent and error.cause is Cause.SILENCE:
                return self._silence()
            # Silent, and did not end when it should have: a man in the middle may hold events back from each watch.
            overdue = self.silent and error.cause is Cause.TIMEOUT
            return self._failure(error, watching_since, _Next.LIST if overdue else self.next)
        except (TooManyRequests, ServerError, Unauthorized, Forbidden) as error:
            return self._failure(error, watching_since, self.next)
        except ApiError as error:
            return self._failure(error, watching_since, _Next.LIST)
        return self._clean_end(watching_since)

    def _clean_end(self, watching_since: float) -> float:
        """The stream ended cleanly. If streams repeatedly end at once, that is a failure all the same."""
        if self.clock() - watching_since >= STABLE_SECONDS or self.progressed:
            self.attempt = 0
            self.empty_streams = 0
            return self.backoff.delay(0, self.random)
        self.empty_streams += 1
        delay = self.backoff.delay(self.attempt, self.random)
        self.attempt += 1
        if self.empty_streams >= _EMPTY_STREAMS_TOLERATED:
            self.sink.failed(UnexpectedAnswer("the server ends every watch at once"), delay)
        return delay

    def _silence(self) -> float:
        """The watch was silent for ``idle_seconds``. The next list tells whether the server works."""
        self.attempt = self.empty_streams = 0
        self.next = _Next.LIST_AFTER_SILENCE
        return self.backoff.delay(0, self.random)

    def _failure(self, error: ApiError, watching_since: float | None, next_step: _Next) -> float:
        lived = watching_since is not None and self.clock() - watching_since >= STABLE_SECONDS
        # Events followed by 410, repeatedly, must back off; events followed by a broken connection need not.
        if lived or (self.progressed and isinstance(error, Unreachable)):
            self.attempt = 0
        delay = self.backoff.delay(self.attempt, self.random)
        if isinstance(error, (TooManyRequests, ServerError)) and error.retry_after_seconds is not None:
            delay = max(delay, error.retry_after_seconds)
        self.attempt += 1
        self.next = _Next.LIST if self.attempt >= FAILURES_BEFORE_RELIST else next_step
        self.sink.failed(error, delay)
        return delay

    async def _list(self) -> None:
        seconds = LIST_AFTER_SILENCE_SECONDS if self.next is _Next.LIST_AFTER_SILENCE else None
        self.next = _Next.LIST  # without a bound: a large list may need longer
        try:
            async with asyncio.timeout(seconds):
                objects, version = await self._list_pages()
        except TimeoutError:
            message = "timeout: the watch was silent, and then the list did not arrive in time"
            raise Unreachable(message, cause=Cause.TIMEOUT) from None
        self.resource_version = version
        self.next = _Next.WATCH
        self.silent_seconds = 0.0
        self.sink.replaced(objects)
        if self.settle is not None:
            await self.settle()
        self.sink.synced()

    async def _list_pages(self) -> tuple[list[JsonObject], str]:
        """The kept items, and the list's resourceVersion."""
        objects: list[JsonObject] = []
        version = ""
        self.census.list_begins()
        async with contextlib.aclosing(self.client.list_pages(self.path, self.params, self.page_limit)) as pages:
            async for page in pages:
                await self._take_page(page, objects)
                version = _resource_version(page)
                del page  # do not hold it while waiting for the next
        return objects, version

    async def _take_page(self, page: JsonObject, objects: list[JsonObject]) -> None:
        cooperative_yield = CooperativeYield()
        for item in page["items"]:
            if not isinstance(item, dict):
                raise UnexpectedAnswer("the list holds an item that is no object", status=200)
            if self.keep(item):
                objects.append(item)
            await cooperative_yield.leave_turn()
        if len(objects) > self.maximum_objects:
            raise UnexpectedAnswer(f"the list holds more than {self.maximum_objects} objects", status=200)

    async def _watch(self) -> None:
        query = {**self.params, "resourceVersion": self.resource_version, "allowWatchBookmarks": True}
        seconds = self.timeout_seconds * self.random.uniform(0.9, 1.1)
        stable: list[asyncio.TimerHandle] = []

        def accepted() -> None:
            self.silent = True
            stable.append(asyncio.get_running_loop().call_later(STABLE_SECONDS, self.established))

        events = self.client.watch(
            self.path, query, timeout_seconds=seconds, idle_seconds=self.idle_seconds, accepted=accepted
        )
        began = self.clock()
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    self._take(event)
                    del event  # do not hold it while waiting for the next
        finally:
            if self.silent:
                self.silent_seconds += self.clock() - began
            for timer in stable:
                timer.cancel()

    def _take(self, event: JsonObject) -> None:
        kind, item = event.get("type"), event.get("object")
        if not isinstance(item, dict):
            raise UnexpectedAnswer("the watch holds an event without an object", status=200)
        if kind == "ERROR":
            self.next = _Next.LIST  # changes may have been missed, whatever the error
            raise _error_of(item)
        if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):  # a tuple: the value may be unhashable
            raise UnexpectedAnswer("the watch holds an event of unknown type", status=200)
        self.silent, self.silent_seconds = False, 0.0
        version = _resource_version(item)
        if version != self.resource_version:
            self.resource_version = version
            self.progressed = True
        if kind == "BOOKMARK":
            self.sink.synced()
        elif kind == "DELETED":
            self.sink.removed(item)
        else:
            if kind == "ADDED":
                self.census.added(item)
            self.sink.applied(item)
        if self.census.needs_list():
            raise _ListNeeded


def _resource_version(item: JsonObject) -> str:
    """``metadata.resourceVersion``: opaque, but a bounded, non-empty string."""
    metadata = item.get("metadata")
    version: Any = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or _RESOURCE_VERSION.fullmatch(version) is None:
        raise UnexpectedAnswer("a list or event carries no resourceVersion", status=200)
    return version


def _error_of(status: JsonObject) -> ApiError:
    """The error of an in-stream ERROR event; its object is a Kubernetes Status."""
    code, reason, message, details = (status.get(field) for field in ("code", "reason", "message", "details"))
    pause = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    if not isinstance(code, int) or not 400 <= code <= 599:
        return UnexpectedAnswer("the watch holds an ERROR event that is no Kubernetes Status", status=200)
    return error_for_status(
        code,
        reason=reason if isinstance(reason, str) else "",
        message=message if isinstance(message, str) else "",
        retry_after_seconds=retry_after_seconds(pause if isinstance(pause, int) else None),
    )
