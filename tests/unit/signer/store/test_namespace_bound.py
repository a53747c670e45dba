"""A cache keeps nothing of a namespace that has too many objects, and loses none unnoticed when it is back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import pytest

from signer.configuration import Configuration
from signer.explain import readable
from signer.kube.client import Client, JsonObject
from signer.kube.errors import Cause, Unreachable
from signer.kube.watch import list_and_watch
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.floors import NO_FLOORS
from signer.model.namespace_limits import NamespaceLimits, OverLimit
from signer.model.reasons import Reason
from signer.model.seal import ControllerKeys
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.cache import Cache, ObjectKey
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from signer.store.namespace_bound import LIST_AGAIN_SECONDS, LISTS_AT_ONCE, NamespaceBound
from tests.unit.signer.store.over_limit import exceed, relist
from tests.unit.signer.store.test_caches import VERSION

LIMIT = 10


def manifest(name: str, namespace: str = "many", version: str = "1") -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name, "resourceVersion": version}, "spec": 7}


def objects(count: int, namespace: str = "many") -> list[dict[str, Any]]:
    return [manifest(f"m{number}", namespace) for number in range(count)]


class Bounded:
    """A cache with a limit, and what it tells."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.at = 0.0
        self.parsed: list[str] = []
        self.changes: list[tuple[ObjectKey, int | None, int | None]] = []
        self.told: list[tuple[str, bool]] = []
        self.bound = NamespaceBound("numbers", limit, monotonic=lambda: self.at)
        self.cache: Cache[int] = Cache(
            "numbers",
            self._parse,
            lambda key, before, after: self.changes.append((key, before, after)),
            bound=self.bound,
            bound_changed=lambda namespace: self.told.append((namespace, self.cache.drops(namespace))),
        )

    def _parse(self, item: JsonObject) -> int:
        self.parsed.append(item["metadata"]["name"])
        value: int = item["spec"]
        return value

    def list(self, *items: dict[str, Any]) -> list[dict[str, Any]]:
        self.cache.list_begins()
        kept = [item for item in items if self.cache.parse_list_item(item)]
        self.cache.replaced(kept)
        return kept

    def add(self, item: dict[str, Any]) -> None:
        self.cache.added(item)
        self.cache.applied(item)

    @property
    def namespaces(self) -> set[str]:
        return {key[0] for key in self.cache._values}


def test_at_the_limit_everything_is_kept() -> None:
    bounded = Bounded()
    bounded.list(*objects(LIMIT), manifest("a", "few"))
    assert len(bounded.cache) == LIMIT + 1
    assert bounded.told == []


def test_a_list_with_too_many_keeps_none_of_them() -> None:
    bounded = Bounded()
    kept = bounded.list(*objects(3 * LIMIT), manifest("a", "few"))
    assert bounded.namespaces == {"few"}
    assert bounded.told == [("many", True)]
    assert list(bounded.bound.over()) == [OverLimit("numbers", "many", 3 * LIMIT, LIMIT)]
    assert [item for item in kept if item.get("metadata", {}).get("namespace") == "many"] == []
    assert len(bounded.parsed) == LIMIT + 1, "what is beyond the limit is not even parsed"


def test_one_new_object_too_many_drops_the_others() -> None:
    bounded = Bounded()
    bounded.list(*objects(LIMIT), manifest("a", "few"))
    bounded.changes.clear()
    bounded.add(manifest("m-last"))
    assert bounded.namespaces == {"few"}
    assert len(bounded.changes) == LIMIT
    bounded.cache.applied(manifest("m0", version="2"))
    assert bounded.namespaces == {"few"}
    bounded.add(manifest("b", "few"))
    assert bounded.cache.get("few", "b") == 7


def test_changes_of_an_object_count_once() -> None:
    bounded = Bounded()
    bounded.list(*objects(LIMIT))
    for version in range(3 * LIMIT):
        bounded.cache.applied(manifest("m0", version=f"1{version}"))
    assert len(bounded.cache) == LIMIT


def test_deletions_make_room() -> None:
    bounded = Bounded()
    bounded.list(*objects(LIMIT))
    for item in objects(LIMIT):
        bounded.cache.removed(item)
        bounded.add(item)
    assert len(bounded.cache) == LIMIT


