from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from signer.controller.requests.request_budget import (
    BOOKKEEPING_BYTES,
    OWN_BYTES,
    PRE_FILTERED_PER_NEWCOMER,
    BudgetExceeded,
    Limits,
    RequestBudget,
    SharedRequestMemory,
)
from signer.model.flow import Flow, PriorityLevel

REQUESTS: Final = 100
SMALL: Final = 1


def unfiltered(requester: str = "token") -> Flow:
    return Flow(PriorityLevel.UNFILTERED, requester)


def plausible(requester: str = "token", provider_id: str = "a", public_key: str = "1") -> Flow:
    return Flow(PriorityLevel.PLAUSIBLE, requester, provider_id, public_key)


def refused(requester: str = "token", provider_id: str = "a") -> Flow:
    return Flow(PriorityLevel.REFUSED, requester, provider_id)


@dataclass
class Kept:
    """A budget, and the flow that pre-filtering each request would find."""

    limits: Limits = field(default_factory=lambda: Limits(REQUESTS, 1 << 30))
    found: dict[str, Flow] = field(default_factory=dict)
    pre_filtered: list[str] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    shared_memory: SharedRequestMemory = field(default_factory=lambda: SharedRequestMemory(1 << 40))

    def __post_init__(self) -> None:
        self.budget: RequestBudget[str] = RequestBudget(
            lambda: self.limits, self._pre_filter, self.evicted.append, self.shared_memory
        )

    def _pre_filter(self, key: str) -> Flow:
        self.pre_filtered.append(key)
        return self.found[key]

    def admit(self, key: str, found: Flow, *, known: bool = False, size: int = SMALL) -> bool:
        self.found[key] = found
        try:
            self.budget.admit(key, found if known else unfiltered(found.requester), size)
        except BudgetExceeded:
            return False
        return True

    def flood(self, *flows: Flow, known: bool = False) -> None:
        """Fill the budget."""
        for number in range(REQUESTS):
            assert self.admit(f"flood-{number}", flows[number % len(flows)], known=known)


def spread(count: int, priority_level: PriorityLevel = PriorityLevel.REFUSED) -> list[Flow]:
    """One token with another provider ID and key each time."""
    return [Flow(priority_level, "token", f"machine-{number}", f"key-{number}") for number in range(count)]


def test_nothing_is_pre_filtered_within_the_budget() -> None:
    kept = Kept()
    kept.flood(refused())
    assert kept.pre_filtered == []
    assert kept.budget.flow("flood-0") == unfiltered()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(spread(REQUESTS), id="random-provider-ids"),
        pytest.param([refused(provider_id="honest")], id="the-honest-provider-id"),
        pytest.param([refused("other"), refused("another")], id="other-tokens"),
        pytest.param([plausible(provider_id="stolen")], id="a-machine-of-its-own"),
        pytest.param([plausible(provider_id="honest", public_key="old")], id="copies-of-an-older-request"),
    ],
)
def test_an_honest_newcomer_is_kept_at_the_cost_of_the_flood(flood: list[Flow], known: bool) -> None:
    kept = Kept()
    kept.flood(*flood, known=known)
    assert kept.admit("honest", plausible(provider_id="honest", public_key="new"))
    assert kept.budget.flow("honest").priority_level is PriorityLevel.PLAUSIBLE
    assert len(kept.evicted) == 1


def test_a_flood_is_rejected_once_better_requests_fill_the_budget() -> None:
    kept = Kept()
    kept.flood(*spread(REQUESTS, PriorityLevel.PLAUSIBLE), known=True)
    for requester in ("token", "other"):
        assert not kept.admit("flood", refused(requester))
    assert kept.evicted == []


def test_among_equals_the_newcomer_is_rejected() -> None:
    kept = Kept()
    kept.flood(*spread(REQUESTS), known=True)
    assert not kept.admit("flood", refused(provider_id="one-more"))
    assert not kept.admit("flood", refused(provider_id="machine-1"))
    assert kept.evicted == []


