from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from signer.controller.requests.fair_share_eviction import NobodyYields, Portion, Shares

Path = tuple[str, ...]


def test_nobody_yields_where_nobody_is() -> None:
    shares: Shares[str] = Shares()
    with pytest.raises(NobodyYields):
        shares.newest_of_heaviest()
    with pytest.raises(NobodyYields):
        shares.yielding_to(("token", "machine"), 1)


def test_what_is_gone_cannot_be_removed() -> None:
    shares: Shares[str] = Shares()
    shares.add(("token",), "a", Portion(1, 1))
    shares.remove(("token",), "a")
    with pytest.raises(KeyError):
        shares.remove(("token",), "a")


def test_entries_of_what_was_do_not_pile_up() -> None:
    shares: Shares[int] = Shares()
    shares.add(("always",), -1, Portion(1, 1))
    for number in range(10_000):
        assert shares.newest_of_heaviest() == -1
        shares.add((f"r{number}",), number, Portion(1, 1))
        shares.remove((f"r{number}",), number)
        shares.add(("always",), number, Portion(1, 2 + number))
        shares.remove(("always",), number)
    assert len(shares._heap) < 200
    (lane,) = shares._members.values()
    assert len(lane._heap) < 200


class SharesMachine(RuleBasedStateMachine):
    """Drives shares and a plain model of them, which adds everything up for each question."""

    paths = st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"))
    weights = st.integers(1, 5)

    def __init__(self) -> None:
        super().__init__()
        self.shares: Shares[int] = Shares()
        self.kept: dict[int, tuple[Path, Portion]] = {}
        self.serial = 0

    @rule(path=paths, weight=weights, later=st.integers(0, 3))
    def add(self, path: Path, weight: int, later: int) -> None:
        """Not always in the order of arrival: some come from another lane."""
        self.serial += 1
        portion = Portion(weight, self.serial + 1000 * later)
        self.shares.add(path, self.serial, portion)
        self.kept[self.serial] = (path, portion)

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.kept)))
        self.shares.remove(self.kept.pop(key)[0], key)

    def _weights(self, prefix: Path) -> Counter[str]:
        found: Counter[str] = Counter()
        for path, portion in self.kept.values():
            if path[: len(prefix)] == prefix:
                found[path[len(prefix)]] += portion.weight
        return found

    def _is_newest_of_its_lane(self, key: int) -> bool:
        own, portion = self.kept[key]
        return portion.arrival == max(other.arrival for path, other in self.kept.values() if path == own)

    @precondition(lambda self: self.kept)
    @rule()
    def newest_of_heaviest(self) -> None:
        key = self.shares.newest_of_heaviest()
        (requester, provider_id), _ = self.kept[key]
        assert self._weights(())[requester] == max(self._weights(()).values())
        assert self._weights((requester,))[provider_id] == max(self._weights((requester,)).values())
        assert self._is_newest_of_its_lane(key)

    @rule(path=paths, weight=weights)
    def somebody_wants_a_place(self, path: Path, weight: int) -> None:
        """Whoever yields leaves shares more even, whatever the newcomer is; or the newcomer would be the heaviest."""
        for depth in range(2):
            weights = self._weights(path[:depth])
            own = weights[path[depth]] + weight
            others = [other for name, other in weights.items() if name != path[depth]]
            if max(others, default=0) > own:
                key = self.shares.yielding_to(path, weight)
                yielding, _ = self.kept[key]
                assert yielding[:depth] == path[:depth]
                assert weights[yielding[depth]] == max(others)
                assert self._is_newest_of_its_lane(key)
                return
        with pytest.raises(NobodyYields):
            self.shares.yielding_to(path, weight)

    @invariant()
    def all_is_added_up(self) -> None:
        assert self.shares.weight == sum(portion.weight for _, portion in self.kept.values())


TestSharesMachine = SharesMachine.TestCase
TestSharesMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
