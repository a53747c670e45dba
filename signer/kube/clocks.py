"""Whether the controller's clock is that of an API server: before that, time decides nothing. Pure, but for
:class:`Clocks`.

A certificate that a controller issues while its clock is ahead is valid for as much longer, and nothing revokes a
kubelet's certificate. SSH certificates end by the nodes' clocks, and the end of a grant revokes only what has not ended
by the controller's. So time counts only while two clocks agree.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeAlias

from signer.kube.calls import Get
from signer.kube.errors import ApiError
from signer.kube.server_clock import NoServerTime, ServerTimeAnswer
from signer.model.fields import format_time

MAXIMUM_DIFFERENCE: Final = timedelta(minutes=2)
ASKED_SECONDS: Final = 60.0
"""An answer of the API server that is older is not carried forward: another one is asked for."""
TRUSTED_SECONDS: Final = 300.0
"""And this old, it says nothing: a monotonic clock may stand still while a machine sleeps."""
ASK_AGAIN_SECONDS: Final = 5.0
"""An API server that answers without a Date, or not at all, is asked this often at most."""
CLOCK_PATH: Final = "/version"
"""What an API server is asked for, where no object is at hand: every authenticated client may read it."""
MANAGEMENT_API_SERVER: Final = "management API server"


@dataclass(frozen=True, slots=True)
class ClocksAgree:
    """They differ by ``MAXIMUM_DIFFERENCE`` at most."""


@dataclass(frozen=True, slots=True)
class ClocksDiffer:
    """They differ by more."""

    message: str
    server: datetime
    """The API server's time."""


@dataclass(frozen=True, slots=True)
class ClockUnknown:
    """The API server's time is not known now."""

    message: str


ClockAnswer: TypeAlias = ClocksAgree | ClocksDiffer | ClockUnknown


def compare_clocks(now: datetime, server: ServerTimeAnswer, name: str = MANAGEMENT_API_SERVER) -> ClockAnswer:
    """Compare the controller's clock with that of the API server ``name``."""
    if isinstance(server, NoServerTime) or server.age_seconds > TRUSTED_SECONDS:
        return ClockUnknown(f"the {name} has not told its time for five minutes (header Date)")
    if abs(now - server.moment) <= MAXIMUM_DIFFERENCE:
        return ClocksAgree()
    return ClocksDiffer(
        f"the controller's clock says {format_time(now)}, the {name}'s {format_time(server.moment)}: set the wrong one",
        server.moment,
    )


def latest(now: datetime, clocks: ClockAnswer) -> datetime:
    """The later of the two times: what has not ended by it has not ended."""
    return max(now, clocks.server) if isinstance(clocks, ClocksDiffer) else now


class ServerTimes(Protocol):
    """Tells an API server's time: :class:`~signer.kube.server_clock.ServerClock`."""

    def now(self) -> ServerTimeAnswer:
        """The server's time."""
        ...


class ClockAnswers(Protocol):
    """Says whether the clocks agree."""

    def answer(self) -> ClockAnswer:
        """By what is known."""
        ...

    async def fresh(self, path: str) -> ClockAnswer:
        """By an answer of the API server that is at most a minute old; ``path`` is an object to ask for, if there is
        none.
        """
        ...


class Clocks:
    """Implements :class:`ClockAnswers`."""

    def __init__(
        self,
        client: Get,
        server: ServerTimes,
        now: Callable[[], datetime],
        *,
        name: str = MANAGEMENT_API_SERVER,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``server`` hears the answers to ``client``. ``monotonic`` is a clock, in seconds."""
        self._client = client
        self._server = server
        self._now = now
        self._name = name
        self._monotonic = monotonic
        self._asking = asyncio.Lock()
        self._asked = float("-inf")
        self._asked_until = float("-inf")

    def answer(self) -> ClockAnswer:
        """See ClockAnswers."""
        return self.answer_at(self._now())

    def answer_at(self, now: datetime) -> ClockAnswer:
        """Whether that time is the server's, by what is known."""
        return compare_clocks(now, self._server.now(), self._name)

    async def fresh(self, path: str) -> ClockAnswer:
        """See ClockAnswers."""
        return await self.fresh_at(self._now, path)

    async def fresh_at(self, now: Callable[[], datetime], path: str) -> ClockAnswer:
        """The same for another clock than the controller's. A refusal has a Date, too.

        It waits for one call at most, whatever the number of callers: the one that is under way, or its own. Otherwise
        a server that holds each answer back would hold each request of a crowd for as many calls as there are others.
        """
        if self._is_old():
            came = self._monotonic()
            async with self._asking:
                if self._is_old() and self._asked_until < came and came - self._asked >= ASK_AGAIN_SECONDS:
                    await self._ask(path)
        return self.answer_at(now())

    async def _ask(self, path: str) -> None:
        self._asked = self._monotonic()
        try:
            with contextlib.suppress(ApiError):
                await self._client.get(path)
        finally:
            self._asked_until = self._monotonic()

    def _is_old(self) -> bool:
        server = self._server.now()
        return isinstance(server, NoServerTime) or server.age_seconds > ASKED_SECONDS


__all__ = [
    "CLOCK_PATH",
    "ClockAnswer",
    "ClockAnswers",
    "ClockUnknown",
    "Clocks",
    "ClocksAgree",
    "ClocksDiffer",
    "ServerTimes",
    "compare_clocks",
    "latest",
]
