"""Leader election: acquires, renews and releases a Lease.

No decision depends on the Lease: journal, resourceVersion and UID keep decisions correct even while two replicas
believe that they lead (``tests/integration/test_races.py``). The Lease only avoids duplicate work.
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
"""Time for a handshake and two writes at the end. If it is not enough, a standby takes over when the Lease expires."""


class LeadershipLost(Exception):
    """This process led and lost its Lease; the message says why."""


def new_identity() -> str:
    """A unique holder identity for this process.

    A Pod's host name is its own name; the random part distinguishes a container from the one that it replaced.
    """
    return f"{socket.gethostname()[:100]}_{uuid.uuid4()}"


class Leadership:
    """One replica in the election."""

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

        ``identity`` is a new one by default. Each write of the Lease sets ``labels`` and ``annotations`` again: other
        replicas find the Lease by them, so removing them must not hide this replica for good.
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
        self._write_uncertain = False
        """Whether it is unknown if the API server carried out the last write."""
        self._last_logged = ""

    @property
    def identity(self) -> str:
        """The holder identity of this process."""
        return self._election.identity

    def standing(self) -> Leading | StandingBy | Lost:
        """Whether this replica leads now."""
        return self._election.standing(self._monotonic())

    def is_in_touch(self) -> bool:
        """Whether the API server has returned the Lease within the Lease's duration."""
        duration = self._times.lease_duration.total_seconds()
        return self._answered_at is not None and self._monotonic() - self._answered_at < duration

    async def lead(self) -> None:
        """Return when this replica leads. It keeps trying while the API server is unreachable."""
        while True:
            await self._attempt()
            if isinstance(self.standing(), Leading):
                return
            await asyncio.sleep(self._pause())

    async def renew_until_lost(self) -> NoReturn:
        """Renew the Lease until cancelled.

        Raises:
            LeadershipLost: another replica has the Lease, or it could not be renewed in time.
        """
        while True:
            seconds_left = self._seconds_left()
            await asyncio.sleep(min(self._pause(), seconds_left))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._seconds_left())):
                    await self._attempt()
            self._seconds_left()

    async def release(self) -> None:
        """Release the Lease so that a standby takes over at once.

        Call it when all work has ended. It never raises ApiError.
        """
        if not isinstance(self.standing(), Leading) and not self._write_uncertain:
            return
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                if self._write_uncertain:
                    self._read(await self._calls.get(self._path))
                try:
                    await self._release_if_held()
                except Conflict:  # another client changed the Lease
                    self._read(await self._calls.get(self._path))
                    await self._release_if_held()
        except (ApiError, InvalidLease, TimeoutError) as error:
            _LOG.warning(
                "cannot release the Lease, which will expire", extra={"error": str(error) or type(error).__name__}
            )

    async def _release_if_held(self) -> None:
        """Release the Lease unless another replica holds it. Raises ApiError."""
        seen = self._election.seen
        if isinstance(seen, Seen) and seen.lease.holding.holder == self.identity:
            body = changed_lease(seen.lease, released(seen.lease.holding, self._now()))
            self._read(await self._calls.replace(self._path, body))
            _LOG.info("released the Lease")

    def _seconds_left(self) -> float:
        """Seconds until the Lease counts as lost. Raises LeadershipLost if it is."""
        standing = self.standing()
        if isinstance(standing, Leading):
            return standing.until - self._monotonic()
        raise LeadershipLost(standing.message if isinstance(standing, Lost) else "the Lease was never held")

    def _pause(self) -> float:
        """One retry period plus jitter, within the renew deadline's allowance; the jitter keeps replicas apart."""
        return self._times.retry_period.total_seconds() * _RANDOM.uniform(1.0, JITTER_FACTOR)

    async def _attempt(self) -> None:
        """Try once to acquire or renew the Lease. The same failure is logged once."""
        try:
            await self._take_or_renew()
            self._log_leader()
        except (ApiError, InvalidLease) as error:
            self._log_once(logging.WARNING, "cannot take or renew the Lease", str(error))

    async def _take_or_renew(self) -> None:
        if isinstance(self.standing(), Leading):
            # A renewal takes one write unless another client has written.
            with contextlib.suppress(Conflict, NotFound):
                await self._write()
                return
        try:
            self._read(await self._calls.get(self._path))
        except NotFound:
            self._election = self._election.found_none()
        with contextlib.suppress(Conflict, AlreadyExists):  # another replica was faster; the next attempt reads it
            await self._write()

    async def _write(self) -> None:
        """Raises ApiError; Conflict or AlreadyExists if another replica was faster."""
        began = self._monotonic()
        turn = self._election.turn(began, self._now())
        if isinstance(turn, Wait):
            return
        self._write_uncertain = True
        try:
            answer = await self._send(turn)
        except ApiError as error:
            self._write_uncertain = error.status is None or not 400 <= error.status < 500
            raise
        self._write_uncertain = False
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

    def _log_leader(self) -> None:
        standing = self.standing()
        if isinstance(standing, StandingBy):
            self._log_once(logging.INFO, "standing by", f"led by {printable(standing.holder) or 'nobody yet'}")
        else:
            self._last_logged = ""

    def _log_once(self, level: int, message: str, detail: str) -> None:
        if (line := f"{message} {detail}") != self._last_logged:
            self._last_logged = line
            _LOG.log(level, message, extra={"detail": detail, "lease": f"{self._namespace}/{self._name}"})
