"""What all clients of servers that may be hostile have together: time of the event loop, and memory for large answers.

One server that sends without a pause, or answers without an end, meets the bounds of its own client. These bounds hold
for a hundred of them: together they take no more than a share, and whoever sends and answers as an API server does
never comes near it. `Throttle` is what one client waits by: how long its server is left alone after it has taken CPU.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, Self

from attestors.net.rate_limiter import TokenBucket
from signer.kube.errors import Cause, Unreachable

LOOP_SHARE: Final = 0.5
"""Of one core, for all servers together that have more to say than they should. A thief's flood through an honest API
server, some 250 requests a second, takes a third of one: the watch must keep up, for honest nodes come behind it."""
OWN_SHARE: Final = 0.002
"""Of one core, for each client by itself: some twenty events in each second, for which nobody has to ask."""
BURST_SECONDS: Final = 0.25
"""Of CPU time, which may be saved up: some thousand events."""
LARGE_BYTES: Final = 64 * 1024 * 1024
"""For all answers and events together that are being read, beyond what is small."""
SMALL_BYTES: Final = 512 * 1024
"""Of each answer or event, for which nobody has to ask."""


class MemoryQuotaExceeded(Exception):
    """Others are reading so much just now that there is no memory for more."""


class ResourceLimits:
    """Shared by clients, in one event loop."""

    def __init__(
        self,
        *,
        large_bytes: int = LARGE_BYTES,
        loop_share: float = LOOP_SHARE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock``: seconds, monotonic."""
        self._clock = clock
        self._shared_bucket = _cpu_time(loop_share, clock)
        self.bytes_left = large_bytes

    @classmethod
    def boundless(cls) -> Self:
        """For a server that is trusted."""
        return cls(large_bytes=1 << 62, loop_share=1e9)

    def rate_limiter(self) -> RateLimiter:
        """For one client."""
        return RateLimiter(self._shared_bucket, self._clock)

    @contextmanager
    def memory_quota(self) -> Generator[MemoryQuota, None, None]:
        """For one answer, or one watch."""
        memory_quota = MemoryQuota(self)
        try:
            yield memory_quota
        finally:
            memory_quota.hold(0)


class RateLimiter:
    """How fast one server may be read: up to its own share as it likes, beyond that as the crowd leaves room."""

    def __init__(self, crowd: TokenBucket, clock: Callable[[], float]) -> None:
        self._shared_bucket = crowd
        self._own = _cpu_time(OWN_SHARE, clock)

    def pause_after(self, cpu_seconds: float) -> float:
        """How many seconds to leave the event loop to others after this much work."""
        if self._own.take_if_there(cpu_seconds):
            return 0.0
        return self._shared_bucket.take(cpu_seconds)


def _cpu_time(share: float, clock: Callable[[], float]) -> TokenBucket:
    """Seconds of CPU time, of which that share of a core may be used."""
    return TokenBucket(BURST_SECONDS, 1 / share, clock)


class MemoryQuota:
    """Memory for what is being read."""

    def __init__(self, limits: ResourceLimits) -> None:
        self._shared_memory = limits
        self._held = 0

    def hold(self, size: int) -> None:
        """So many bytes are held now, instead of those of before.

        Raises:
            MemoryQuotaExceeded: they are not to be had.
        """
        more = max(0, size - SMALL_BYTES) - self._held
        if more > self._shared_memory.bytes_left:
            raise MemoryQuotaExceeded
        self._shared_memory.bytes_left -= more
        self._held += more


LONGEST_THROTTLE_SECONDS: Final = 150.0
CALL_THROTTLE_SECONDS: Final = 30.0
"""At most, before a call and after its answer: whoever calls has a request in hand. What asks for more fails."""


class Throttle:
    """The rests of one client."""

    def __init__(self, rate_limiter: RateLimiter, authority: str) -> None:
        """``authority``: host and port, for messages."""
        self._rate_limiter = rate_limiter
        self._authority = authority
        self._charged = 0.0
        """Seconds of CPU that were spent on this server, and no rest was taken after them yet."""
        self._until = 0.0
        """By the event loop's clock: no call begins before, for it may need a connection."""

    def charge(self, cpu_seconds: float) -> None:
        """So much was spent: whoever reads on, or asks next, rests."""
        self._charged += cpu_seconds

    async def after(self, cpu_seconds: float = 0.0, *, maximum: float = LONGEST_THROTTLE_SECONDS) -> float:
        """Leave the event loop to others for as long as this server, of all, has to, for this work and what is owed,
        ``maximum`` at most; returns the seconds.
        """
        charged, self._charged = self._charged, 0.0
        if not charged + cpu_seconds:
            return 0.0
        pause = self._rate_limiter.pause_after(charged + cpu_seconds)
        if charged:
            self._not_before(pause)
        pause = min(pause, maximum)
        if pause:
            await asyncio.sleep(pause)
        return pause

    async def before(self, *, maximum: float = LONGEST_THROTTLE_SECONDS) -> float:
        """The rest for what is owed, before a call, together with whoever rests already; returns the seconds.

        Raises:
            Unreachable: that is longer than ``maximum``.
        """
        charged, self._charged = self._charged, 0.0
        if charged:
            self._not_before(self._rate_limiter.pause_after(charged))
        pause = max(0.0, self._until - asyncio.get_running_loop().time())
        if pause > maximum:
            raise Unreachable(
                f"timeout: the server has had more than its share of time ({self._authority})", cause=Cause.TIMEOUT
            )
        if pause:
            await asyncio.sleep(pause)
        return pause

    def _not_before(self, pause: float) -> None:
        until = asyncio.get_running_loop().time() + min(pause, LONGEST_THROTTLE_SECONDS)
        self._until = max(self._until, until)
