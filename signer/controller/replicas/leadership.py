"""Takes, keeps and releases the Lease by which one of several replicas leads.

Nothing that is decided rests upon the Lease: journal, resourceVersion and UID see to that, also while two replicas
believe that they lead (``tests/integration/test_races.py``). It saves work, and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from random import SystemRandom
from types import MappingProxyType
from typing import Final, NoReturn

from signer.configuration import LeaderElection
from signer.kube.calls import GetCreateReplace
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from signer.kube.resources import LEASES
from signer.model.decision import printable
from signer.model.lease import JITTER_FACTOR, InvalidLease, Lease, changed_lease, new_lease, parse_lease, released
from signer.rules.leadership import Create, Election, Leading, Lost, Seen, StandingBy, Update, Wait

_LOG = logging.getLogger(__name__)
_RANDOM: Final = SystemRandom()
RELEASE_SECONDS: Final = 0.9
"""For a handshake and two writes at the end; without them a standby takes over when the Lease has run out."""


class LeadershipLost(Exception):
    """This process led and does so no more; the message says why."""


def new_identity() -> str:
    """What Leases call this process and no other.

    Pods have their name for a host name; the rest tells a container from the one that it replaced.
    """
    return f"{socket.gethostname()[:100]}_{uuid.uuid4()}"


class Leadership:
    """One replica's part in the election."""

    def __init__(
        self,
        calls: GetCreateReplace,
        namespace: str,
        election: LeaderElection,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        identity: str = "",
        labels: Mapping[str, str] = MappingProxyType({}),
        annotations: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """``namespace`` is the controller's own. No call of ``calls`` may take longer than half the renew deadline.

        ``identity`` is by default a new one; ``labels`` and ``annotations`` are of each Lease that this replica
        makes or renews: by them others find it, so who removes them must not hide this replica for good.
        """
        self._calls = calls
        self._namespace = namespace
        self._name = election.lease_name
        self._times = election.times
        self._now = now
        self._monotonic = monotonic
        self._labels = labels
        self._annotations = annotations
        self._election = Election(identity or new_identity(), election.times)
        self._answered_at: float | None = None
        self._unanswered = False
        """Whether the last write was cut off, or failed in a way that leaves open whether it was carried out."""
        self._said = ""

    @property
    def identity(self) -> str:
        """What the Lease calls this process."""
        return self._election.identity

    def standing(self) -> Leading | StandingBy | Lost:
        """Whether this replica leads, at this moment."""
        return self._election.standing(self._monotonic())

    def is_in_touch(self) -> bool:
        """Whether the API server has said within a Lease's duration who holds it."""
        duration = self._times.lease_duration.total_seconds()
        return self._answered_at is not None and self._monotonic() - self._answered_at < duration

    async def lead(self) -> None:
        """Return when this replica leads. However long the API server cannot be reached, it goes on trying."""
        while True:
            await self._attempt()
            if isinstance(self.standing(), Leading):
                return
            await asyncio.sleep(self._pause())

    async def hold(self) -> NoReturn:
        """Renew the Lease until cancelled.

        Raises:
            LeadershipLost: somebody else has it, or it could not be renewed in time.
        """
        while True:
            left = self._seconds_left()
            await asyncio.sleep(min(self._pause(), left))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._seconds_left())):
                    await self._attempt()
            self._seconds_left()

    async def release(self) -> None:
        """Let a standby take over at once. To be called when all work has ended; never raises ApiError."""
        if not isinstance(self.standing(), Leading) and not self._unanswered:
            return
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                if self._unanswered:
                    self._read(await self._calls.get(self._path))
                try:
                    await self._give_up()
                except Conflict:  # somebody else changed something in it
                    self._read(await self._calls.get(self._path))
                    await self._give_up()
        except (ApiError, InvalidLease, TimeoutError) as error:
            _LOG.warning("cannot release the Lease: it runs out", extra={"error": str(error) or type(error).__name__})

    async def _give_up(self) -> None:
        """Raises ApiError. What another replica holds is left to it."""
        seen = self._election.seen
        if isinstance(seen, Seen) and seen.lease.holding.holder == self.identity:
            body = changed_lease(seen.lease, released(seen.lease.holding, self._now()))
            self._read(await self._calls.replace(self._path, body))
            _LOG.info("released the Lease")

    def _seconds_left(self) -> float:
        """Raises LeadershipLost where there are none."""
        standing = self.standing()
        if isinstance(standing, Leading):
            return standing.until - self._monotonic()
        raise LeadershipLost(standing.message if isinstance(standing, Lost) else "it was never had")

    def _pause(self) -> float:
        """One retry period, and jitter that keeps replicas apart: at most what the renew deadline must allow for."""
        return self._times.retry_period.total_seconds() * _RANDOM.uniform(1.0, JITTER_FACTOR)

    async def _attempt(self) -> None:
        """One attempt to take or to renew it; a fault is logged, once for as long as it stays the same."""
        try:
            await self._take_or_renew()
            self._say_who_leads()
        except (ApiError, InvalidLease) as error:
            self._say(logging.WARNING, "cannot take or renew the Lease", str(error))

    async def _take_or_renew(self) -> None:
        if isinstance(self.standing(), Leading):
            # A renewal is one write while nobody else has written.
            with contextlib.suppress(Conflict, NotFound):
                await self._write()
                return
        try:
            self._read(await self._calls.get(self._path))
        except NotFound:
            self._election = self._election.found_none()
        with contextlib.suppress(Conflict, AlreadyExists):  # another replica was faster; the next attempt sees it
            await self._write()

    async def _write(self) -> None:
        """Raises ApiError; Conflict or AlreadyExists where another replica was faster."""
        began = self._monotonic()
        turn = self._election.turn(began, self._now())
        if isinstance(turn, Wait):
            return
        self._unanswered = True
        try:
            answer = await self._send(turn)
        except ApiError as error:
            self._unanswered = error.status is None or not 400 <= error.status < 500
            raise
        self._unanswered = False
        self._election = self._election.wrote(self._parsed(answer), began, self._monotonic())

    async def _send(self, turn: Create | Update) -> JsonObject:
        described = {"labels": self._labels, "annotations": self._annotations}
        if isinstance(turn, Create):
            body = new_lease(self._name, self._namespace, turn.holding, **described)
            return await self._calls.create(LEASES.collection(self._namespace), body)
        return await self._calls.replace(self._path, changed_lease(turn.lease, turn.holding, **described))

    def _read(self, manifest: JsonObject) -> None:
        self._election = self._election.read(self._parsed(manifest), self._monotonic())

    def _parsed(self, manifest: JsonObject) -> Lease:
        lease = parse_lease(manifest)
        self._answered_at = self._monotonic()
        return lease

    @property
    def _path(self) -> str:
        return LEASES.object(self._name, self._namespace)

    def _say_who_leads(self) -> None:
        standing = self.standing()
        if isinstance(standing, StandingBy):
            self._say(logging.INFO, "standing by", f"led by {printable(standing.holder) or 'nobody yet'}")
        else:
            self._said = ""

    def _say(self, level: int, message: str, detail: str) -> None:
        if (said := f"{message} {detail}") != self._said:
            self._said = said
            _LOG.log(level, message, extra={"detail": detail, "lease": f"{self._namespace}/{self._name}"})
