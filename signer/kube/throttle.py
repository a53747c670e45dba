"""How long one API server, which may be hostile, is left alone after it has taken CPU."""

from __future__ import annotations

import asyncio
from typing import Final

from signer.kube.errors import Cause, Unreachable
from signer.kube.resource_limits import RateLimiter

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
