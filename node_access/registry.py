"""The sessions of this node: registered at their login, prolonged, warned and ended.

sshd asks for principals for each certificate that a client offers, and again as soon as the client proves that it has
the key. So the certificate of the last question is the accepted one if the login succeeds, and it succeeds exactly if
sshd's process without privileges has ended, its parent has taken note, and goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Protocol

from attestors.wire.ssh.principals import UserPrincipal
from node_access.control_groups import Gone, NotAConnection
from node_access.machine import Machine, NotAsked
from node_access.node_files import NodeFiles
from node_access.principals import LoginRefused, UnknownRevocations, accepted_principals
from node_access.processes import NoProcess
from node_access.records import Records
from node_access.reports import Level, Report
from node_access.requests import PrincipalsRequest, RequestRefused, parse_request
from node_access.rules import End, EndReason, Warn, due, prolonged, without_early_warnings
from node_access.values import WITHOUT_END_SECONDS, Connection, Login, Moment, ProcessIdentity, Session, end_of

TICK_SECONDS: Final = 0.5
IDLE_TICK_SECONDS: Final = 5.0
HANG_UP_SECONDS: Final = 1.0
"""Between SIGHUP and the end."""
MESSAGE_SECONDS: Final = 0.2
"""Between the message and the end if the certificate is revoked: sshd must pass the message on."""
UNKNOWN_SECONDS: Final = 60.0
"""A connection that is older has logged in: sshd's LoginGraceTime is a third of that."""
MAXIMUM_SESSIONS: Final = 512
"""Twice as many as the socket takes connections: the end of one is noticed at the next tick."""
_LOOK_SECONDS: Final = 5.0
_MAXIMUM_SEEN: Final = 4096
_MAXIMUM_NAMED: Final = 16
"""Processes that left a connection, in the journal by name: who forks them could fill it."""
_MESSAGES: Final = {
    EndReason.EXPIRED: "This session ends: its certificate has run out.",
    EndReason.REVOKED: "This session ends: its certificate is revoked.",
    EndReason.UNKNOWN: "This session ends: its certificate is not known.",
}


class Clock(Protocol):
    """Time."""

    def now(self) -> float:
        """Unix time."""
        ...

    def monotonic(self) -> float:
        """Seconds since boot; nothing sets it."""
        ...


