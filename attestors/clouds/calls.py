"""Calls to clouds for asyncio callers: a bounded number of threads, a bounded number that waits, a deadline for each.

The clouds' libraries are synchronous. A cloud that hangs must neither hold up the event loop nor pile up threads, nor
keep the answers of another from those who wait for them: each service has threads of its own, for each of its sites,
and what finds no place is refused at once, as an outage.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from attestors.clouds.errors import CloudError, CloudThrottled, CloudTimeout
from attestors.contract import CloudCall, CloudCallOutcome, cloud_called

DEADLINE_SECONDS: Final = 10.0
MAXIMUM_THREADS: Final = 8
MAXIMUM_WAITING: Final = 256

_Answer = TypeVar("_Answer")


class Deadline:
    """When a call must have ended, however many exchanges it consists of."""

    def __init__(
        self, service: str, seconds: float, clock: Callable[[], float] = time.monotonic, *, site: str = ""
    ) -> None:
        self.service = service
        self.site = site
        self._clock = clock
        self._end = clock() + seconds

    def remaining(self) -> float:
        """Seconds that are left.

        Raises:
            CloudTimeout: none.
        """
        left = self._end - self._clock()
        if left <= 0:
            raise too_slow(self.service, self.site)
        return left


def too_slow(service: str, site: str = "") -> CloudTimeout:
    """What a call ends with whose time is over."""
    return CloudTimeout(service, "did not answer in time" + (f" ({site})" if site else ""))


def answered(answer: object) -> CloudCallOutcome:
    """How a call ended that gave an answer, where any answer is one that was hoped for."""
    return CloudCallOutcome.OK


class _Flow:
    """The threads for one site of a service."""

    def __init__(self, threads: int, waiting: int) -> None:
        self.pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="cloud call")
        self.places = threading.BoundedSemaphore(threads + waiting)

    def leave(self, future: Future[Any]) -> None:
        """A place is free again."""
        self.places.release()


class CloudCalls:
    """Runs synchronous calls in threads of its own.

    Args:
        threads: how many calls to one service run at once; where it has several sites, to each of them.
        waiting: how many more may wait for a thread.
        deadline_seconds: for each call, from the moment it is asked for.
    """

    def __init__(
        self,
        *,
        threads: int = MAXIMUM_THREADS,
        waiting: int = MAXIMUM_WAITING,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._threads = threads
        self._waiting = waiting
        self._deadline_seconds = deadline_seconds
        self._flows: dict[tuple[str, str], _Flow] = {}
        self._opening = threading.Lock()

    async def run(
        self,
        service: str,
        operation: str,
        call: Callable[[Deadline], _Answer],
        *,
        site: str = "",
        outcome_of: Callable[[_Answer], CloudCallOutcome] = answered,
    ) -> _Answer:
        """The answer of ``call``, which must heed its deadline; the caller is told at the deadline in any case.

        ``service`` is one of the few that code or the operator names, and ``operation`` stands in code: both are told
        to whoever counts calls, and nothing that a node chooses may be among them. ``site`` is which of the service's
        it is, such as a Region, of a few that are known: a node may choose one, and holds up nobody at another.
        ``outcome_of`` says how a call ended whose answer may still be an error of the service.

        Raises:
            CloudUnavailable: too many calls at once, or too slow.
            Exception: what ``call`` raises.
        """
        began, outcome = time.monotonic(), CloudCallOutcome.ERROR
        try:
            answer = await self._run(service, site, call)
            outcome = outcome_of(answer)
            return answer
        except CloudError as error:
            outcome = error.call_outcome
            raise
        finally:
            # Nor is a call forgotten that nobody waits for any more: the answer took longer than a request may.
            cloud_called(CloudCall(service, operation, outcome, time.monotonic() - began))

    async def _run(self, service: str, site: str, call: Callable[[Deadline], _Answer]) -> _Answer:
        flow = self._flow(service, site)
        if not flow.places.acquire(blocking=False):
            raise CloudThrottled(service, "not asked: too many calls are under way already")
        deadline = Deadline(service, self._deadline_seconds, site=site)
        try:
            future = flow.pool.submit(call, deadline)
        except BaseException:
            flow.places.release()
            raise
        # The place is free again when the thread is, not when the caller stops waiting.
        future.add_done_callback(flow.leave)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._deadline_seconds)
        except TimeoutError:
            raise too_slow(service, site) from None

    def _flow(self, service: str, site: str) -> _Flow:
        with self._opening:
            if (service, site) not in self._flows:
                self._flows[service, site] = _Flow(self._threads, self._waiting)
            return self._flows[service, site]

    def close(self) -> None:
        """Start no more calls, and wait for those under way."""
        with self._opening:
            flows = tuple(self._flows.values())
        for flow in flows:
            flow.pool.shutdown(wait=True, cancel_futures=True)


@functools.cache
def shared_calls() -> CloudCalls:
    """The threads of this process; without them each workload cluster's attestor would have its own."""
    return CloudCalls()
