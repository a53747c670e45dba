"""Whether the controller's clock is that of the management API server: before that, time ends nothing. Pure, but for
:class:`Clocks`.

Certificates end by the nodes' clocks, and the end of a grant revokes only what has not ended by the controller's. A
controller whose clock is an hour ahead would end every grant, and revoke nothing, while nodes still accept the
certificates. So time counts only while two clocks agree.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeAlias

from signer.kube.calls import Get
from signer.kube.errors import ApiError
from signer.kube.server_clock import NoServerTime, ServerClock, ServerTimeAnswer
from signer.model.fields import format_time

MAXIMUM_DIFFERENCE: Final = timedelta(minutes=2)
ASKED_SECONDS: Final = 60.0
"""An answer of the API server that is older is not carried forward: another one is asked for."""
TRUSTED_SECONDS: Final = 300.0
"""And this old, it says nothing: a monotonic clock may stand still while a machine sleeps."""


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


def compare_clocks(now: datetime, server: ServerTimeAnswer) -> ClockAnswer:
    """Compare the controller's clock with the API server's."""
    if isinstance(server, NoServerTime) or server.age_seconds > TRUSTED_SECONDS:
        return ClockUnknown("the management API server has not told its time for five minutes (header Date)")
    if abs(now - server.moment) <= MAXIMUM_DIFFERENCE:
        return ClocksAgree()
    return ClocksDiffer(
        f"the controller's clock says {format_time(now)}, the management API server's {format_time(server.moment)}: "
        "set the wrong one; until then grants get no certificates, and none ends by time",
        server.moment,
    )


def latest(now: datetime, clocks: ClockAnswer) -> datetime:
    """The later of the two times: what has not ended by it has not ended."""
    return max(now, clocks.server) if isinstance(clocks, ClocksDiffer) else now


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

    def __init__(self, client: Get, server: ServerClock, now: Callable[[], datetime]) -> None:
        """``server`` hears the answers to ``client``."""
        self._client = client
        self._server = server
        self._now = now

    def answer(self) -> ClockAnswer:
        """See ClockAnswers."""
        return compare_clocks(self._now(), self._server.now())

    async def fresh(self, path: str) -> ClockAnswer:
        """See ClockAnswers. A refusal has a Date, too."""
        server = self._server.now()
        if isinstance(server, NoServerTime) or server.age_seconds > ASKED_SECONDS:
            with contextlib.suppress(ApiError):
                await self._client.get(path)
        return self.answer()


__all__ = [
    "ClockAnswer",
    "ClockAnswers",
    "ClockUnknown",
    "Clocks",
    "ClocksAgree",
    "ClocksDiffer",
    "compare_clocks",
    "latest",
]
