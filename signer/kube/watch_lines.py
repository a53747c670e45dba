"""A watch as it comes over the wire: one event a line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

from signer.kube.errors import UnexpectedAnswer
from signer.kube.http.pool import Response
from signer.kube.resource_limits import MemoryQuota, MemoryQuotaExceeded
from signer.kube.throttle import Throttle

WATCH_READ_BYTES = 16 * 1024
"""At once, of a watch: some ten milliseconds of work at most, before others have the event loop."""
TOO_MANY_EVENTS = "too many large events are being read"


async def lines_of(
    answer: Response,
    throttle: Throttle,
    memory_quota: MemoryQuota,
    idle_seconds: float,
    ends_at: float,
    *,
    maximum_bytes: int,
) -> AsyncGenerator[bytes, None]:
    """Complete lines. Whoever takes them does what there is to do before asking for the next: that counts too.

    Raises:
        UnexpectedAnswer: one is too large, or cut off, or there is no room for it.
        TimeoutError: ``idle_seconds`` of silence, or it is past ``ends_at``, the event loop's time.
        MalformedAnswer, OSError: the stream broke.
    """
    loop = asyncio.get_running_loop()
    pending = bytearray()
    while True:
        async with asyncio.timeout(min(idle_seconds, max(0.0, ends_at - loop.time()))):
            chunk = await answer.read(WATCH_READ_BYTES)
        if loop.time() > ends_at:  # a stream that never pauses would never meet the timeout above
            raise TimeoutError
        if not chunk:
            break
        began = time.thread_time()
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            if len(pending) + len(line) > maximum_bytes:
                raise UnexpectedAnswer("the watch holds an event that is too large", status=200)
            yield bytes(pending + line) if pending else line
            pending.clear()
        pending += rest
        if len(pending) > maximum_bytes:
            raise UnexpectedAnswer("the watch holds an event that is too large", status=200)
        try:
            memory_quota.hold(len(pending))
        except MemoryQuotaExceeded:
            raise UnexpectedAnswer(TOO_MANY_EVENTS, status=200) from None
        await throttle.after(time.thread_time() - began)
    if pending:
        raise UnexpectedAnswer("the watch ended within an event", status=200)
