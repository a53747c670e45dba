"""Records in the management cluster: only those that this controller sealed count."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from signer.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from signer.model.authority_suffixes import ExpectedSecret, FormerAuthorities, NoRecord, RotatingAuthorities
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.floors import NO_FLOORS
from signer.model.seal import ControllerKeys, Fault
from signer.rotation.operations import NeverRotated
from signer.rotation.phases import Phase, Step
from signer.rotation.record import RotationRecord, RotationSeals, record_spec
from signer.rotation.rotations import RotationChanged, Rotations, Unverified, Verified, authorities_of
from signer.store.caches import Caches
from tests.unit.signer.builders import cluster_view
from tests.unit.signer.rotation.certificates import KEYS
from tests.unit.signer.rotation.model_world import KEY
from tests.unit.signer.rotation.situations import DIGEST, HASH, NEW, OLD, record_at
from tests.unit.signer.store.test_caches import VERSION

CLUSTER = cluster_view(key=KEY, uid="cluster-uid")
COLLECTION = "/apis/attestation.cluster.x-k8s.io/v1alpha1/namespaces/tenant/certificateauthorityrotations"
PATH = f"{COLLECTION}/blue"
RECORD = record_at(Step.ACCEPT)
OTHER = ClusterKey("tenant", "green")


class World:
    """An API server with at most one record, and the records as the controller knows them."""

    def __init__(self) -> None:
        self.keys: ControllerKeys | Deferred = KEYS
        self.stored: dict[str, Any] | None = None
        self.failure: ApiError | None = None
        self.change: dict[str, Any] = {}
        self.caches = Caches(VERSION, own_namespace="own", floors=NO_FLOORS)
        self.rotations = Rotations(self, self.caches, self._keys)
        self.woken: list[ClusterKey] = []
        self.rotations.on_change(self.woken.append)

    def _keys(self) -> ControllerKeys:
        if isinstance(self.keys, Deferred):
            raise self.keys
        return self.keys

    async def get(self, path: str) -> dict[str, Any]:
        assert path == PATH
        if self.stored is None:
            raise NotFound(path)
        return copy.deepcopy(self.stored)

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == COLLECTION
        if self.stored is not None:
            raise AlreadyExists(path)
        return self._store(body, {"uid": "u-1"})

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == PATH
        if self.stored is None:
            raise NotFound(path)
        before, asked = self.stored["metadata"], body["metadata"]
        if (before["uid"], before["resourceVersion"]) != (asked["uid"], asked["resourceVersion"]):
            raise Conflict(path)
        return self._store(body, {"uid": before["uid"]})

    def _store(self, body: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
        if self.failure is not None:
            raise self.failure
        version = int(self.stored["metadata"]["resourceVersion"]) + 1 if self.stored else 1
        stored = copy.deepcopy(body)
        stored["metadata"].update(metadata, resourceVersion=str(version))
        stored["spec"].update(self.change)
        self.stored = stored
        return copy.deepcopy(stored)

    def watch(self, manifest: dict[str, Any]) -> None:
        """The watch shows an object."""
        version = str(int(self.current["metadata"]["resourceVersion"]) + 1) if self.stored else "1"
        manifest["metadata"]["resourceVersion"] = version
        self.stored = manifest
        self.cache.applied(copy.deepcopy(manifest))

    @property
    def cache(self) -> Any:
        return self.rotations._cache

    @property
    def current(self) -> dict[str, Any]:
        assert self.stored is not None
        return self.stored

    async def begin(self, record: RotationRecord = RECORD) -> Verified:
        return await self.rotations.write(record, NeverRotated(), CLUSTER)


@pytest.fixture
def world() -> World:
    return World()


async def test_a_record_that_was_written_is_known(world: World) -> None:
    assert world.rotations.of(KEY) == NeverRotated()
    written = await world.begin()
    assert written == Verified(RECORD, "u-1", "1")
    assert world.rotations.of(KEY) == written
    assert world.rotations.of(OTHER) == NeverRotated()
    metadata = world.current["metadata"]
    assert metadata["labels"] == {
        "cluster.x-k8s.io/cluster-name": "blue",
        "clusterctl.cluster.x-k8s.io/move": "",
    }
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Cluster", "blue", "cluster-uid")


async def test_the_next_record_replaces_exactly_the_one_before(world: World) -> None:
    first = await world.begin()
    world.current["metadata"].update(labels={"team": "a", **world.current["metadata"]["labels"]}, finalizers=["f/f"])
    second = await world.rotations.write(replace(RECORD, sequence=2), first, CLUSTER)
    assert second == Verified(replace(RECORD, sequence=2), "u-1", "2")
    assert world.current["metadata"]["labels"]["team"] == "a"
    assert world.current["metadata"]["finalizers"] == ["f/f"]
    with pytest.raises(RotationChanged):
        await world.rotations.write(replace(RECORD, sequence=3), first, CLUSTER)
    with pytest.raises(RotationChanged):
        await world.rotations.write(replace(RECORD, sequence=3), replace(second, uid="u-0"), CLUSTER)
    assert world.rotations.of(KEY) == second


async def test_a_record_is_created_once(world: World) -> None:
    await world.begin()
    with pytest.raises(RotationChanged):
        await world.begin()


async def test_a_record_that_is_gone_is_not_replaced(world: World) -> None:
    first = await world.begin()
    world.stored = None
    with pytest.raises(RotationChanged):
        await world.rotations.write(replace(RECORD, sequence=2), first, CLUSTER)


async def test_other_failures_are_shown(world: World) -> None:
    world.failure = Forbidden("no", status=403)
    with pytest.raises(Forbidden):
        await world.begin()


@pytest.mark.parametrize("change", [{"step": "PublishTrust"}, {"operation": "x"}, {"phase": "x"}, {"seal": "x"}])
async def test_an_api_server_that_stores_something_else(world: World, change: dict[str, str]) -> None:
    """A webhook that mutates, or a schema that prunes."""
    world.change = change
    with pytest.raises(RotationChanged, match="another record than was written"):
        await world.begin()


async def test_an_api_server_that_answers_with_another_record_of_ours(world: World) -> None:
    other = record_at(Step.PUBLISH_TRUST)
    world.change = {**record_spec(other), "seal": RotationSeals(KEYS).seal(other)}
    with pytest.raises(RotationChanged, match="another record than was written"):
        await world.begin()


# A tenant's edits


def verdict(world: World) -> str:
    known = world.rotations.of(KEY)
    assert isinstance(known, Unverified), known
    # Nothing of it signs or is accepted. Evidence that names a CA of it waits, because a denial would be final.
    assert isinstance(world.rotations.authorities(KEY), FormerAuthorities | NoRecord)
    return known.message


@pytest.mark.parametrize(
    ("field", "value"),
    [("step", "PublishTrust"), ("sequence", 7), ("operation", "other"), ("takesBack", "NewWithOld"), ("heldAt", None)],
)
async def test_an_edited_record_does_not_count(world: World, field: str, value: Any) -> None:
    await world.begin(record_at(Step.SIGN_BY_OLD, held_at=Step.SWITCH) if field == "heldAt" else RECORD)
    edited = copy.deepcopy(world.current)
    if value is None:
        del edited["spec"][field]
    else:
        edited["spec"][field] = value
    world.watch(edited)
    assert Fault.WRONG_SEAL.value in verdict(world)


async def test_without_a_record_one_may_have_been_deleted_before_the_start(world: World) -> None:
    assert world.rotations.authorities(KEY) == NoRecord()
    await world.begin()
    world.cache.removed(world.current)
    assert isinstance(world.rotations.authorities(KEY), FormerAuthorities), "deleted while this process runs"


async def test_a_copy_of_another_clusters_record_does_not_count(world: World) -> None:
    await world.begin()
    copied = copy.deepcopy(world.current)
    copied["metadata"].update(name="green", uid="u-2")
    world.cache.applied(copied)
    known = world.rotations.of(OTHER)
    assert isinstance(known, Unverified)
    assert Fault.WRONG_SEAL.value in known.message
    assert isinstance(world.rotations.authorities(OTHER), FormerAuthorities), "evidence that names a CA of it waits"


async def test_an_unreadable_record_does_not_count(world: World) -> None:
    await world.begin()
    edited = copy.deepcopy(world.current)
    edited["spec"]["phase"] = "Completed"
    world.watch(edited)
    assert "is none of phase Completed" in verdict(world)


async def test_the_record_of_another_controller_does_not_count(world: World) -> None:
    await world.begin()
    world.keys = ControllerKeys(b"x" * 32)
    assert Fault.UNKNOWN_KEY.value in verdict(world)
    world.keys = ControllerKeys(b"x" * 32, b"k" * 32)
    assert isinstance(world.rotations.of(KEY), Verified), "the previous key still counts"


async def test_without_the_key_nothing_is_said(world: World) -> None:
    await world.begin()
    world.keys = Deferred("ControllerKeyUnavailable", "no key")
    for ask in (world.rotations.of, world.rotations.authorities):
        with pytest.raises(Deferred):
            ask(KEY)


async def test_each_version_is_verified_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.begin()
    first = world.rotations.of(KEY)
    assert world.rotations.of(KEY) is first
    world.watch(copy.deepcopy(world.current))
    second = world.rotations.of(KEY)
    assert isinstance(second, Verified)
    assert (second is first, second.resource_version) == (False, "2")


async def test_changes_wake_their_cluster(world: World) -> None:
    await world.begin()
    assert world.woken == [KEY]
    world.cache.removed(world.current)
    assert world.woken == [KEY, KEY]
    assert world.rotations.of(KEY) == NeverRotated()


# What decisions are told


def expected(role: Any) -> ExpectedSecret:
    suffix = "ca-abcdefgh" if role is NEW else "ca-abcdefgh-old"
    return ExpectedSecret(suffix, DIGEST[role], HASH[role])


BOTH_HASHES = frozenset(HASH.values())


@pytest.mark.parametrize(
    ("step", "client", "serving", "also"),
    [
        (Step.ACCEPT, OLD, OLD, (NEW,)),
        (Step.SIGN_CLIENTS, NEW, OLD, ()),
        (Step.SIGN_SERVING, NEW, NEW, (OLD,)),
        (Step.RETIRE_OLD, NEW, NEW, ()),
        (Step.SIGN_BY_OLD, OLD, OLD, (NEW,)),
    ],
)
async def test_who_signs(world: World, step: Step, client: Any, serving: Any, also: tuple[Any, ...]) -> None:
    await world.begin(record_at(step))
    assert world.rotations.authorities(KEY) == RotatingAuthorities(
        expected(client), expected(serving), tuple(map(expected, also)), BOTH_HASHES
    )


def test_before_and_after_a_rotation_the_other_ca_waits() -> None:
    both = frozenset({HASH[OLD], HASH[NEW]})
    assert authorities_of(record_at(Step.NEW_AUTHORITY, made=False)) == FormerAuthorities(frozenset({HASH[OLD]}))
    completed = record_at(Step.FORGET, phase=Phase.COMPLETED)
    assert authorities_of(completed) == FormerAuthorities(both)
    rolled_back = record_at(Step.DISCARD_NEW, phase=Phase.ROLLED_BACK)
    assert authorities_of(rolled_back) == FormerAuthorities(both)
    assert authorities_of(record_at(Step.DISCARD_NEW, made=False)) == FormerAuthorities(frozenset({HASH[OLD]}))


def test_after_a_rotation_that_was_abandoned_either_ca_is_accepted() -> None:
    """Nodes may know the cluster by the one or the other. Secret ``<cluster>-ca`` decides which of them signs."""
    both = frozenset({HASH[OLD], HASH[NEW]})
    abandoned = record_at(Step.NODES_TRUST, phase=Phase.ABANDONED)
    assert authorities_of(abandoned) == FormerAuthorities(both, (expected(OLD), expected(NEW)))
    early = record_at(Step.NEW_AUTHORITY, made=False, phase=Phase.ABANDONED)
    assert authorities_of(early) == FormerAuthorities(frozenset({HASH[OLD]}), (expected(OLD),))
