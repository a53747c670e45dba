"""However many replicas come, go and stall: shards are divided evenly, move no more than they must, and each has at
most one owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from signer.model.lease import Holding, Lease, released, taken
from signer.model.shard import Replica, ShardLease, ShardLeases, replica_lease, shard_lease
from signer.rules.leadership import Election, Leading, Lost, Seen, Update, Wait
from signer.rules.sharding import Division, Plan
from tests.unit.signer.rules.shard_leases import NAME, TIMES, division, leases, replica

names = st.integers(1, 9).map(lambda number: [f"r{one}" for one in range(number)])
counts = st.integers(1, 40)


def plans(living: list[str], count: int, owners: Mapping[int, str]) -> dict[str, Plan]:
    """What each of them would do, all seeing the same."""
    ones = [replica(identity, count=count) for identity in living]
    return {identity: division(identity, count).read(leases(ones, owners), 0.0, 0.0).plan() for identity in living}


def settled(living: list[str], count: int, owners: Mapping[int, str]) -> dict[int, str]:
    """All do what they would, until nobody does anything; every hand-over is seen on its way."""
    now = dict(owners)
    for _ in range(4):
        todo = plans(living, count, now)
        if not any(plan.take or plan.release for plan in todo.values()):
            return now
        for identity, plan in todo.items():
            assert all(now.get(number, "") == "" for number in plan.take), "only what is free is taken"
            assert all(now[number] == identity for number in plan.release)
        takes = [number for plan in todo.values() for number in plan.take]
        assert len(takes) == len(set(takes)), "nobody is in another's way"
        for identity, plan in todo.items():
            now |= dict.fromkeys(plan.take, identity) | dict.fromkeys(plan.release, "")
    raise AssertionError("they do not come to rest")


def moved(before: Mapping[int, str], after: Mapping[int, str]) -> set[int]:
    return {number for number, owner in after.items() if before.get(number) != owner}


@given(names, counts, st.data())
def test_whatever_there_was_it_comes_to_an_even_division(living: list[str], count: int, data: st.DataObject) -> None:
    owners = data.draw(st.dictionaries(st.integers(0, count - 1), st.sampled_from([*living, ""])))
    after = settled(living, count, owners)
    assert set(after) == set(range(count))
    parts = Counter(after.values())
    assert max(parts.values()) - min(parts[identity] for identity in living) <= 1
    assert settled(living, count, after) == after
    # No more than must: whoever had his part, or less, keeps all of it.
    most = -(-count // len(living))
    for identity in living:
        had = {number for number, owner in owners.items() if owner == identity}
        keeps = {number for number in had if after[number] == identity}
        assert len(keeps) >= min(len(had), count // len(living))
        assert len(had - keeps) <= max(0, len(had) - most + 1)


@given(names, counts)
def test_who_joins_moves_no_more_than_its_part(living: list[str], count: int) -> None:
    before = settled(living, count, {})
    joined = [*living, "new"]
    after = settled(joined, count, before)
    changed = moved(before, after)
    assert len(changed) <= -(-count // len(joined))
    assert {after[number] for number in changed} <= {"new"}


@given(names, counts, st.data())
def test_of_who_dies_only_its_own_shards_move(living: list[str], count: int, data: st.DataObject) -> None:
    before = settled([*living, "dies"], count, {})
    free = {number: "" if owner == "dies" else owner for number, owner in before.items()}
    after = settled(living, count, free)
    assert {before[number] for number in moved(before, after)} <= {"dies"}


# However late everything is

FASTEST = 1.4
DELAYS = st.sampled_from([0.0, 1.0, 2.0, 4.0, 7.2, 9.9, 11.0, 16.0])
COUNT = 3
NUMBERS = st.integers(0, COUNT - 1)
REPLICAS = st.integers(0, 2)


@dataclass
class Write:
    """One under way: to a Lease, upon its version, by whom."""

    lease: str
    upon: int
    holding: Holding
    began: float


@dataclass
class Model:
    """One replica: what it knows, and what is under way."""

    identity: str
    election: Election
    known: Division
    offset: float
    rate: float
    leaving: set[int] = field(default_factory=set)
    seen: tuple[Mapping[str, tuple[int, Holding]], float] | None = None
    """A list that is under way back, and when it was asked for."""
    renewal: Write | None = None
    renewed: tuple[Lease, float] | None = None

    def clock(self, time: float) -> float:
        return self.offset + self.rate * time

    def leads(self, time: float) -> bool:
        return isinstance(self.election.standing(self.clock(time)), Leading)

    def owned(self, time: float) -> set[int]:
        """What it believes to own."""
        return set(self.known.owned() - self.leaving) if self.leads(time) else set()


class Sharing(RuleBasedStateMachine):
    """An API server that carries out a write only upon the version it names, and replicas that stall, whose clocks
    show anything and run at most 1.4 times as fast as one another.
    """

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.stored: dict[str, tuple[int, Holding]] = {}
        self.writes = 0
        self.deleted: set[str] = set()
        self.born = 0
        self.replicas = [self._new(0.0, 1.0) for _ in range(3)]
        self.astray: list[Write] = []

    def _new(self, offset: float, rate: float) -> Model:
        self.born += 1
        identity = f"r{self.born}"
        return Model(identity, Election(identity, TIMES), division(identity, COUNT), offset, rate)

    def _carried_out(self, write: Write) -> bool:
        version = self.stored.get(write.lease, (0, None))[0]
        if version != write.upon:
            return False
        self.writes += 1
        self.stored[write.lease] = (self.writes, write.holding)
        return True

    def _day(self, one: Model) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=one.clock(self.time))

    @rule(replica=REPLICAS, offset=st.sampled_from([-1e6, 0.0, 1e6]), rate=st.sampled_from([1.0, FASTEST]))
    def restarts(self, replica: int, offset: float, rate: float) -> None:
        """As after SIGKILL; what it had sent may still arrive."""
        if (sent := self.replicas[replica].renewal) is not None:
            self.astray.append(sent)
        self.replicas[replica] = self._new(offset, rate)

    @rule(seconds=DELAYS)
    def time_passes(self, seconds: float) -> None:
        self.time += seconds

    @rule(seconds=DELAYS, stalled=REPLICAS)
    def all_but_one_go_on(self, seconds: float, stalled: int) -> None:
        for _ in range(int(seconds)):
            self.time += 1.0
            for number in {0, 1, 2} - {stalled}:
                self.goes_on(number)
            self.each_shard_has_one_owner_at_most()

    @rule(replica=REPLICAS)
    def goes_on(self, replica: int) -> None:
        """One turn, as it is when nothing is late."""
        self.renews(replica)
        self.renewal_arrives(replica)
        self.renewal_is_answered(replica)
        self.lists(replica)
        self.hears(replica)
        self.acts(replica, late=False)
        self.lets_go(replica, late=False)

    # Its own Lease

    @rule(replica=REPLICAS)
    def renews(self, replica: int) -> None:
        one = self.replicas[replica]
        if one.renewal is not None or one.renewed is not None:
            return
        turn = one.election.turn(one.clock(self.time), self._day(one))
        if not isinstance(turn, Wait):
            upon = turn.lease.manifest["version"] if isinstance(turn, Update) else 0
            one.renewal = Write(one.known.lease_name, upon, turn.holding, one.clock(self.time))

    @rule(replica=REPLICAS)
    def renewal_arrives(self, replica: int) -> None:
        one = self.replicas[replica]
        if one.renewal is not None:
            if self._carried_out(one.renewal):
                version, holding = self.stored[one.renewal.lease]
                one.renewed = Lease(holding, {"version": version}), one.renewal.began
            elif one.renewal.lease in self.stored:
                version, holding = self.stored[one.renewal.lease]
                one.election = one.election.read(Lease(holding, {"version": version}), one.clock(self.time))
            else:
                one.election = one.election.found_none()
            one.renewal = None

    @rule(replica=REPLICAS)
    def renewal_is_answered(self, replica: int) -> None:
        one = self.replicas[replica]
        if one.renewed is not None:
            lease, began = one.renewed
            one.election, one.renewed = one.election.wrote(lease, began, one.clock(self.time)), None

    @rule(replica=REPLICAS)
    def leaves(self, replica: int) -> None:
        """All its work has ended; its Lease says so, and it comes back as another."""
        one = self.replicas[replica]
        if one.leads(self.time) and isinstance(one.election.seen, Seen) and one.renewal is None:
            lease = one.election.seen.lease
            holding = released(lease.holding, self._day(one))
            self.astray.append(Write(one.known.lease_name, lease.manifest["version"], holding, 0.0))
            self.replicas[replica] = self._new(one.offset, one.rate)

    @rule(replica=REPLICAS)
    def somebody_deletes_its_lease(self, replica: int) -> None:
        """Not twice: between two looks that find none, nobody sees that it was made again and deleted again."""
        name = self.replicas[replica].known.lease_name
        if name in self.stored and name not in self.deleted:
            self.deleted.add(name)
            del self.stored[name]

    # The shards

    @rule(replica=REPLICAS)
    def lists(self, replica: int) -> None:
        one = self.replicas[replica]
        one.seen = dict(self.stored), one.clock(self.time)

    @rule(replica=REPLICAS)
    def hears(self, replica: int) -> None:
        one = self.replicas[replica]
        if one.seen is not None:
            stored, asked = one.seen
            one.known, one.seen = one.known.read(_listed(stored), asked, one.clock(self.time)), None
            one.leaving &= one.known.owned()

    @rule(replica=REPLICAS, late=st.booleans())
    def acts(self, replica: int, late: bool) -> None:
        """Takes and lets go; when ``late``, its writes arrive at some time or never, and it hears of no answer."""
        one = self.replicas[replica]
        if one.seen is not None or not one.leads(self.time):
            return
        plan = one.known.plan()
        for number in plan.take:
            self._write(one, number, taken(one.identity, TIMES, self._day(one)), late=late)
        one.leaving |= plan.release & one.known.owned()

    @rule(replica=REPLICAS, late=st.booleans())
    def lets_go(self, replica: int, late: bool) -> None:
        """What is under way in the shards that it leaves has come to its end."""
        one = self.replicas[replica]
        if one.seen is None and one.leads(self.time):
            for number in sorted(one.leaving & one.known.owned()):
                holding = one.known.leases.shards[number].lease.holding
                self._write(one, number, released(holding, self._day(one)), late=late)
            one.leaving &= one.known.owned()

    def _write(self, one: Model, number: int, holding: Holding, *, late: bool) -> None:
        there = one.known.leases.shards.get(number)
        version = 0 if there is None else there.lease.manifest["version"]
        write = Write(shard_lease(NAME, number), version, holding, 0.0)
        if late:
            self.astray.append(write)
        elif self._carried_out(write):
            lease = Lease(holding, {"version": self.writes})
            one.known = one.known.wrote(number, ShardLease(write.lease, "", lease))

    @rule(which=st.integers(0, 3))
    def arrives_late(self, which: int) -> None:
        if which < len(self.astray):
            self._carried_out(self.astray.pop(which))

    @invariant()
    def each_shard_has_one_owner_at_most(self) -> None:
        owned = Counter(number for one in self.replicas for number in one.owned(self.time))
        assert all(owners == 1 for owners in owned.values()), owned

    def teardown(self) -> None:
        """When nothing is late any more, they come to an even division."""
        for _ in range(45):
            self.time += 1.0
            for number, one in enumerate(self.replicas):
                if isinstance(one.election.standing(one.clock(self.time)), Lost):
                    self.replicas[number] = self._new(0.0, 1.0)  # a process that ends, and is started again
                self.goes_on(number)
        assert [len(one.owned(self.time)) for one in self.replicas] == [1, 1, 1]


def _listed(stored: Mapping[str, tuple[int, Holding]]) -> ShardLeases:
    replicas: dict[str, Replica] = {}
    shards: dict[int, ShardLease] = {}
    for name, (version, holding) in stored.items():
        lease = Lease(holding, {"version": version})
        if name.startswith(replica_lease(NAME, "").rpartition("-")[0]):
            replicas[name] = Replica(name, name, "", COUNT, lease)
        else:
            shards[int(name.rpartition("-")[2])] = ShardLease(name, name, lease)
    return ShardLeases(replicas, shards)


Sharing.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSharing = pytest.mark.slow(Sharing.TestCase)
