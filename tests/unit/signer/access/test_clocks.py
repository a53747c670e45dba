"""Time counts only while the controller's clock is the management API server's."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from signer.access.facts import Facts, Keepalive
from signer.access.observing import observed
from signer.access.parts import PendingBastion, Publication
from signer.access.plan import DeleteGrant, Issue, Rest, Revoke, WriteRecord
from signer.access.record import BrokenRecord, Cause, Closing, GrantRecord, NoCertificate, NoRecord, Stage
from signer.kube.client import Client
from signer.kube.clocks import (
    TRUSTED_SECONDS,
    ClockAnswer,
    Clocks,
    ClocksAgree,
    ClocksDiffer,
    ClockUnknown,
    compare_clocks,
)
from signer.kube.errors import Forbidden, ServerError
from signer.kube.server_clock import NoServerTime, ServerClock, ServerTime
from signer.model.access import DeletedAt
from signer.testing.api import EmbeddedAPI
from tests.unit.signer.access.looks import NOW, facts, reason, running, step_of

HOUR: Final = timedelta(hours=1)
AHEAD: Final = NOW + 2 * HOUR
"""What a wrong clock says at ``NOW``: every certificate of the looks has ended by it."""
WRONG: Final[tuple[ClockAnswer, ...]] = (ClocksDiffer("an hour", NOW), ClockUnknown("no answer"))
wrong_clock = pytest.mark.parametrize("clocks", WRONG, ids=["differ", "unknown"])


def record_of(look: Facts) -> GrantRecord:
    assert isinstance(look.record, GrantRecord)
    return look.record


def closed(stage: Stage, cause: Cause = Cause.DELETED, **changes: Any) -> Facts:
    look = running()
    record = record_of(look).next(state=Closing(cause, NOW, stage))
    return replace(look, record=record, now=AHEAD, **changes)


# The comparison


@pytest.mark.parametrize("minutes", [-2, 0, 2])
def test_clocks_that_agree(minutes: int) -> None:
    assert compare_clocks(NOW + timedelta(minutes=minutes), ServerTime(NOW, 1.0)) == ClocksAgree()


@pytest.mark.parametrize("minutes", [-3, 3, 60, 100_000])
def test_clocks_that_differ(minutes: int) -> None:
    answer = compare_clocks(NOW + timedelta(minutes=minutes), ServerTime(NOW, 1.0))
    assert isinstance(answer, ClocksDiffer)
    assert answer.server == NOW
    assert "set the wrong one" in answer.message


@pytest.mark.parametrize("server", [NoServerTime(), ServerTime(NOW, TRUSTED_SECONDS + 1)])
def test_a_time_that_is_not_known(server: ServerTime | NoServerTime) -> None:
    assert isinstance(compare_clocks(NOW, server), ClockUnknown)


@pytest.mark.parametrize("date", ["", "now", "Fri, 27 Nov 2026", "Fri, 99 Nov 2026 14:00:00 GMT", "2026", "\0" * 99])
def test_a_date_that_cannot_be_read_is_none(date: str) -> None:
    clock = ServerClock(lambda: 0.0)
    clock.answered(date)
    assert clock.now() == NoServerTime()


@pytest.mark.parametrize("date", ["Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:59 -0100"])
def test_a_date_at_the_end_of_the_calendar_is_none(date: str) -> None:
    """A hostile server sends any, and no later time could be told from it."""
    seconds = 0.0
    clock = ServerClock(lambda: seconds)
    clock.answered(date)
    seconds = 1.0
    assert clock.now() == NoServerTime()


def test_an_answer_of_years_ago_is_still_old() -> None:
    seconds = 0.0
    clock = ServerClock(lambda: seconds)
    clock.answered("Fri, 31 Dec 9997 00:00:00 GMT")
    seconds = 1e9
    answer = clock.now()
    assert isinstance(answer, ServerTime)
    assert isinstance(compare_clocks(answer.moment, answer), ClockUnknown)


@dataclass
class Asked:
    """The server refuses, and its answers have a Date."""

    seconds: float = 0.0
    date: str = "Fri, 27 Nov 2026 14:00:00 GMT"
    clock: ServerClock = field(init=False)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = ServerClock(lambda: self.seconds)

    async def get(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        self.clock.answered(self.date)
        raise Forbidden("no", status=403)


async def test_an_old_answer_is_asked_for_again() -> None:
    client = Asked()
    now = datetime(2026, 11, 27, 14, 0, tzinfo=UTC)
    clocks = Clocks(client, client.clock, lambda: now, monotonic=lambda: client.seconds)
    assert isinstance(clocks.answer(), ClockUnknown)
    for _ in range(2):
        assert await clocks.fresh("/grant") == ClocksAgree()
    assert client.asked == ["/grant"]
    now += HOUR
    assert isinstance(await clocks.fresh("/grant"), ClocksDiffer), "a jump is seen without another answer"
    client.seconds = 61.0
    client.date = "Fri, 27 Nov 2026 15:00:00 GMT"
    assert await clocks.fresh("/grant") == ClocksAgree()
    assert client.asked == ["/grant"] * 2


@dataclass
class Hanging:
    """The server holds each answer back until the call ends."""

    seconds: float = 0.0
    calls: int = 0

    def now(self) -> NoServerTime:
        return NoServerTime()

    async def get(self, path: str) -> dict[str, Any]:
        self.calls += 1
        await asyncio.sleep(0)
        self.seconds += 30.0
        raise ServerError("no", status=503)


async def test_a_server_that_hangs_holds_a_crowd_for_one_call() -> None:
    """One after the other, 32 workers would take a quarter of an hour: their requests would be decided by a time and a
    policy of then, and the process would pass for stuck.
    """
    server = Hanging()
    clocks = Clocks(server, server, lambda: NOW, monotonic=lambda: server.seconds)
    answers = await asyncio.gather(*(clocks.fresh("/version") for _ in range(32)))
    assert {type(answer) for answer in answers} == {ClockUnknown}
    assert (server.calls, server.seconds) == (1, 30.0)
    server.seconds += 1.0
    await clocks.fresh("/version")
    assert server.calls == 2, "a later request is another call's"


async def test_the_client_keeps_the_time_of_a_real_server() -> None:
    with EmbeddedAPI() as api:
        async with Client(api.connection("controller", ("system:masters",))) as client:
            clocks = Clocks(client, client.clock, lambda: datetime.now(UTC))
            assert isinstance(clocks.answer(), ClockUnknown)
            assert await clocks.fresh("/api/v1/namespaces/none") == ClocksAgree()


# What does not follow from time


@wrong_clock
def test_nothing_is_issued(clocks: ClockAnswer) -> None:
    step = step_of(facts(clocks=clocks))
    assert isinstance(step.move, Rest)
    assert reason(step) == "ClocksDiffer"


@wrong_clock
def test_a_new_grant_is_not_deleted_as_expired(clocks: ClockAnswer) -> None:
    look = facts(record=NoRecord(), now=AHEAD)
    assert isinstance(step_of(look).move, DeleteGrant)
    step = step_of(replace(look, clocks=clocks))
    assert isinstance(step.move, Rest)
    assert step.again is not None
    assert step.again > AHEAD


@wrong_clock
def test_a_living_grant_does_not_end_by_time(clocks: ClockAnswer) -> None:
    look = running(now=AHEAD)
    assert isinstance(step_of(look).move, WriteRecord)
    step = step_of(replace(look, clocks=clocks))
    assert isinstance(step.move, Rest)
    assert reason(step) == "ClocksDiffer"
    assert step.again is not None
    assert step.again > AHEAD, "no look follows another at once"


@wrong_clock
def test_a_heartbeat_does_not_count(clocks: ClockAnswer) -> None:
    """It would be sealed with the wrong time, and prolong the grant until that has come."""
    look = running(now=NOW + timedelta(minutes=1))
    beaten = replace(look, keepalive=Keepalive.TAKEN)
    assert observed(beaten, record_of(look)).heartbeat > record_of(look).heartbeat
    assert observed(replace(beaten, clocks=clocks), record_of(look)).heartbeat == record_of(look).heartbeat


@wrong_clock
def test_the_end_of_a_grant_revokes_what_has_ended_by_the_wrong_clock_alone(clocks: ClockAnswer) -> None:
    look = running(now=AHEAD, clocks=clocks)
    look = replace(look, metadata=replace(look.metadata, deletion=DeletedAt(NOW)))
    step = step_of(look)
    assert isinstance(step.record, GrantRecord)
    assert isinstance(step.record.state, Closing)
    assert step.record.state.stage is Stage.CLOSING
    assert isinstance(step_of(replace(look, record=step.record)).move, Revoke)


@wrong_clock
def test_nodes_must_know_before_the_sessions_are_terminated(clocks: ClockAnswer) -> None:
    look = closed(Stage.REVOKED)
    assert isinstance(step_of(look).move, WriteRecord)
    step = step_of(replace(look, clocks=clocks))
    assert isinstance(step.move, Rest)
    assert step.again is not None
    assert step.again > AHEAD
    known = step_of(replace(look, clocks=clocks, publication=Publication.PUBLISHED))
    assert isinstance(known.move, WriteRecord), "what nodes know needs no clock"


@wrong_clock
def test_a_bastion_is_waited_for(clocks: ClockAnswer) -> None:
    look = closed(Stage.REVOKED, bastion=PendingBastion("x"), is_bastion_deleting=True)
    look = replace(look, record=replace(record_of(look), last_end=NoCertificate()))
    assert isinstance(step_of(look).move, WriteRecord)
    assert isinstance(step_of(replace(look, clocks=clocks)).move, Rest)


@wrong_clock
def test_a_grant_that_ended_is_not_deleted(clocks: ClockAnswer) -> None:
    look = closed(Stage.TERMINATED, Cause.SUSPENDED)
    assert isinstance(step_of(look).move, DeleteGrant)
    step = step_of(replace(look, clocks=clocks))
    assert isinstance(step.move, Rest)
    assert step.again is not None
    assert step.again > AHEAD


def test_a_lost_record_is_revoked_by_the_later_clock() -> None:
    """A clock that is behind would have the entries dropped while certificates live."""
    behind = NOW - 3 * HOUR
    look = facts(record=BrokenRecord("changed"), now=behind, clocks=ClocksDiffer("behind", NOW))
    step = step_of(look)
    assert isinstance(step.record, GrantRecord)
    assert step.record.last_end == NOW + HOUR


def test_it_goes_on_when_the_clock_is_right_again() -> None:
    assert isinstance(step_of(facts(clocks=ClocksAgree())).move, Issue)
