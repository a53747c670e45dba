"""Which shards a replica takes, keeps and lets go of."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from signer.model.shard import Replica, replica_lease
from signer.rules.sharding import Disagreeing, Division, Joining, Plan, Sharing
from tests.unit.signer.rules.shard_leases import DURATION, NAME, division, leases, replica, shard

COUNT = 4
A, B, C = (replica(identity, count=COUNT, created=f"2026-01-0{day}") for day, identity in enumerate("abc", 1))


def seen(identity: str, *looks: tuple[float, dict[int, str]], replicas: Iterable[Replica] = (A, B)) -> Division:
    """What a replica knows after these looks, each at a time."""
    known = division(identity, COUNT)
    for now, owners in looks:
        known = known.read(leases(replicas, owners), now, now)
    return known


def plan_at(known: Division, asked: float) -> Plan:
    """What it does when a list that is asked for then shows the same once more."""
    return known.read(known.leases, asked, asked).plan()


def test_who_is_not_among_those_that_live_waits() -> None:
    plan = division("c", COUNT).read(leases([A, B], {}), 0.0, 0.0).plan()
    assert plan == Plan(Joining(), living=2)


def test_the_first_takes_every_shard() -> None:
    assert seen("a", (0.0, {}), replicas=[A]).plan() == Plan(Sharing(), 1, take=(0, 1, 2, 3))


def test_free_shards_are_dealt_to_all_and_to_each_only_once() -> None:
    takes = [seen(identity, (0.0, {0: ""})).plan().take for identity in "ab"]
    assert sorted(number for take in takes for number in take) == [0, 1, 2, 3]
    assert [len(take) for take in takes] == [2, 2]


def test_who_has_too_much_lets_go_and_nobody_takes_what_is_still_owned() -> None:
    owners = dict.fromkeys(range(4), "a")
    assert seen("a", (0.0, owners)).plan() == Plan(Sharing(), 2, release=frozenset({2, 3}))
    assert seen("b", (0.0, owners)).plan() == Plan(Sharing(), 2)
    assert seen("b", (0.0, {**owners, 3: ""})).plan().take == (3,)


def test_nothing_moves_while_nothing_changes() -> None:
    owners = {0: "b", 1: "a", 2: "b", 3: "a"}
    assert [seen(identity, (0.0, owners)).plan() for identity in "ab"] == [Plan(Sharing(), 2)] * 2


def test_one_shard_more_stays_with_who_has_it() -> None:
    owners = {0: "b", 1: "b", 2: "a", 3: "c"}
    for identity in "abc":
        assert seen(identity, (0.0, owners), replicas=[A, B, C]).plan() == Plan(Sharing(), 3)


def test_a_replica_that_was_not_seen_to_renew_for_its_duration_is_dead() -> None:
    owners = {0: "a", 1: "a", 2: "b", 3: "b"}
    known = seen("a", (0.0, owners), (14.9, owners))
    renewed = replica("a", count=COUNT, created=A.created, renewals=1)
    known = known.read(leases([renewed, B], owners), 14.95, 14.95)
    assert plan_at(known, 14.99).take == ()
    assert plan_at(known, 15.0) == Plan(Sharing(), 1, take=(2, 3))


def test_nobody_is_held_to_be_dead_for_time_that_passed_after_the_list_was_asked_for() -> None:
    """Who owns shards may have renewed its Lease since, and those of its shards stay as they are meanwhile."""
    owners = {0: "a", 1: "a", 2: "b", 3: "b"}
    known = seen("a", (0.0, owners))
    renewed = leases([replica("a", count=COUNT, created=A.created, renewals=1), B], owners)
    assert known.read(renewed, 14.9, 16.0).plan().take == ()
    assert known.read(renewed, 15.0, 16.0).plan().take == (2, 3)


def test_a_sign_of_life_counts_from_when_it_was_answered() -> None:
    """It was given before that, and how long before is not known: who waits longer does no harm."""
    known = division("a", COUNT).read(leases([A, B], {2: "b"}), 0.0, 5.0)
    assert plan_at(known, 19.9).standing == Sharing()
    renewed = known.read(leases([replica("a", count=COUNT, renewals=1), B], {2: "b"}), 19.9, 19.9)
    assert 2 not in renewed.plan().take
    assert 2 in plan_at(renewed, 20.0).take


def test_one_that_renews_lives_on() -> None:
    owners = {2: "b", 3: "b"}
    known = division("a", COUNT)
    for turn in range(20):
        both = [replica(identity, count=COUNT, created=identity, renewals=turn) for identity in "ab"]
        known = known.read(leases(both, owners), turn * 10.0, turn * 10.0)
    assert plan_at(known, 195.0) == Plan(Sharing(), 2, take=(0, 1))


def test_the_shards_of_one_that_has_left_are_free_at_once() -> None:
    owners = {0: "a", 1: "a", 2: "b", 3: "b"}
    gone = replica("b", count=COUNT, created=B.created, left=True)
    plan = seen("a", (0.0, owners), (1.0, owners)).read(leases([A, gone], owners), 1.0, 1.0).plan()
    assert (plan.take, plan.remove) == ((2, 3), ()), "its Lease says that it has left for as long as it owns shards"
    taken = dict.fromkeys(range(4), "a")
    assert seen("a", (1.0, taken), replicas=[A, gone]).plan().remove == (gone,)


def test_a_lease_that_somebody_deleted_is_no_death() -> None:
    """Its owner makes it again; who never does is dead one duration after that was first seen."""
    owners = {2: "b", 3: "b"}
    known = seen("a", (0.0, owners))
    for renewals, now in ((1, 10.0), (2, 20.0)):
        known = known.read(leases([replica("a", count=COUNT, renewals=renewals)], owners), now, now)
    assert plan_at(known, 24.9).take == (0, 1), "more than a's part, for as long as b lives"
    assert plan_at(known, 25.0).take == (0, 1, 2, 3)
    both = [replica("a", count=COUNT, renewals=3), replica("b", count=COUNT, renewals=9)]
    back = known.read(leases(both, owners), 24.0, 24.0)
    assert plan_at(back, 38.9).take == (0, 1)


def test_who_has_not_looked_for_long_does_not_know_how_long_ago_a_lease_was_deleted() -> None:
    """Its owner renewed it meanwhile; found by a model with people who delete Leases."""
    owners = {2: "b", 3: "b"}
    known = seen("a", (0.0, owners))
    late = known.read(leases([replica("a", count=COUNT, renewals=9)], owners), 16.0, 16.0)
    assert late.plan().take == (0, 1)


def test_a_holder_that_nobody_knows_owns_for_one_duration_at_most() -> None:
    owners = {0: "a", 1: "a", 2: "a", 3: "a person"}
    known = seen("a", (0.0, owners), replicas=[A])
    later = known.read(leases([replica("a", count=COUNT, renewals=1)], owners), 14.0, 14.0)
    assert (plan_at(known, 0.0).take, plan_at(later, 14.9).take, plan_at(later, 15.0).take) == ((), (), (3,))


class TestAnotherNumberOfShards:
    """The replica that came first decides."""

    OLD = replica("z", count=8, created="2025-12-31")

    def test_a_later_one_takes_nothing(self) -> None:
        plan = seen("a", (0.0, {}), replicas=[A, self.OLD]).plan()
        assert plan == Plan(Disagreeing(8), 2)

    def test_a_later_one_lets_go_of_what_it_has(self) -> None:
        plan = seen("a", (0.0, {0: "a"}), replicas=[A, self.OLD]).plan()
        assert plan.release == frozenset({0})

    def test_the_first_does_not_count_them(self) -> None:
        known = division("z", 8).read(leases([A, B, self.OLD], {}), 0.0, 0.0)
        assert known.plan().take == tuple(range(8))

    def test_nothing_is_taken_before_they_have_let_go(self) -> None:
        """Shard 7 of 8 and shard 1 of 4 may have the same Clusters."""
        younger = replica("z", count=8, created="2026-02-01")
        for number in (0, 7):
            assert seen("a", (0.0, {number: "z"}), replicas=[A, younger]).plan() == Plan(Sharing(), 2)
        dead = seen("a", (0.0, {7: "z"}), replicas=[A, younger])
        dead = dead.read(leases([replica("a", count=COUNT, renewals=1), younger], {7: "z"}), 10.0, 10.0)
        assert plan_at(dead, 16.0).take == (0, 1, 2, 3)

    def test_of_two_that_came_at_the_same_time_all_choose_the_same(self) -> None:
        ones = [replica(identity, count=count, created="now") for identity, count in (("a", 4), ("b", 8))]
        first = min(ones, key=lambda one: one.lease_name)
        plans = [
            division(identity, count).read(leases(ones, {}), 0.0, 0.0).plan()
            for identity, count in (("a", 4), ("b", 8))
        ]
        assert [isinstance(plan.standing, Sharing) for plan in plans] == [one is first for one in ones]

    @pytest.mark.parametrize("owner", ["a", "b"])
    def test_of_two_that_came_at_the_same_time_the_one_that_owns_shards_was_first(self, owner: str) -> None:
        """A Lease's creation is known to the second."""
        both = {"a": 4, "b": 8}
        ones = [replica(identity, count=count, created="now") for identity, count in both.items()]
        for identity, count in both.items():
            plan = division(identity, count).read(leases(ones, {0: owner}), 0.0, 0.0).plan()
            assert isinstance(plan.standing, Sharing) == (identity == owner)


