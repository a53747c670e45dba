"""Whether the gateway is to have a way into a workload cluster."""

from __future__ import annotations

from typing import Any

import pytest

from signer.access.containers.wishes import Wish, wish_of
from signer.configuration import AccessPermission
from signer.model.decision import Deferred
from signer.model.floors import NO_FLOORS
from signer.ssh.available import NotAvailable, Reason
from signer.store.caches import Caches
from tests.unit.signer.access.containers.world import ANYWHERE, CLUSTER, KEY, POLICY, World, authorities
from tests.unit.signer.ssh.world import run
from tests.unit.signer.store.over_limit import exceed


def wish(world: World, permission: AccessPermission = ANYWHERE, found: Any = None) -> Wish:
    async def asked() -> Wish:
        process = await world.started()
        return wish_of(KEY, process.ssh.caches, permission, lambda key: found or authorities(1))

    return run(asked())


def test_a_policy_with_access_wants_it() -> None:
    assert wish(World()) is Wish.WANTED


@pytest.mark.parametrize("ssh", [None, {}])
def test_a_policy_without_access_does_not(ssh: Any) -> None:
    world = World()
    world.choose(ssh)
    assert wish(world) is Wish.WITHDRAWN


def test_where_the_operator_allows_no_grants_it_is_withdrawn() -> None:
    assert wish(World(), AccessPermission(frozenset({"elsewhere"}))) is Wish.WITHDRAWN


@pytest.mark.parametrize("reason", [Reason.NOT_CHOSEN, Reason.NOT_ALLOWED])
def test_where_the_operator_allows_no_ssh_it_is_withdrawn(reason: Reason) -> None:
    assert wish(World(), found=NotAvailable(reason, "no")) is Wish.WITHDRAWN


@pytest.mark.parametrize("reason", [Reason.NOT_KNOWN, Reason.EDITED_AUTHORITY])
def test_a_fault_of_the_authorities_withdraws_nothing(reason: Reason) -> None:
    assert wish(World(), found=NotAvailable(reason, "no")) is Wish.WANTED


def test_without_cluster_or_policy_it_is_withdrawn() -> None:
    for path in (CLUSTER, POLICY):
        world = World()
        world.management.api.remove(path)
        assert wish(world) is Wish.WITHDRAWN


@pytest.mark.parametrize(
    ("patch", "found"),
    [
        ({"spec": {"paused": True}}, Wish.UNDECIDED),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, Wish.WITHDRAWN),
        (
            {
                "metadata": {
                    "deletionTimestamp": "2026-01-01T00:00:00Z",
                    "annotations": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""},
                }
            },
            Wish.UNDECIDED,
        ),
    ],
)
def test_states_of_the_cluster(patch: dict[str, Any], found: Wish) -> None:
    world = World()
    world.patch_cluster(patch)
    assert wish(world) is found


def test_an_invalid_policy_leaves_it_open_while_the_cluster_lives() -> None:
    world = World()
    world.choose({"access": {"maxLifetime": "ever"}})
    assert wish(world) is Wish.UNDECIDED
    world.patch_cluster({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert wish(world) is Wish.WITHDRAWN


@pytest.mark.parametrize("what", ["clusters", "policies"])
def test_what_was_dropped_withdraws_nothing(what: str) -> None:
    """Cluster and policy are there, and the cache keeps none of a namespace over its limit."""
    world = World()

    async def asked() -> Wish:
        process = await world.started()
        exceed(getattr(process.ssh.caches, what), KEY.namespace)
        return wish_of(KEY, process.ssh.caches, ANYWHERE, lambda key: authorities(1))

    assert run(asked()) is Wish.UNDECIDED


def test_nothing_is_decided_by_caches_that_are_behind() -> None:
    """Before their first list, every Cluster is missing."""
    world = World()

    async def asked() -> None:
        process = await world.started()
        empty = Caches(process.ssh.caches.version, own_namespace="own", floors=NO_FLOORS)
        with pytest.raises(Deferred):
            wish_of(KEY, empty, ANYWHERE, lambda key: authorities(1))

    run(asked())
