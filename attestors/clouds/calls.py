"""Calls to clouds for asyncio callers: bounded threads, a bounded queue, and a deadline per call.

Cloud libraries are synchronous. A hanging cloud must neither block the event loop, nor accumulate threads, nor delay
answers of other services. Each service therefore has threads of its own for each of its sites, and a call that finds
no free place fails at once, like an outage.

"""

from __future__ import annotations

import asyncio
import contextlib
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
    """The deadline of a call, however many exchanges it consists of."""

    def __init__(
        self, service: str, seconds: float, clock: Callable[[], float] = time.monotonic, *, site: str = ""
    ) -> None:
        self.service = service
        self.site = site
        self._clock = clock
        self._end = clock() + seconds

    def remaining(self) -> float:
        """Remaining seconds.

        Raises:
            CloudTimeout: the deadline has passed.
        """
        left = self._end - self._clock()
        if left <= 0:
            raise too_slow(self.service, self.site)
        return left


def too_slow(service: str, site: str = "") -> CloudTimeout:
    """The error of a call that exceeded its deadline."""
    return CloudTimeout(service, "did not answer in time" + (f" ({site})" if site else ""))


def answered(answer: object) -> CloudCallOutcome:
    """The outcome of a call that got an answer, for services whose every answer counts as success."""
    return CloudCallOutcome.OK


class _Flow:
    """The threads for one site of a service."""

    def __init__(self, threads: int, waiting: int) -> None:
        self.pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="cloud call")
        self.places = threading.BoundedSemaphore(threads + waiting)

    def leave(self, future: Future[Any]) -> None:
        """Free a place."""
        self.places.release()


class CloudCalls:
    """Runs synchronous calls in its own threads.

    Args:
        threads: concurrent calls per service, or per site of a service with several sites.
        waiting: further calls that may wait for a thread.
        deadline_seconds: per call, counted from the start of ``run``.
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
        """The answer of ``call``, which must respect its deadline; this method returns at the deadline in any case.

        ``service`` is a name from code or from the operator, and ``operation`` a name from code. Both are reported to
        the observer of calls, so neither may depend on a node's input. ``site`` is the service's site, such as a
        Region, out of a known set: a node may choose one, and delays no call to another. ``outcome_of`` classifies an
        answer that may still be an error of the service.

        Raises:
            CloudUnavailable: too many concurrent calls, or too slow.
            Exception: the exception of ``call``.
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
            # A cancelled call is reported too: its answer took longer than a request may.
            cloud_called(CloudCall(service, operation, outcome, time.monotonic() - began))

    async def _run(self, service: str, site: str, call: Callable[[Deadline], _Answer]) -> _Answer:
        flow = self._flow(service, site)
        if not flow.places.acquire(blocking=False):
            raise CloudThrottled(service, "not called: too many calls are in progress already")
        deadline = Deadline(service, self._deadline_seconds, site=site)
        with contextlib.ExitStack() as undo:
            undo.callback(flow.places.release)
            future = flow.pool.submit(call, deadline)
            undo.pop_all()
        # The place becomes free with the thread, not when the caller stops waiting.
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
        """Start no more calls, and wait for those in progress."""
        with self._opening:
            flows = tuple(self._flows.values())
        for flow in flows:
            flow.pool.shutdown(wait=True, cancel_futures=True)


@functools.cache
def shared_calls() -> CloudCalls:
    """The threads of this process, which the attestors of all workload clusters share."""
    return CloudCalls()
