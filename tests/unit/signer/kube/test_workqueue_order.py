from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from signer.kube import workqueue as module
from signer.kube.workqueue import CROWD, LOOKS, TURNS_OF_OTHERS, FairQueue
from signer.model.flow import ONE_FLOW, Flow, PriorityLevel

MANY: Final = 1000


def plausible(requester: str = "token", provider_id: str = "a", public_key: str = "1") -> Flow:
    return Flow(PriorityLevel.PLAUSIBLE, requester, provider_id, public_key)


def refused(requester: str = "token", provider_id: str = "a") -> Flow:
    return Flow(PriorityLevel.REFUSED, requester, provider_id)


def unfiltered(requester: str = "token") -> Flow:
    return Flow(PriorityLevel.UNFILTERED, requester)


def taken(order: FairQueue[str]) -> Iterator[str]:
    while len(order):
        yield order.take()


def turns_until(order: FairQueue[str], key: str) -> int:
    return next(turn for turn, other in enumerate(taken(order), 1) if other == key)


def flooded(*flows: Flow, count: int = MANY) -> FairQueue[str]:
    """Many keys, spread over these flows."""
    order: FairQueue[str] = FairQueue()
    for number, flow in zip(range(count), itertools.cycle(flows), strict=False):
        order.put(f"flood-{number}", flow)
    return order


def test_one_flow_is_first_come_first_served() -> None:
    assert list(taken(flooded(ONE_FLOW))) == [f"flood-{number}" for number in range(MANY)]


def test_nobody_waits() -> None:
    order: FairQueue[str] = FairQueue()
    order.discard("unknown")
    with pytest.raises(KeyError):
        order.take()


@pytest.mark.parametrize(
    ("flood", "honest"),
    [
        pytest.param(unfiltered("thief"), unfiltered("node"), id="another-requester"),
        pytest.param(plausible("thief"), plausible("node"), id="another-requester-with-evidence"),
        pytest.param(plausible(provider_id="stolen"), plausible(provider_id="own"), id="another-machine"),
        pytest.param(plausible(public_key="copied"), plausible(public_key="new"), id="copies-of-an-older-request"),
        pytest.param(refused(provider_id="a"), refused(provider_id="b"), id="another-claim"),
    ],
)
def test_many_are_not_in_the_way_of_one(flood: Flow, honest: Flow) -> None:
    order = flooded(flood, count=CROWD)  # no crowd yet: all of them are work
    order.put("honest", honest)
    assert turns_until(order, "honest") <= 2
    order = flooded(flood)
    order.put("honest", honest)
    assert turns_until(order, "honest") <= LOOKS + 2


def test_what_is_plausible_goes_first() -> None:
    order = flooded(refused(), unfiltered(), refused("other"), unfiltered("other"), count=CROWD)
    order.put("honest", plausible("node"))
    assert order.take() == "honest"


def test_a_crowd_is_looked_at_first_but_not_only() -> None:
    order = flooded(unfiltered())
    for number in range(10):
        order.put(f"honest-{number}", plausible())
    turns = [key.startswith("honest") for key in taken(order)]
    assert [turn for turn, honest in enumerate(turns) if honest] == [LOOKS + (LOOKS + 1) * n for n in range(10)]


@pytest.mark.parametrize("waiting", [unfiltered("node"), refused("node")])
def test_what_is_plausible_is_never_alone(waiting: Flow) -> None:
    order = flooded(plausible("a"), plausible("b"))
    order.put("waits", waiting)
    turns = turns_until(order, "waits")
    assert turns == TURNS_OF_OTHERS[waiting.priority_level] + 1


def test_all_three_go_on() -> None:
    order: FairQueue[PriorityLevel] = FairQueue()
    flows = {
        PriorityLevel.PLAUSIBLE: plausible(),
        PriorityLevel.UNFILTERED: unfiltered("node"),
        PriorityLevel.REFUSED: refused("other"),
    }
    given = []
    for _ in range(320):
        for priority_level, flow in flows.items():
            order.put(priority_level, flow)
        given.append(order.take())
    assert given.count(PriorityLevel.UNFILTERED) == pytest.approx(320 / 8, abs=1)
    assert given.count(PriorityLevel.REFUSED) == pytest.approx(320 / 32, abs=1)


def test_turns_that_were_waited_for_are_not_saved_up() -> None:
    """Who had nothing waiting has no claim on turns of that time, and one turn settles all claims."""
    order = flooded(plausible())
    for _ in range(100):
        order.take()
    order.put("late", refused())
    assert turns_until(order, "late") == TURNS_OF_OTHERS[PriorityLevel.REFUSED] + 1