class SystemClock:
    """This machine's clock."""

    def now(self) -> float:
        """Unix time."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since boot. It goes on while the machine is suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class _Notes:
    """What is remembered about a connection while this program runs."""

    seen: set[ProcessIdentity] = field(default_factory=set)
    kill_at: float | None = None
    """When its end was begun, the monotonic time of the kill."""
    named: set[ProcessIdentity] = field(default_factory=set)
    """Those of which the journal tells that they have left."""


class Sessions:
    """All connections of this node. One thread uses it."""

    def __init__(
        self, machine: Machine, files: NodeFiles, records: Records, report: Callable[[Report], None], clock: Clock
    ) -> None:
        self._machine, self._files, self._records = machine, files, records
        self._report, self._clock = report, clock
        self._sessions: dict[Connection, Session] = {}
        self._notes: dict[Connection, _Notes] = {}
        self._unrecorded: set[Connection] = set()
        self._first_seen: dict[tuple[str, int], float] = {}
        self._alarm = ""
        self._next_look = 0.0

    def restore(self) -> None:
        """Continue where an earlier process of this program stopped."""
        sessions, unusable = self._records.load()
        for name in unusable:
            self._say(Level.WARNING, f"record {name} cannot be read; its connection counts as unknown")
        for session in sessions:
            self._sessions[session.connection] = session

    def answer(self, command: int, message: bytes) -> tuple[UserPrincipal, ...]:
        """Decide for a principals command, and register its connection.

        Raises:
            NotAsked, RequestRefused, LoginRefused: it gets no principals.
        """
        connection, unprivileged = self._machine.asking(command)
        request = parse_request(message)
        if request.certificate.valid_before <= self._clock.now():
            # sshd refuses it later, and then the client offers its next one: the connection must not end.
            raise LoginRefused("the certificate has run out")
        return self._register(connection, unprivileged, request, self._clock.monotonic())

    def undecided(self) -> list[Session]:
        """Sessions of which it will show whether the login succeeds."""
        return [
            session for session in self._sessions.values() if session.login is Login.PRESENTED and session.unprivileged
        ]

    def settle(self, connection: Connection) -> bool:
        """Look whether a login has succeeded or failed; returns whether that is decided."""
        session = self._sessions.get(connection)
        if session is None or session.login is not Login.PRESENTED:
            return True
        collected = all(map(self._machine.processes.is_collected, session.unprivileged))
        if not self._machine.processes.runs(connection.monitor):
            return True
        if not collected or not session.unprivileged:
            return False
        self._logged_in(session.succeeded())
        return True

    def tick(self) -> float:
        """Do what is due; returns the seconds until the next time."""
        self._watch_revocations()
        for session in self.undecided():
            self.settle(session.connection)
        for session in list(self._sessions.values()):
            if self._machine.exists(session.connection):
                self._step(session)
            else:
                self._over(session)
        if self._clock.monotonic() >= self._next_look:
            self._next_look = self._clock.monotonic() + _LOOK_SECONDS
            self._look_around()
        return self._pause()

    def _register(
        self,
        connection: Connection,
        unprivileged: tuple[ProcessIdentity, ...],
        request: PrincipalsRequest,
        began: float,
    ) -> tuple[UserPrincipal, ...]:
        known = self._sessions.get(connection)
        if known is not None and known.login is Login.SUCCEEDED:
            raise NotAsked("the connection is logged in already")
        if known is None and len(self._sessions) >= MAXIMUM_SESSIONS:
            raise LoginRefused("too many sessions")
        principals = accepted_principals(request.login_name, request.certificate, self._files.node(), connection.opens)
        now = self._now()
        ends_at = end_of(request.certificate, now, began)
        session = Session(connection, request.login_name, request.signed, int(now.unix), ends_at, unprivileged)
        self._keep(without_early_warnings(session, now))
        return principals

    def _logged_in(self, session: Session) -> None:
        self._keep(session)
        self._say(Level.INFO, f"logged in, until {_shown(session)}", session)
        for other in prolonged(list(self._sessions.values()), session, self._now()):
            self._keep(other)
            by = session.certificate.serial
            self._say(Level.INFO, f"prolonged by the certificate with serial {by}, until {_shown(other)}", other)

    def _step(self, session: Session) -> None:
        notes = self._notes.setdefault(session.connection, _Notes())
        if notes.kill_at is not None:
            if self._clock.monotonic() >= notes.kill_at:
                self._end(session.connection, notes)
            return
        found = due(session, self._now(), self._files.last_revocations())
        if isinstance(found, Warn):
            left = max(1, round(found.threshold / 60))
            self._machine.tell(session.connection, f"This session ends in {left} minutes, unless it is prolonged.")
            self._keep(replace(session, warned_at=found.threshold))
        elif isinstance(found, End):
            self._say(Level.INFO, f"ends: {found.reason}", session)
            self._begin_end(session.connection, notes, found.reason)

    def _begin_end(self, connection: Connection, notes: _Notes, reason: EndReason) -> None:
        self._machine.tell(connection, _MESSAGES[reason])
        if reason is EndReason.REVOKED:
            notes.kill_at = self._clock.monotonic() + MESSAGE_SECONDS
            return
        notes.seen.update(self._machine.members(connection))
        self._machine.hang_up(connection)
        notes.kill_at = self._clock.monotonic() + HANG_UP_SECONDS

    def _end(self, connection: Connection, notes: _Notes) -> None:
        """Kill it, again at each tick until the unit is gone."""
        trace = self._machine.trace(connection, notes.seen)
        self._machine.kill(connection)
        for one in self._machine.left(trace):
            identity = one.process.identity
            what = f"process {identity.pid} ({one.process.name!a})"
            if one.is_attached:
                self._machine.end(identity)
                self._name(identity, f"{what} had left the connection's unit, and was ended, too", connection, notes)
            else:
                self._name(identity, f"{what} has left the connection's unit, and goes on", connection, notes)

    def _over(self, session: Session) -> None:
        """The unit is gone: the client has ended it, or this program has."""
        connection = session.connection
        notes = self._notes.pop(connection, _Notes())
        if notes.kill_at is None:
            for identity in sorted(notes.seen):
                if self._machine.processes.runs(identity):
                    self._name(identity, f"process {identity.pid} has left the unit, and goes on", session, notes)
        if session.login is Login.SUCCEEDED:
            self._say(Level.INFO, "is over", session)
        del self._sessions[connection]
        self._unrecorded.discard(connection)
        self._records.forget(connection)

    def _name(self, process: ProcessIdentity, text: str, about: Session | Connection, notes: _Notes) -> None:
        """Tell of a process that has left, once, and not of more than some."""
        if process in notes.named or len(notes.named) > _MAXIMUM_NAMED:
            return
        notes.named.add(process)
        if len(notes.named) > _MAXIMUM_NAMED:
            text = "more processes have left the connection's unit than are named here"
        self._say(Level.WARNING, text, about)

    def _look_around(self) -> None:
        """What no event says: processes that come and go, and connections that did not ask."""
        for login in self._records.take_fallback_logins():
            self._adopt(login.monitor, login.message)
        for connection in list(self._unrecorded):
            self._keep(self._sessions[connection])
        for connection in self._sessions:
            notes = self._notes.setdefault(connection, _Notes())
            notes.seen = {one for one in notes.seen if self._machine.processes.runs(one)}
            notes.seen.update(self._machine.members(connection)[: _MAXIMUM_SEEN - len(notes.seen)])
        self._end_unknown()

    def _adopt(self, monitor: ProcessIdentity, message: bytes) -> None:
        """Register a login that the principals command let in by itself. It prolongs nothing."""
        try:
            connection = self._machine.connection_of(monitor)
            if connection not in self._sessions:
                self._register(connection, (), parse_request(message), self._machine.began(connection))
                self._say(Level.INFO, "logged in while this program did not run", self._sessions[connection])
        except (NoProcess, NotAConnection, Gone):
            return  # over already
        except (NotAsked, RequestRefused, LoginRefused) as refused:
            self._say(Level.WARNING, f"a login without this program counts as unknown: {refused}")

    def _end_unknown(self) -> None:
        known = {(one.control_group, one.inode) for one in self._sessions}
        now = self._clock.monotonic()
        found: dict[tuple[str, int], float] = {}
        for path in self._machine.hierarchy.connections():
            try:
                place = (path, self._machine.hierarchy.inode(path))
            except Gone:
                continue
            if place in known:
                continue
            found[place] = self._first_seen.get(place, now)
            if now - found[place] >= UNKNOWN_SECONDS:
                connection = Connection(*place, ProcessIdentity(0, 0))
                self._say(Level.WARNING, f"ends: {EndReason.UNKNOWN}", connection)
                self._machine.tell(connection, _MESSAGES[EndReason.UNKNOWN])
                self._machine.kill(connection)
        self._first_seen = found

    def _watch_revocations(self) -> None:
        found = self._files.revocations()
        alarm = found.why if isinstance(found, UnknownRevocations) else ""
        if alarm and alarm != self._alarm:
            self._say(Level.ALERT, f"{alarm}; sessions that run are judged by the last lists")
        elif self._alarm and not alarm:
            self._say(Level.INFO, "the revocation lists are readable again")
        self._alarm = alarm

    def _pause(self) -> float:
        if not self._sessions:
            return IDLE_TICK_SECONDS
        soonest = min((notes.kill_at for notes in self._notes.values() if notes.kill_at is not None), default=None)
        if soonest is None:
            return TICK_SECONDS
        return min(TICK_SECONDS, max(0.05, soonest - self._clock.monotonic()))

    def _keep(self, session: Session) -> None:
        """Keep the state of a session, in memory if ``/run`` is full: somebody must get in to make space.

        A restart before it is recorded takes a session that is new for an unknown one, which ends within a minute.
        """
        connection = session.connection
        self._sessions[connection] = session
        try:
            self._records.save(session)
        except OSError as error:
            if connection not in self._unrecorded:
                self._say(Level.ALERT, f"cannot be recorded: {error.strerror}; a restart does not know this", session)
            self._unrecorded.add(connection)
        else:
            self._unrecorded.discard(connection)

    def _now(self) -> Moment:
        return Moment(self._clock.now(), self._clock.monotonic())

    def _say(self, level: Level, text: str, about: Session | Connection | None = None) -> None:
        self._report(Report(level, text, about))


def _shown(session: Session) -> str:
    if not session.has_deadline:
        return f"{WITHOUT_END_SECONDS // 60} minutes have passed"
    try:
        return datetime.fromtimestamp(session.deadline, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "the unit's RuntimeMaxSec"
