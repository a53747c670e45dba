"""As whom the gateway may act: the creators of live grants for containers, and nobody else."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from signer.access.containers.creators import ASKED_SECONDS, GRACE, MAXIMUM_CREATORS, Creators, NoGateway
from signer.access.containers.objects import GATEWAY
from signer.access.plan import NotIssued
from signer.access.record import Cause, Closing, GrantRecord, GrantSeals
from signer.access.right_answers import Allowed
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.seal import ControllerKeys
from tests.support.access_objects import grant_object
from tests.unit.signer.access.containers.world import KEY, World, grants_cache
from tests.unit.signer.access.looks import KEYS, NOW, facts, issued
from tests.unit.signer.ssh.world import run

CONTAINER: Final = {"target": {"container": {"namespace": "web", "pod": "web-1", "container": "app"}}, "logins": []}
LOOK: Final = facts(spec=CONTAINER, right=Allowed())
CERTIFIED: Final = issued(LOOK)
CLUSTER: Final = ClusterKey(LOOK.metadata.namespace, LOOK.stated_cluster)
CREATOR: Final = CERTIFIED.creator.username


class Grants:
    """Grants as the cache has them, and the time."""

    def __init__(self, *, is_filled: bool = True) -> None:
        self.now = NOW
        self.monotonic = 0.0
        self.cache = grants_cache(is_filled=is_filled)
        self.creators = Creators(
            keys=lambda: KEYS, grants=self.cache, now=lambda: self.now, monotonic=lambda: self.monotonic
        )

    def put(self, record: GrantRecord, name: str = "", keys: ControllerKeys = KEYS, **spec: Any) -> None:
        """A grant with that record."""
        found = grant_object(**{**CONTAINER, **spec})
        if name:
            found["metadata"].update(name=name, uid=f"uid-{name}")
        metadata = replace(LOOK.metadata, name=found["metadata"]["name"], uid=found["metadata"]["uid"])
        found["status"] = {"record": GrantSeals(keys).sealed_object(metadata, record)}
        self.cache.applied(found)

    def wanted(self) -> tuple[str, ...]:
        return self.creators.wanted(CLUSTER)


def named(record: GrantRecord, creator: str, **changes: Any) -> GrantRecord:
    return replace(record, creator=replace(record.creator, username=creator), **changes)


def test_the_creator_of_a_certified_grant_is_named() -> None:
    grants = Grants()
    assert grants.wanted() == ()
    grants.put(CERTIFIED)
    assert grants.wanted() == (CREATOR,)
    assert grants.creators.wanted(ClusterKey(CLUSTER.namespace, "other")) == ()
    assert grants.creators.wanted(ClusterKey("other", CLUSTER.name)) == ()


@pytest.mark.parametrize(
    "record",
    [
        replace(CERTIFIED, state=Closing(Cause.DELETED, NOW)),
        replace(CERTIFIED, state=Closing(Cause.SUSPENDED, NOW)),
        replace(CERTIFIED, last_end=NOW - GRACE),
        replace(CERTIFIED, cluster="other"),
    ],
    ids=["ended", "suspended", "certificate over", "other Cluster"],
)
def test_what_is_over_names_nobody(record: GrantRecord) -> None:
    grants = Grants()
    grants.put(record)
    assert grants.wanted() == ()


def test_a_record_that_somebody_forged_names_nobody() -> None:
    grants = Grants()
    grants.put(named(CERTIFIED, "eve"), keys=ControllerKeys(b"x" * 32))
    assert grants.wanted() == ()


def test_a_grant_for_nodes_names_nobody() -> None:
    grants = Grants()
    grants.put(CERTIFIED, target={"nodes": ["worker-1"]}, logins=["ops"])
    assert grants.wanted() == ()


def test_nothing_is_written_before_the_grants_are_known() -> None:
    """Else a restart would end every session."""
    with pytest.raises(Deferred):
        Grants(is_filled=False).wanted()


def test_a_creator_is_written_before_the_first_certificate() -> None:
    grants = Grants()
    woken: list[str] = []
    told: list[ClusterKey] = []
    grants.creators.follow(CLUSTER, lambda: woken.append("woken"))
    grants.creators.on_written(told.append)
    with pytest.raises(NotIssued, match="ContainerAccessReady") as refused:
        grants.creators.require(CLUSTER, "u-1", "alice", has_certificate=False)
    assert refused.value.reason == "GatewayNotReady"
    assert (woken, grants.wanted()) == (["woken"], ("alice",))
    grants.creators.written(CLUSTER, grants.wanted())
    assert told == [CLUSTER]
    grants.creators.require(CLUSTER, "u-1", "alice", has_certificate=False)
    grants.creators.written(CLUSTER, grants.wanted())
    assert told == [CLUSTER], "nobody new"
    grants.creators.withdrawn(CLUSTER)
    with pytest.raises(NotIssued):
        grants.creators.require(CLUSTER, "u-1", "alice", has_certificate=False)


def test_a_renewal_waits_for_nothing() -> None:
    """As after a restart, while the workload cluster is out of reach."""
    Grants().creators.require(CLUSTER, "u-1", "alice", has_certificate=True)
    NoGateway().require(CLUSTER, "u-1", "alice", has_certificate=False)


def test_who_asked_and_ended_or_gave_up_is_dropped() -> None:
    grants = Grants()
    for uid in ("u-1", "u-2"):
        with pytest.raises(NotIssued):
            grants.creators.require(CLUSTER, uid, "alice", has_certificate=False)
    grants.creators.ended(CLUSTER, "u-1", "alice")
    assert grants.wanted() == ("alice",), "another grant of the same person waits"
    grants.creators.ended(CLUSTER, "u-2", "alice")
    assert grants.wanted() == ()
    with pytest.raises(NotIssued):
        grants.creators.require(CLUSTER, "u-3", "alice", has_certificate=False)
    grants.monotonic = ASKED_SECONDS
    assert grants.wanted() == ()


def test_the_names_are_bounded_and_the_oldest_grants_stay() -> None:
    grants = Grants()
    for number in range(MAXIMUM_CREATORS):
        made = CERTIFIED.created + timedelta(seconds=-number)
        grants.put(named(CERTIFIED, f"user-{number:03}", created=made), f"grant-{number:03}")
    before = grants.wanted()
    assert len(before) == MAXIMUM_CREATORS
    grants.creators.written(CLUSTER, before)
    with pytest.raises(NotIssued, match="wait until one ends"):
        grants.creators.require(CLUSTER, "u-1", "aaa", has_certificate=False)
    assert grants.wanted() == before


def test_from_a_grant_to_the_role_and_back() -> None:
    async def scenario() -> None:
        world = World()
        process = await world.started()

        def users() -> list[Any]:
            rules = world.workload.found("clusterroles", GATEWAY)["rules"]
            return [name for rule in rules if rule["resources"] == ["users"] for name in rule["resourceNames"]]

        await process.settle()
        assert users() == []
        with pytest.raises(NotIssued):
            process.creators.require(KEY, "u-1", "alice", has_certificate=False)
        await process.settle()
        assert users() == ["node-access:alice"]
        process.creators.require(KEY, "u-1", "alice", has_certificate=False)
        process.creators.ended(KEY, "u-1", "alice")
        assert await process.reconciler.look(world.workload) <= GRACE.total_seconds()
        assert users() == ["node-access:alice"], "the gateway still ends its processes"
        world.monotonic = GRACE.total_seconds()
        await process.settle()
        assert users() == []
        process.grants.filled.clear()
        calls = len(world.workload.calls)
        await process.reconciler.look(world.workload)
        assert len(world.workload.calls) == calls, "it waits"

    run(scenario())


def test_withdrawn_access_is_waited_for_again() -> None:
    async def scenario() -> None:
        world = World()
        process = await world.started()
        with pytest.raises(NotIssued):
            process.creators.require(KEY, "u-1", "alice", has_certificate=False)
        await process.settle()
        process.creators.require(KEY, "u-1", "alice", has_certificate=False)
        world.choose({})
        await process.settle()
        with pytest.raises(NotIssued):
            process.creators.require(KEY, "u-1", "alice", has_certificate=False)

    run(scenario())