def test_requesters_share_equally() -> None:
    kept = Kept()
    kept.flood(unfiltered("thief"))
    honest = sum(kept.admit(f"node-{number}", unfiltered("node")) for number in range(REQUESTS))
    assert honest == REQUESTS // 2
    # Whoever came first stays.
    assert kept.evicted == [f"flood-{number}" for number in range(REQUESTS - 1, REQUESTS // 2 - 1, -1)]


def test_unfiltered_requests_are_pre_filtered_before_eviction() -> None:
    """Honest requests that came in the middle of a flood, before pre-filtering began."""
    kept = Kept()
    for number in range(REQUESTS):
        honest = number % 4 == 0
        kept.admit(
            f"{'node' if honest else 'flood'}-{number}", plausible(provider_id=f"{number}") if honest else refused()
        )
    for number in range(REQUESTS // 2):
        assert kept.admit(f"node-late-{number}", plausible(provider_id=f"late-{number}"))
    assert len(kept.evicted) == REQUESTS // 2
    assert all(key.startswith("flood") for key in kept.evicted)
    assert len(kept.pre_filtered) == len(set(kept.pre_filtered))


def test_one_newcomer_pre_filters_a_bounded_number() -> None:
    kept = Kept(Limits(1000, 1 << 30))
    for number in range(1000):
        kept.admit(f"node-{number}", plausible(provider_id=f"{number}"))
    assert kept.admit("late", plausible(provider_id="late"))
    assert len(kept.pre_filtered) == 1 + PRE_FILTERED_PER_NEWCOMER
    assert kept.evicted == [f"node-{999 - PRE_FILTERED_PER_NEWCOMER}"]


def test_unfiltered_requests_are_evicted_for_plausible_ones() -> None:
    kept = Kept()
    kept.flood(unfiltered("token"))
    assert kept.admit("honest", plausible())
    assert kept.evicted == [f"flood-{REQUESTS - 1}"]
    assert not kept.admit("another", unfiltered("token"))


def test_a_newer_state_keeps_the_age_of_the_request() -> None:
    kept = Kept()
    kept.flood(refused(), known=True)
    assert kept.admit("flood-0", refused(), known=True)
    assert kept.evicted == []
    assert kept.admit("honest", plausible())
    assert kept.evicted == [f"flood-{REQUESTS - 1}"]


def test_a_newer_state_that_does_not_fit_is_rejected() -> None:
    kept = Kept(Limits(REQUESTS, 4 * (1000 + BOOKKEEPING_BYTES)))
    for key in "abcd":
        assert kept.admit(key, refused(), known=True, size=1000)
    assert not kept.admit("a", refused(), known=True, size=2000)
    assert "a" not in kept.budget
    assert kept.evicted == []


def test_bytes_count_too() -> None:
    weight = 1000 + BOOKKEEPING_BYTES
    kept = Kept(Limits(REQUESTS, 4 * weight))
    for key in "abcd":
        assert kept.admit(key, refused("thief"), size=1000)
    assert not kept.admit("e", refused("thief"), size=SMALL)
    assert kept.admit("honest", plausible(), size=1000 + weight)
    assert kept.evicted == ["d", "c"]
    assert not kept.admit("giant", plausible("other"), size=5 * weight)


def test_a_release_frees_the_budget() -> None:
    kept = Kept()
    kept.flood(unfiltered())
    for number in range(REQUESTS // 2):
        kept.budget.release(f"flood-{number}")
        assert not kept.budget.is_half_free
    kept.budget.release("flood-50")
    assert kept.budget.is_half_free
    assert "flood-50" not in kept.budget
    for unknown in (kept.budget.release, kept.budget.flow):
        with pytest.raises(KeyError):
            unknown("flood-50")
    with pytest.raises(KeyError):
        kept.budget.move("flood-50", refused())


WEIGHT = OWN_BYTES // 4
"""Four have room in what a cluster has for itself."""


def filled(shared_memory: SharedRequestMemory) -> Kept:
    """Fill the budget with a cluster's endless requests."""
    kept = Kept(Limits(10_000, 1 << 30), shared_memory=shared_memory)
    for number in range(1000):
        if not kept.admit(str(number), unfiltered(), size=WEIGHT - BOOKKEEPING_BYTES):
            break
    return kept


def test_clusters_share_memory_beyond_their_own() -> None:
    shared_memory = SharedRequestMemory(64 * WEIGHT)
    first, second = filled(shared_memory), filled(shared_memory)
    counts = [len(kept.found) - 1 for kept in (first, second)]
    assert counts == [4 + 32, 4 + 16], "each takes no more than it leaves to others"
    assert shared_memory.bytes_left == 16 * WEIGHT
    for _ in range(20):
        filled(shared_memory)
    assert 0 <= shared_memory.bytes_left <= WEIGHT
    late = filled(shared_memory)
    assert len(late.found) - 1 >= 4, "what it has for itself"
    assert not late.budget.is_half_free
    for number in range(3):
        late.budget.release(str(number))
    assert late.budget.is_half_free, "or it would never list again"


def test_released_memory_returns_to_other_clusters() -> None:
    shared_memory = SharedRequestMemory(8 * WEIGHT)
    kept = filled(shared_memory)
    assert shared_memory.bytes_left == 4 * WEIGHT
    kept.budget.release("0")
    assert shared_memory.bytes_left == 5 * WEIGHT
    kept.budget.close()
    kept.budget.close()
    assert shared_memory.bytes_left == 8 * WEIGHT
    kept.budget.release("1")  # by the later cluster
    assert shared_memory.bytes_left == 8 * WEIGHT


FLOWS = st.builds(
    Flow, st.sampled_from(PriorityLevel), st.sampled_from("rst"), st.sampled_from("pqx"), st.sampled_from("12")
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(FLOWS, st.booleans(), st.integers(1, 3000)), max_size=60))
def test_limits_hold_and_better_requests_stay(arrivals: list[tuple[Flow, bool, int]]) -> None:
    limits = Limits(10, 8 * (BOOKKEEPING_BYTES + 1000))
    kept = Kept(limits)
    sizes: dict[str, int] = {}
    for number, (flow, known, size) in enumerate(arrivals):
        key = str(number)
        before = {other for other in sizes if other in kept.budget}
        admitted = kept.admit(key, flow, known=known, size=size)
        sizes[key] = size
        present = {other for other in sizes if other in kept.budget}
        evicted = before - present
        assert (key in present) == admitted
        assert evicted == set(kept.evicted) & before
        assert len(present) <= limits.requests
        assert sum(sizes[other] + BOOKKEEPING_BYTES for other in present) <= limits.bytes
        # No request is evicted for a worse one, whatever was known of it.
        assert all(
            kept.found[other].priority_level >= flow.priority_level or other not in kept.pre_filtered
            for other in evicted
        )
        if flow.priority_level is PriorityLevel.REFUSED:
            assert all(kept.found[other].priority_level is PriorityLevel.REFUSED for other in evicted)
