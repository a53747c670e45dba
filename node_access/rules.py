"""What is due for a session: a warning, its end, or nothing. And what prolongs it."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from attestors.wire.ssh.certificate import FOREVER
from node_access.principals import Revocations
from node_access.values import NO_WARNING, Login, Moment, Session, end_of

WARNINGS: Final = (600, 120)
"""Seconds before the end, in order."""


class EndReason(enum.StrEnum):
    """Why a session ends before its client ends it."""

    EXPIRED = "Expired"
    """The certificate has run out, and no other of the same key id prolongs the session."""
    REVOKED = "Revoked"
    UNKNOWN = "UnknownCertificate"
    """Nothing is known about the connection's certificate, and its login should be over."""


@dataclass(frozen=True, slots=True)
class Continue:
    """Nothing is due."""


@dataclass(frozen=True, slots=True)
class Warn:
    """People should be told that so many seconds are left."""

    threshold: int


@dataclass(frozen=True, slots=True)
class End:
    """The session is over."""

    reason: EndReason


Due: TypeAlias = Continue | Warn | End


def due(session: Session, now: Moment, revocations: Revocations) -> Due:
    """What is due. ``revocations`` are the last that were readable."""
    if any(map(revocations.revoke, session.certificates)):
        return End(EndReason.REVOKED)
    left = session.seconds_left(now)
    if left <= 0:
        return End(EndReason.EXPIRED)
    passed = [threshold for threshold in WARNINGS if left <= threshold < session.warned_at]
    return Warn(min(passed)) if passed else Continue()


def without_early_warnings(session: Session, now: Moment) -> Session:
    """A session whose end was just set: what is already behind it is no news for the person who chose it."""
    left = session.seconds_left(now)
    behind = [threshold for threshold in WARNINGS if left <= threshold]
    return replace(session, warned_at=min(behind, default=NO_WARNING))


def prolonged(sessions: Iterable[Session], renewed: Session, now: Moment) -> list[Session]:
    """Sessions that last longer because ``renewed`` logged in, in their new state.

    A later certificate counts for sessions of the same key id and login. One without an end is later than another.
    An empty key id says nothing about the person.
    A login that did not succeed proves nothing: everybody may have seen the certificate.
    """
    end = renewed.certificate.valid_before
    if renewed.login is not Login.SUCCEEDED or not renewed.certificate.key_id:
        return []
    return [
        without_early_warnings(
            replace(session, prolonged_by=(renewed.signed,), ends_at=end_of(renewed.certificate, now, now.elapsed)), now
        )
        for session in sessions
        if session.connection != renewed.connection
        and session.login is Login.SUCCEEDED
        and session.certificate.key_id == renewed.certificate.key_id
        and session.login_name == renewed.login_name
        and (session.deadline < end or end == FOREVER)
    ]