@pytest.mark.parametrize("position", [0, MANY // 2, MANY])
def test_a_crowd_is_looked_at_from_both_ends(position: int) -> None:
    order: FairQueue[str] = FairQueue()
    for number in range(MANY):
        if number == position:
            order.put("honest", unfiltered())
        order.put(f"flood-{number}", unfiltered())
    order.put("honest", unfiltered())  # changes nothing where it waits already
    distance = min(position, MANY - position)
    assert turns_until(order, "honest") <= 2 * distance + 2


def test_few_are_no_crowd() -> None:
    order: FairQueue[str] = FairQueue()
    keys = [f"key-{number}" for number in range(CROWD)]
    for key in keys:
        order.put(key, unfiltered())
    assert not order.is_crowded("token")
    assert list(taken(order)) == keys
    for key in (*keys, "one-more"):
        order.put(key, unfiltered() if key != "one-more" else refused())
    assert order.is_crowded("token")
    assert not order.is_crowded("other")
    order.discard("one-more")
    assert not order.is_crowded("token")


def test_a_crowd_of_one_requester_leaves_the_order_of_others() -> None:
    order = flooded(unfiltered("thief"))
    for key in ("first", "second", "third"):
        order.put(key, unfiltered("node"))
    assert [key for key in taken(order) if not key.startswith("flood")] == ["first", "second", "third"]


class OrderMachine(RuleBasedStateMachine):
    """Drives an order and a plain model of it, which looks at all keys for each turn."""

    flows = st.builds(
        Flow, st.sampled_from(PriorityLevel), st.sampled_from("rs"), st.sampled_from("pq"), st.sampled_from("12")
    )
    keys = st.integers(0, 12)

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(module, "CROWD", 3)
        self.patch.setattr(module, "LOOKS", 3)
        self.order: FairQueue[int] = FairQueue()
        self.waiting: dict[int, Flow] = {}  # in the order of arrival
        self.since: dict[tuple[object, ...], int] = {}  # screening and part of a path -> when it came, or had its turn
        self.others = dict.fromkeys(PriorityLevel, 0)
        self.looks = 0
        self.newest_next: dict[str, bool] = {}
        self.now = 0

    def teardown(self) -> None:
        self.patch.undo()

    def _crowded(self, requester: str) -> bool:
        return sum(flow.requester == requester for flow in self.waiting.values()) > 3

    def _kind(self, flow: Flow) -> object:
        crowd = flow.priority_level is PriorityLevel.UNFILTERED and self._crowded(flow.requester)
        return "crowd" if crowd else flow.priority_level

    def _prefixes(self, flow: Flow) -> Iterator[tuple[object, ...]]:
        for length in range(1, len(flow.path) + 1):
            yield (self._kind(flow), *flow.path[:length])

    def _settle(self) -> None:
        self.now += 1
        present = {prefix for flow in self.waiting.values() for prefix in self._prefixes(flow)}
        self.since = {prefix: self.since.get(prefix, self.now) for prefix in present}
        self.newest_next = {name: next_ for name, next_ in self.newest_next.items() if self._unfiltered_of(name)}

    def _unfiltered_of(self, requester: str) -> list[int]:
        return [key for key, flow in self.waiting.items() if flow == unfiltered(requester)]

    @rule(key=keys, flow=flows)
    def put(self, key: int, flow: Flow) -> None:
        if flow.priority_level is PriorityLevel.UNFILTERED:
            flow = unfiltered(flow.requester)
        self.order.put(key, flow)
        if self.waiting.get(key) == flow:
            return
        self.waiting.pop(key, None)
        self._settle()
        self.waiting[key] = flow
        self._settle()

    @rule(key=keys)
    def discard(self, key: int) -> None:
        self.order.discard(key)
        self.waiting.pop(key, None)
        self._settle()

    @precondition(lambda self: self.waiting)
    @rule()
    def take(self) -> None:
        expected = self._expected()
        assert self.order.take() == expected
        self.now += 1
        for prefix in self._prefixes(self.waiting[expected]):
            self.since[prefix] = self.now
        del self.waiting[expected]
        self._settle()

    def _whose_turn(self) -> object:
        present = sorted(kind for kind in map(self._kind, self.waiting.values()) if isinstance(kind, PriorityLevel))
        crowds = any(self._kind(flow) == "crowd" for flow in self.waiting.values())
        if crowds and (self.looks < 3 or not present):
            self.looks += 1
            return "crowd"
        self.looks = 0
        due = [kind for kind in present if kind is not present[0] and self.others[kind] >= TURNS_OF_OTHERS[kind]]
        turn = (due or present)[0]
        for kind in set(present):
            self.others[kind] = 0 if kind is turn else self.others[kind] + 1
        return turn

    def _expected(self) -> int:
        turn = self._whose_turn()
        flows = [flow for flow in self.waiting.values() if self._kind(flow) == turn]
        for depth in range(1, len(flows[0].path) + 1):
            first = min(self.since[(turn, *flow.path[:depth])] for flow in flows)
            flows = [flow for flow in flows if self.since[(turn, *flow.path[:depth])] == first]
        keys = [key for key, flow in self.waiting.items() if flow == flows[0]]
        if turn != "crowd":
            return keys[0]
        newest = self.newest_next.get(flows[0].requester, True)
        self.newest_next[flows[0].requester] = not newest
        return keys[-1 if newest else 0]

    @invariant()
    def as_many_wait(self) -> None:
        assert len(self.order) == len(self.waiting)
        for requester in "rs":
            assert self.order.is_crowded(requester) == self._crowded(requester)


TestOrderMachine = OrderMachine.TestCase
TestOrderMachine.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
