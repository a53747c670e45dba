"""A cache of a namespace over its limit keeps what still owes an end, and no more claims than the limit."""

from __future__ import annotations

from typing import Any

from signer.kube.client import JsonObject
from signer.store.cache import Cache
from signer.store.namespace_bound import LIST_AGAIN_SECONDS, LISTS_AT_ONCE, NamespaceBound
from signer.store.retention import Owed

LIMIT = 4
NOTHING, CLAIM, PROVEN = 0, 1, 2


class Owing:
    """The number that an object holds says what is owed."""

    unjudged = False

    def owed(self, value: int) -> Owed:
        return {NOTHING: Owed.NOTHING, CLAIM: Owed.CLAIMED, PROVEN: Owed.PROVEN}[value]

    def list_begins(self) -> None:
        """Every list is alike."""

    def wants_list(self) -> bool:
        return self.unjudged


def manifest(name: str, owed: int = NOTHING, version: str = "1") -> dict[str, Any]:
    return {"metadata": {"namespace": "many", "name": name, "resourceVersion": version}, "spec": owed}


def objects(prefix: str, count: int, owed: int = NOTHING) -> list[dict[str, Any]]:
    return [manifest(f"{prefix}{number}", owed) for number in range(count)]


def _parse(item: JsonObject) -> int:
    value: int = item["spec"]
    return value


class Kept:
    """A cache whose objects may owe an end."""

    def __init__(self) -> None:
        self.at = 0.0
        self.owing = Owing()
        self.bound = NamespaceBound("numbers", LIMIT, monotonic=lambda: self.at)
        self.cache: Cache[int] = Cache("numbers", _parse, bound=self.bound, owes=self.owing)

    def list_all(self, *items: dict[str, Any]) -> None:
        self.cache.list_begins()
        self.cache.replaced([item for item in items if self.cache.parse_list_item(item)])

    def add(self, item: dict[str, Any]) -> None:
        self.cache.added(item)
        self.cache.applied(item)

    @property
    def names(self) -> list[str]:
        return sorted(name for _, name in self.cache._values)


def test_a_list_keeps_every_proven_one_wherever_it_stands() -> None:
    kept = Kept()
    first, last = objects("a", 2, PROVEN), objects("z", 2 * LIMIT, PROVEN)
    kept.list_all(*first, *objects("m", LIMIT), *last)
    assert kept.names == sorted([*(f"a{number}" for number in range(2)), *(f"z{number}" for number in range(8))])
    assert kept.cache.drops("many")


def test_a_list_keeps_as_many_claims_as_the_limit() -> None:
    kept = Kept()
    kept.list_all(*objects("a", 3 * LIMIT, CLAIM), manifest("z", PROVEN))
    assert kept.names == ["a0", "a1", "a2", "a3", "z"]


def test_the_object_that_exceeds_the_limit_drops_those_that_owe_nothing() -> None:
    kept = Kept()
    kept.list_all(*objects("a", LIMIT - 1), manifest("b", PROVEN))
    kept.add(manifest("c"))
    assert kept.names == ["b"]
    kept.add(manifest("d", PROVEN))
    assert kept.names == ["b", "d"]


def test_what_owes_nothing_any_more_is_dropped() -> None:
    kept = Kept()
    kept.list_all(*objects("a", 2 * LIMIT), manifest("b", PROVEN))
    kept.cache.applied(manifest("b", PROVEN, "2"))
    assert kept.names == ["b"]
    kept.cache.applied(manifest("b", NOTHING, "3"))
    assert kept.names == []


def test_own_writes_count_at_once() -> None:
    kept = Kept()
    kept.list_all(*objects("a", 2 * LIMIT))
    assert kept.cache.written(manifest("b", PROVEN, "2")) == PROVEN
    assert kept.names == ["b"]
    assert kept.cache.written(manifest("c", NOTHING, "2")) == NOTHING
    assert kept.names == ["b"]


def test_a_claim_that_is_settled_makes_room() -> None:
    kept = Kept()
    kept.list_all(*objects("a", 2 * LIMIT, CLAIM))
    kept.cache.applied(manifest("z", CLAIM))
    assert kept.names == ["a0", "a1", "a2", "a3"]
    kept.cache.removed(manifest("a0", CLAIM))
    kept.cache.applied(manifest("a1", PROVEN, "2"))
    kept.cache.applied(manifest("y", CLAIM))
    kept.cache.applied(manifest("x", CLAIM))
    kept.cache.applied(manifest("w", CLAIM))
    assert kept.names == ["a1", "a2", "a3", "x", "y"]


def test_claims_that_found_no_room_are_listed_again() -> None:
    """Not at each change: each list spans all namespaces."""
    kept = Kept()
    kept.list_all(*objects("a", LIMIT + 1, CLAIM))
    assert not kept.cache.needs_list()
    for name in ("a0", "a1"):
        kept.cache.removed(manifest(name, CLAIM))
    # Enough of it is left to be over the limit.
    for item in objects("b", LIMIT):
        kept.cache.added(item)
    assert [kept.cache.needs_list() for _ in range(LISTS_AT_ONCE + 1)] == [True] * LISTS_AT_ONCE + [False]
    kept.at += LIST_AGAIN_SECONDS
    kept.list_all(*objects("a", LIMIT, CLAIM)[2:], manifest("z", CLAIM), *objects("b", LIMIT))
    assert kept.names == ["a2", "a3", "z"]
    assert not kept.cache.needs_list()


def test_what_could_not_be_judged_is_listed_again() -> None:
    kept = Kept()
    kept.list_all(*objects("a", LIMIT + 1))
    assert not kept.cache.needs_list()
    kept.owing.unjudged = True
    assert kept.cache.needs_list()


def test_within_the_limit_everything_is_kept() -> None:
    kept = Kept()
    kept.list_all(*objects("a", 2 * LIMIT, CLAIM))
    kept.list_all(*objects("a", LIMIT))
    assert len(kept.names) == LIMIT