def test_only_a_list_ends_it() -> None:
    """The objects that the cache dropped are not reported again, so fewer objects alone prove nothing."""
    bounded = Bounded()
    bounded.list(*objects(LIMIT + 1))
    for number in range(LIMIT + 1):
        bounded.cache.removed(manifest(f"m{number}"))
    bounded.add(manifest("new"))
    assert bounded.cache.drops("many")
    assert len(bounded.cache) == 0
    assert bounded.cache.needs_list()
    bounded.list(manifest("new"))
    assert bounded.cache.get("many", "new") == 7
    assert bounded.told == [("many", True), ("many", False)]


def test_a_list_is_asked_for_a_tenth_below_the_limit() -> None:
    bounded = Bounded()
    bounded.list(*objects(LIMIT + 1))
    for number in range(2):
        assert not bounded.cache.needs_list()
        bounded.cache.removed(manifest(f"m{number}"))
    assert bounded.cache.needs_list()


def test_a_tenant_that_writes_and_deletes_has_few_lists_made() -> None:
    bounded = Bounded()

    def one_round() -> bool:
        bounded.list(*objects(LIMIT + 1))
        for item in objects(LIMIT + 1):
            bounded.cache.removed(item)
        return bounded.cache.needs_list()

    assert [one_round() for _ in range(LISTS_AT_ONCE + 2)] == [True] * LISTS_AT_ONCE + [False] * 2
    bounded.at += LIST_AGAIN_SECONDS
    assert bounded.cache.needs_list()


def test_what_a_broken_list_counted_does_not_count() -> None:
    bounded = Bounded()
    for _ in range(2):
        bounded.cache.list_begins()
        for item in objects(LIMIT):
            assert bounded.cache.parse_list_item(item)
    bounded.list(*objects(LIMIT))
    assert len(bounded.cache) == LIMIT


def test_a_broken_list_ends_nothing() -> None:
    bounded = Bounded()
    bounded.list(*objects(LIMIT + 1))
    bounded.cache.list_begins()
    bounded.cache.parse_list_item(manifest("m0"))
    assert bounded.cache.drops("many")


def test_own_writes_and_reads_are_not_kept() -> None:
    bounded = Bounded()
    bounded.list(*objects(LIMIT + 1))
    assert bounded.cache.written(manifest("own")) == 7
    bounded.cache.found(manifest("read"))
    assert len(bounded.cache) == 0


def test_lists_without_parsed_items_count_too() -> None:
    bounded = Bounded()
    bounded.cache.replaced(objects(LIMIT + 1))
    assert len(bounded.cache) == 0


class Server:
    """Lists what it holds, and sends one script of events for each watch."""

    def __init__(self, *watches: list[tuple[str, JsonObject]], held: list[JsonObject]) -> None:
        self.watches = list(watches)
        self.held = held
        self.lists = 0
        self.broken_lists = 0
        self.watch_ends: Callable[[], None] = lambda: None

    async def list_pages(self, path: str, params: Any = None, limit: int = 500, **_: Any) -> AsyncGenerator[JsonObject]:
        self.lists += 1
        yield {"metadata": {"resourceVersion": "1"}, "items": [dict(item) for item in self.held]}
        if self.lists <= self.broken_lists:
            raise Unreachable("cut", cause=Cause.TIMEOUT)

    async def watch(self, path: str, params: Any = None, **_: Any) -> AsyncGenerator[JsonObject]:
        if not self.watches:
            raise _Over
        for kind, item in self.watches.pop(0):
            yield {"type": kind, "object": item}
        self.watch_ends()
        raise Unreachable("cut", cause=Cause.TIMEOUT)


class _Over(Exception):
    """The script is played."""


async def no_sleep(seconds: float) -> None:
    """Time does not pass."""


async def played(server: Server, bounded: Bounded) -> None:
    with pytest.raises(_Over):
        await list_and_watch(
            server,
            "/",
            sink=bounded.cache,
            keep=bounded.cache.parse_list_item,
            census=bounded.cache,
            sleep=no_sleep,
        )


async def test_the_loop_lists_again_as_soon_as_enough_is_deleted() -> None:
    """Without waiting for the watch to end, and with what was created meanwhile."""
    server = Server(held=objects(LIMIT))
    server.watches = [
        [
            ("ADDED", manifest("m-last", version="2")),
            ("MODIFIED", manifest("m0", version="3")),
            *(("DELETED", manifest(f"m{number}", version="4")) for number in range(2)),
            ("ADDED", manifest("never read: the watch is left before", version="5")),
        ],
    ]
    bounded = Bounded()
    await played(server, bounded)
    assert server.lists == 2
    assert len(bounded.cache) == LIMIT
    assert bounded.told == [("many", True), ("many", False)]


