from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from signer.controller.requests.request_budget import FairShares, NothingToEvict, Usage

Path = tuple[str, ...]


def test_nothing_is_evicted_from_empty_shares() -> None:
    shares: FairShares[str] = FairShares()
    with pytest.raises(NothingToEvict):
        shares.newest_of_heaviest()
    with pytest.raises(NothingToEvict):
        shares.eviction_candidate(("token", "machine"), 1)


def test_an_absent_key_cannot_be_removed() -> None:
    shares: FairShares[str] = FairShares()
    shares.add(("token",), "a", Usage(1, 1))
    shares.remove(("token",), "a")
    with pytest.raises(KeyError):
        shares.remove(("token",), "a")


def test_stale_heap_entries_are_bounded() -> None:
    shares: FairShares[int] = FairShares()
    shares.add(("always",), -1, Usage(1, 1))
    for number in range(10_000):
        assert shares.newest_of_heaviest() == -1
        shares.add((f"r{number}",), number, Usage(1, 1))
        shares.remove((f"r{number}",), number)
        shares.add(("always",), number, Usage(1, 2 + number))
        shares.remove(("always",), number)
    assert len(shares._heap) < 200
    (flow,) = shares._members.values()
    assert len(flow._heap) < 200


class SharesMachine(RuleBasedStateMachine):
    """Drives shares and a simple model that adds everything up for each query."""

    paths = st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"))
    weights = st.integers(1, 5)

    def __init__(self) -> None:
        super().__init__()
        self.shares: FairShares[int] = FairShares()
        self.kept: dict[int, tuple[Path, Usage]] = {}
        self.serial = 0

    @rule(path=paths, weight=weights, later=st.integers(0, 3))
    def add(self, path: Path, weight: int, later: int) -> None:
        """Not always in order of arrival: some move from another flow."""
        self.serial += 1
        usage = Usage(weight, self.serial + 1000 * later)
        self.shares.add(path, self.serial, usage)
        self.kept[self.serial] = (path, usage)

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.kept)))
        self.shares.remove(self.kept.pop(key)[0], key)

    def _weights(self, prefix: Path) -> Counter[str]:
        found: Counter[str] = Counter()
        for path, usage in self.kept.values():
            if path[: len(prefix)] == prefix:
                found[path[len(prefix)]] += usage.weight
        return found

    def _is_newest_of_its_flow(self, key: int) -> bool:
        own, usage = self.kept[key]
        return usage.arrival == max(other.arrival for path, other in self.kept.values() if path == own)

    @precondition(lambda self: self.kept)
    @rule()
    def newest_of_heaviest(self) -> None:
        key = self.shares.newest_of_heaviest()
        (requester, provider_id), _ = self.kept[key]
        assert self._weights(())[requester] == max(self._weights(()).values())
        assert self._weights((requester,))[provider_id] == max(self._weights((requester,)).values())
        assert self._is_newest_of_its_flow(key)

    @rule(path=paths, weight=weights)
    def evict(self, path: Path, weight: int) -> None:
        """An eviction makes shares more even, or the newcomer would be the heaviest."""
        for depth in range(2):
            weights = self._weights(path[:depth])
            own = weights[path[depth]] + weight
            others = [other for name, other in weights.items() if name != path[depth]]
            if max(others, default=0) > own:
                key = self.shares.eviction_candidate(path, weight)
                yielding, _ = self.kept[key]
                assert yielding[:depth] == path[:depth]
                assert weights[yielding[depth]] == max(others)
                assert self._is_newest_of_its_flow(key)
                return
        with pytest.raises(NothingToEvict):
            self.shares.eviction_candidate(path, weight)

    @invariant()
    def all_is_added_up(self) -> None:
        assert self.shares.weight == sum(usage.weight for _, usage in self.kept.values())


TestSharesMachine = SharesMachine.TestCase
TestSharesMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
