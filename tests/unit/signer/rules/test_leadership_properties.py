"""However requests are delayed, lost or overtaken, and however clocks are set: at most one replica leads.

The model: one API server that carries out a write only upon the version it names, and replicas whose clocks show
anything and run at most 1.4 times as fast as one another; a Lease of 15 seconds and a deadline of 10 leave 1.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from signer.model.lease import ElectionTimes, Holding, Lease, released
from signer.rules.leadership import Election, Leading, Seen, Update, Wait

REPLICAS = 2
FASTEST = 1.4
TIMES = ElectionTimes()
DELAYS = st.sampled_from([0.0, 1.0, 2.0, 4.0, 7.0, 7.2, 9.9, 10.8, 11.0, 15.0, 16.0])
TICK = 0.9
NOBODYS = Holding("", 0, "", "", 0)
replicas = st.integers(0, REPLICAS - 1)


@dataclass
class Server:
    """The API server's Lease; version 0 is that there is none."""

    version: int = 0
    holding: Holding = NOBODYS

    def lease(self) -> Lease:
        return Lease(self.holding, {"version": self.version})


@dataclass
class Sent:
    """A write under way."""

    upon: int
    holding: Holding
    began: float


@dataclass
class Replica:
    election: Election
    offset: float = 0.0
    rate: float = 1.0
    sent: Sent | None = None
    answer: tuple[Lease, float] | None = None
    """A write that was carried out, and when it was sent."""
    read: Lease | None = None
    """What a read found, under way back."""
    stopped: bool = False

    def clock(self, time: float) -> float:
        return self.offset + self.rate * time

    def is_idle(self) -> bool:
        return not (self.sent or self.answer or self.read or self.stopped)


class Elections(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.server = Server()
        self.names = 0
        self.replicas = [self._new() for _ in range(REPLICAS)]
        self.astray: list[Sent] = []
        """Writes whose sender has given up waiting; they may still arrive."""

    def _new(self) -> Replica:
        self.names += 1
        return Replica(Election(f"replica-{self.names}", TIMES))

    def _day(self, replica: Replica) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=replica.clock(self.time))

    @rule(replica=replicas, offset=st.sampled_from([-1e6, 0.0, 1e6]), rate=st.sampled_from([1.0, FASTEST]))
    def restart(self, replica: int, offset: float, rate: float) -> None:
        self._astray(replica)
        self.replicas[replica] = self._new()
        self.replicas[replica].offset, self.replicas[replica].rate = offset, rate

    @rule(seconds=DELAYS)
    def time_passes(self, seconds: float) -> None:
        """Standbys that wait for no answer look at the Lease as often as a tick is long."""
        for tick in [TICK] * int(seconds // TICK) + [seconds % TICK]:
            self.time += tick
            for number, one in enumerate(self.replicas):
                if not self._leads(one):
                    self.attempts(number)
            self.at_most_one_leads()

    @rule(replica=replicas)
    def attempts(self, replica: int) -> None:
        """All goes well and takes no time: a read, a write where there is one to do, and the answer."""
        if not self.replicas[replica].is_idle():
            return
        for step in (self.asks, self.hears, self.sends, self.arrives, self.is_answered):
            step(replica)

    @rule(replica=replicas, seconds=DELAYS, back=DELAYS)
    def renews_slowly(self, replica: int, seconds: float, back: float) -> None:
        """While it leads, it writes without a read before."""
        self.sends(replica)
        self.time_passes(seconds)
        self.arrives(replica)
        self.time_passes(back)
        self.is_answered(replica)

    @rule(replica=replicas)
    def asks(self, replica: int) -> None:
        """The server is read now; the answer is under way."""
        if (one := self.replicas[replica]).is_idle():
            one.read = self.server.lease()

    @rule(replica=replicas)
    def hears(self, replica: int) -> None:
        one = self.replicas[replica]
        if one.read is not None:
            found = one.election.read(one.read, one.clock(self.time))
            one.election = found if one.read.manifest["version"] else one.election.found_none()
            one.read = None

    @rule(replica=replicas)
    def sends(self, replica: int) -> None:
        one = self.replicas[replica]
        turn = one.election.turn(one.clock(self.time), self._day(one)) if one.is_idle() else Wait()
        if not isinstance(turn, Wait):
            upon = turn.lease.manifest["version"] if isinstance(turn, Update) else 0
            one.sent = Sent(upon, turn.holding, one.clock(self.time))

    @rule(replica=replicas)
    def arrives(self, replica: int) -> None:
        one = self.replicas[replica]
        if one.sent is not None:
            if self._carried_out(one.sent):
                one.answer = self.server.lease(), one.sent.began
            one.sent = None

    @rule(replica=replicas)
    def is_answered(self, replica: int) -> None:
        one = self.replicas[replica]
        if one.answer is not None:
            lease, began = one.answer
            one.election, one.answer = one.election.wrote(lease, began, one.clock(self.time)), None

    @rule(replica=replicas)
    def gives_up_waiting(self, replica: int) -> None:
        self._astray(replica)

    @precondition(lambda self: self.astray)
    @rule()
    def arrives_late(self) -> None:
        self._carried_out(self.astray.pop(0))

    @rule(replica=replicas)
    def ends(self, replica: int) -> None:
        """All work has ended, then the Lease is released, if that still arrives."""
        one = self.replicas[replica]
        seen = one.election.seen
        if one.is_idle() and self._leads(one) and isinstance(seen, Seen):
            one.stopped = True
            holding = released(seen.lease.holding, self._day(one))
            self.astray.append(Sent(seen.lease.manifest["version"], holding, 0.0))

    def _carried_out(self, sent: Sent) -> bool:
        if sent.upon != self.server.version:
            return False
        self.server = Server(self.server.version + 1, sent.holding)
        return True

    def _astray(self, replica: int) -> None:
        one = self.replicas[replica]
        if one.sent is not None:
            self.astray.append(one.sent)
        one.sent = one.answer = one.read = None

    def _leads(self, one: Replica) -> bool:
        return not one.stopped and isinstance(one.election.standing(one.clock(self.time)), Leading)

    @invariant()
    def at_most_one_leads(self) -> None:
        assert sum(self._leads(one) for one in self.replicas) <= 1


Elections.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestElections = pytest.mark.slow(Elections.TestCase)