async def test_the_loop_lists_again_when_another_list_may_begin() -> None:
    """Also where nothing of the collection changes any more."""
    bounded = Bounded()
    deletions = [("DELETED", manifest(f"m{number}", version="4")) for number in range(2)]
    server = Server([("ADDED", manifest("m-last", version="2")), *deletions], [], held=objects(LIMIT))
    for _ in range(LISTS_AT_ONCE):
        assert bounded.bound._lists.take_if_there()
    ended = 0

    def time_passes() -> None:
        nonlocal ended
        ended += 1
        bounded.at += LIST_AGAIN_SECONDS

    server.watch_ends = time_passes
    await played(server, bounded)
    assert server.lists == 2
    assert len(bounded.cache) == LIMIT


async def test_the_loop_does_not_count_a_list_that_broke() -> None:
    bounded = Bounded()
    server = Server([], held=objects(LIMIT))
    server.broken_lists = 1
    await played(server, bounded)
    assert len(bounded.cache) == LIMIT


def test_requests_are_woken_by_both_changes() -> None:
    """Those that wait, and those that were decided: their policy's condition changes."""
    caches = Caches(VERSION, own_namespace="own", floors=NO_FLOORS, limits=LIMITS)
    wakes: list[ClusterKey] = []
    cluster = ClusterKey("team-a", "prod")
    caches.clusters.applied({"metadata": {"namespace": "team-a", "name": "prod", "uid": "c"}, "spec": {}})
    caches.on_cluster_change(wakes.append)
    exceed(caches.machines, "team-a")
    assert wakes == [cluster]
    relist(caches.machines)
    assert wakes == [cluster] * 2


def test_kubeadm_configs_that_are_read_no_longer_stop_nothing() -> None:
    """An operator may take the grant away."""
    caches = Caches(VERSION, own_namespace="own", floors=NO_FLOORS)
    tokens = BootstrapTokens(cast("Client", None), caches)
    exceed(tokens._configs, "team-a")
    assert [one.resource for one in caches.over_limits.of("team-a")] == ["kubeadmconfigs"]
    tokens._new_cache()
    assert caches.over_limits.of("team-a") == ()


async def test_explain_has_the_same_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def discovered(source: object) -> ClusterAPIVersion:
        return VERSION

    monkeypatch.setattr(readable, "discover_cluster_api", discovered)
    configuration = Configuration(namespace="own", namespace_limits=LIMITS)
    assert (await readable.empty_caches(cast("Client", None), configuration)).limits == LIMITS


LIMITS = NamespaceLimits(machines=1)


def machine(name: str, namespace: str) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "uid": name, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"clusterName": "prod", "providerID": f"test:///{name}"}}


def test_decisions_of_that_namespace_wait() -> None:
    caches = Caches(VERSION, own_namespace="own", floors=NO_FLOORS, limits=LIMITS)
    caches.authentic.use_keys(ControllerKeys(bytes(32)))
    caches.machines.replaced([machine("a", "team-a"), machine("b", "team-a"), machine("c", "team-b")])
    caches.require_current("team-b")
    with pytest.raises(Deferred) as waits:
        caches.require_current("team-a")
    assert waits.value.defer.reason is Reason.NAMESPACE_OVER_LIMIT
    assert "at least 2 machines" in waits.value.defer.message
    with pytest.raises(Deferred) as waits:
        caches.require_all_kept("team-a")
    assert "team-a" not in waits.value.defer.message, "it may be another tenant's"


def test_the_own_namespace_has_no_limit() -> None:
    """Reservations of all tenants are there."""
    caches = Caches(VERSION, own_namespace="own", floors=NO_FLOORS, limits=NamespaceLimits(1, 1, 1, 1, 1, 1))
    assert caches.reservations._bound.limit > 1_000_000


def test_a_message_changes_with_each_tenth_of_the_limit() -> None:
    """Each change of a condition is a write."""
    shown = {str(OverLimit("machines", "team-a", count, 1000)) for count in range(1001, 1100)}
    assert len(shown) == 1
