"""Whether the clock by which one cluster's requests are decided is that of both API servers.

The workload API server stops only the decisions about its own cluster. A Date of its own choice gains it nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from signer.kube.calls import Get
from signer.kube.clocks import CLOCK_PATH, Clocks, ClocksAgree, ServerTimes
from signer.model.condition import CLOCKS_AGREE, PolicyCondition
from signer.model.decision import Deferred
from signer.model.reasons import Reason

WORKLOAD_API_SERVER: Final = "workload API server"
_RETRY: Final = timedelta(seconds=10)
_LOOK_SECONDS: Final = 60.0


class RequiredClocks(Protocol):
    """Says whether the clocks agree."""

    async def require_agree(self, now: datetime) -> None:
        """Check that ``now``, by which a request is decided, is the time of both API servers.

        Raises:
            Deferred: it is not, or one of them has not told its time.
        """
        ...


class NotCompared:
    """Implements :class:`RequiredClocks` for a dry run: the clock of the machine on which it runs decides nothing."""

    async def require_agree(self, now: datetime) -> None:
        """See RequiredClocks."""


@dataclass(frozen=True, slots=True)
class NotConnected:
    """There is no connection to the workload API server yet."""


class ClusterClocks:
    """Implements :class:`RequiredClocks` for one cluster. A source of condition ``ClocksAgree``, which exists only
    while it is False.
    """

    def __init__(
        self,
        management: Clocks,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        changed: asyncio.Event,
    ) -> None:
        """``management`` compares with the management API server. ``changed`` is set when the condition changes."""
        self._management = management
        self._workload: Clocks | NotConnected = NotConnected()
        self._now = now
        self._monotonic = monotonic
        self._changed = changed
        self.conditions: tuple[PolicyCondition, ...] = ()
        """For the policy's status."""

    def connected(self, client: Get, server: ServerTimes) -> None:
        """A connection to the workload API server begins; ``server`` hears its answers."""
        self._workload = Clocks(client, server, self._now, name=WORKLOAD_API_SERVER, monotonic=self._monotonic)

    async def require_agree(self, now: datetime) -> None:
        """See RequiredClocks."""
        message = await self._disagreement(lambda: now)
        if message:
            raise Deferred(Reason.CLOCKS_DIFFER, message, _RETRY)

    async def run(self) -> None:
        """Compare once a minute, until cancelled: the policy says so also where no request waits."""
        while True:
            await self._disagreement(self._now)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _disagreement(self, now: Callable[[], datetime]) -> str:
        """Why they do not agree; empty if they do."""
        message = await self._compared(now)
        found = (PolicyCondition(CLOCKS_AGREE, False, Reason.CLOCKS_DIFFER, message),) if message else ()
        # The times in the message pass: only another fault, or none, is news.
        if bool(found) is not bool(self.conditions):
            self.conditions = found
            self._changed.set()
        return message

    async def _compared(self, now: Callable[[], datetime]) -> str:
        answer = await self._management.fresh_at(now, CLOCK_PATH)
        if not isinstance(answer, ClocksAgree):
            return answer.message
        if isinstance(self._workload, NotConnected):
            return f"the {WORKLOAD_API_SERVER} has not told its time"
        answer = await self._workload.fresh_at(now, CLOCK_PATH)
        return "" if isinstance(answer, ClocksAgree) else answer.message
