"""Limits that all clients of possibly hostile servers share: event loop time, and memory for large responses.

A server that sends without a pause, or responds without an end, meets the bounds of its own client. The limits here
bound a hundred of them together, and a server that behaves as an API server does never reaches them. `Throttle` delays
the calls and reads of one client after its server has used CPU time.

A tenant may have thousands of Clusters, and each change of a policy may make a new client. So the clients of one
namespace together have a share, too, which a new client does not renew.
"""

from __future__ import annotations

import asyncio
import copy
import math
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, Self

from attestors.net.rate_limiter import TokenBucket, TokenBuckets
from signer.kube.errors import Cause, Unreachable

LOOP_SHARE: Final = 0.5
"""Share of one core for all servers together, beyond their own shares. A thief's flood through an honest API server,
about 250 requests a second, takes a third of a core: the watch must keep up, because honest nodes' events follow."""
OWN_SHARE: Final = 0.002
"""Share of one core for each client alone, outside the shared limit: about twenty events a second."""
BURST_SECONDS: Final = 0.25
"""CPU time that may accumulate: about a thousand events."""
NAMESPACE_SHARE: Final = 0.1
"""The own shares of all clients of one namespace together: a thousand clusters with two events a second each."""
NAMESPACE_BURST_SECONDS: Final = 2.5
"""CPU time that may accumulate for them: most of what a thousand connections take when the controller starts."""
LARGE_BYTES: Final = 64 * 1024 * 1024
"""For all responses and events that are being read, beyond ``SMALL_BYTES`` of each."""
SMALL_BYTES: Final = 512 * 1024
"""Part of each response or event that does not count against the shared memory."""


class MemoryQuotaExceeded(Exception):
    """Other responses take so much memory now that none is left."""


class SharedMemory:
    """The memory for large responses that is left."""

    def __init__(self, bytes_left: int) -> None:
        self.bytes_left = bytes_left


class ResourceLimits:
    """The limits that several clients in one event loop share."""

    def __init__(
        self,
        *,
        large_bytes: int = LARGE_BYTES,
        loop_share: float = LOOP_SHARE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` is monotonic, in seconds."""
        self._clock = clock
        self._shared_bucket = _cpu_time(loop_share, clock)
        self._own_shares = TokenBucket(math.inf, 1.0, clock)
        """What the own shares of these clients may come to together."""
        self._namespaces: TokenBuckets[str] = TokenBuckets(NAMESPACE_BURST_SECONDS, 1 / NAMESPACE_SHARE, clock)
        """The same for the clients of each namespace."""
        self.memory = SharedMemory(large_bytes)

    @property
    def bytes_left(self) -> int:
        """Memory for large responses that is left."""
        return self.memory.bytes_left

    @classmethod
    def unlimited(cls) -> Self:
        """Unlimited, for a trusted server."""
        return cls(large_bytes=1 << 62, loop_share=1e9)

    def of_namespace(self, namespace: str) -> ResourceLimits:
        """The same limits, for the clients of one namespace's Clusters: their own shares are bounded together, too."""
        limits = copy.copy(self)
        limits._own_shares = self._namespaces.of(namespace)
        return limits

    def rate_limiter(self) -> RateLimiter:
        """A rate limiter for one client."""
        return RateLimiter(self._shared_bucket, self._own_shares, self._clock)

    @contextmanager
    def memory_quota(self) -> Generator[MemoryQuota, None, None]:
        """A memory quota for one response or one watch, released at the end of the block."""
        memory_quota = MemoryQuota(self.memory)
        try:
            yield memory_quota
        finally:
            memory_quota.hold(0)


class RateLimiter:
    """Limits the CPU time that one server uses: freely up to its own share, beyond that from the shared bucket."""

    def __init__(self, shared: TokenBucket, own_shares: TokenBucket, clock: Callable[[], float]) -> None:
        """``own_shares`` bounds the own shares of several clients together."""
        self._shared_bucket = shared
        self._own_shares = own_shares
        self._own = _cpu_time(OWN_SHARE, clock)

    def pause_after(self, cpu_seconds: float) -> float:
        """Seconds to leave the event loop to other work after this much CPU time."""
        if not self._own_shares.wait_seconds(cpu_seconds) and self._own.take_if_there(cpu_seconds):
            self._own_shares.take(cpu_seconds)
            return 0.0
        return self._shared_bucket.take(cpu_seconds)


def _cpu_time(share: float, clock: Callable[[], float]) -> TokenBucket:
    """A token bucket of seconds of CPU time that refills at that share of a core."""
    return TokenBucket(BURST_SECONDS, 1 / share, clock)


class MemoryQuota:
    """Memory for one response or watch that is being read."""

    def __init__(self, shared: SharedMemory) -> None:
        self._shared_memory = shared
        self._held = 0

    def hold(self, size: int) -> None:
        """Hold ``size`` bytes now, instead of the previous amount.

        Raises:
            MemoryQuotaExceeded: the memory is not available.
        """
        more = max(0, size - SMALL_BYTES) - self._held
        if more > self._shared_memory.bytes_left:
            raise MemoryQuotaExceeded
        self._shared_memory.bytes_left -= more
        self._held += more


LONGEST_THROTTLE_SECONDS: Final = 150.0
CALL_THROTTLE_SECONDS: Final = 30.0
"""Maximum throttling before a call and after its response: a decision waits for the call. A call that would wait longer
fails."""


class Throttle:
    """Delays the calls and reads of one client."""

    def __init__(self, rate_limiter: RateLimiter, authority: str) -> None:
        """``authority`` is host and port, for messages."""
        self._rate_limiter = rate_limiter
        self._authority = authority
        self._charged = 0.0
        """Seconds of CPU time used for this server that no pause has covered yet."""
        self._until = 0.0
        """Time on the event loop's clock before which no call begins, because a call may need a new connection."""

    def charge(self, cpu_seconds: float) -> None:
        """Charge CPU time: the next read or call is delayed for it."""
        self._charged += cpu_seconds

    async def after(self, cpu_seconds: float = 0.0, *, maximum: float = LONGEST_THROTTLE_SECONDS) -> float:
        """Pause for this work and all charged time, at most ``maximum`` seconds; returns the seconds waited."""
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
        """Before a call, pause for all charged time and until running pauses end; returns the seconds waited.

        Raises:
            Unreachable: the pause would be longer than ``maximum``.
        """
        charged, self._charged = self._charged, 0.0
        if charged:
            self._not_before(self._rate_limiter.pause_after(charged))
        pause = max(0.0, self._until - asyncio.get_running_loop().time())
        if pause > maximum:
            raise Unreachable(
                f"throttled: the API server exceeded its CPU budget ({self._authority})", cause=Cause.TIMEOUT
            )
        if pause:
            await asyncio.sleep(pause)
        return pause

    def _not_before(self, pause: float) -> None:
        until = asyncio.get_running_loop().time() + min(pause, LONGEST_THROTTLE_SECONDS)
        self._until = max(self._until, until)