class TestWhatMeansNothingAnyMore:
    def test_the_lease_of_one_that_is_dead_for_long_is_removed_by_the_first(self) -> None:
        owners = dict.fromkeys(range(4), "a")
        assert DURATION == 15
        for now, removed in ((149.9, ()), (150.0, (B,))):
            renewed = [replica("a", count=COUNT, created=A.created, renewals=int(now * 10))]
            known = seen("a", (0.0, owners)).read(leases([*renewed, B], owners), now, now)
            assert plan_at(known, now).remove == removed

    def test_nobody_else_removes_it(self) -> None:
        gone = replica("b", count=COUNT, created="0", left=True)
        both = [A, C, gone]
        assert [seen(one, (0.0, {}), replicas=both).plan().remove for one in "ac"] == [(gone,), ()]

    @pytest.mark.parametrize(("holder", "removed"), [("", True), ("z", False), ("nobody", False)])
    def test_shards_that_there_are_no_more_are_removed_when_nobody_owns_them(self, holder: str, removed: bool) -> None:
        younger = replica("z", count=8, created="2026-02-01")
        for number in (COUNT, 7):
            plan = seen("a", (0.0, {COUNT - 1: holder, number: holder}), replicas=[A, younger]).plan()
            assert plan.remove == ((shard(number, holder),) if removed else ())


def test_two_identities_have_two_leases() -> None:
    assert replica_lease(NAME, "a") != replica_lease(NAME, "b")
    assert division("a", COUNT).lease_name == replica_lease(NAME, "a")


def test_what_was_written_is_known_before_the_next_look() -> None:
    known = seen("a", (0.0, {0: "", 1: "a"}))
    assert known.owned() == {1}
    assert known.wrote(0, shard(0, "a")).owned() == {0, 1}
    assert known.wrote(1, shard(1, "")).owned() == frozenset()
