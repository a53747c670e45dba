"""Which Clusters the index of CAs counts, by the caches, and what wakes their requests."""

from __future__ import annotations

from typing import Any

import pytest

from signer.model.authority_sharing import NO_SHARING, NOT_SHARED, AuthorityHashes
from signer.model.cluster import WATCH_FILTER_LABEL, ClusterKey, WatchFilter
from signer.model.seal import ControllerKeys
from signer.store.caches import ALL_PROVIDER_IDS
from signer.store.published_authorities import authorities_to_publish
from tests.unit.signer.store.test_caches import World

MINE, OTHER = ClusterKey("team-a", "mine"), ClusterKey("team-b", "other")
SHARED = AuthorityHashes(frozenset({"sha256:" + "ab" * 32}))


def metadata(key: ClusterKey, version: str = "1") -> dict[str, Any]:
    return {"namespace": key.namespace, "name": key.name, "uid": str(key), "resourceVersion": version}


@pytest.fixture
def world() -> World:
    """Both Clusters have a policy; the other one's CA is read here."""
    world = World()
    for key in (MINE, OTHER):
        world.caches.clusters.applied({"metadata": metadata(key), "spec": {}})
        world.caches.policies.applied({"metadata": metadata(key), "spec": {"authorizedAttestors": [{"name": "tpm"}]}})
        world.caches.authorities.loaded(key, SHARED)
    assert shared_keys(world) == SHARED.keys
    world.wakes()
    return world


def shared_keys(world: World) -> frozenset[str]:
    return world.caches.authorities.shared(MINE, SHARED, NO_SHARING).keys


@pytest.mark.parametrize("what", ["clusters", "policies"])
def test_requests_are_woken_when_the_other_cluster_or_its_policy_is_deleted(world: World, what: str) -> None:
    getattr(world.caches, what).removed({"metadata": metadata(OTHER), "spec": {}})
    assert (MINE, ALL_PROVIDER_IDS) in world.wakes()
    assert world.caches.authorities.shared(MINE, SHARED, NO_SHARING) == NOT_SHARED


def test_a_cluster_that_is_served_elsewhere_counts_by_its_policys_status(world: World) -> None:
    world.caches.watch_filter = WatchFilter("ours")
    assert WATCH_FILTER_LABEL not in metadata(OTHER)
    assert not shared_keys(world)
    published = authorities_to_publish(OTHER, str(OTHER), SHARED, world.caches.authentic.keys())
    policy = {
        "metadata": metadata(OTHER, "2"),
        "spec": {"authorizedAttestors": [{"name": "tpm"}]},
        "status": {"certificateAuthorities": published},
    }
    world.caches.policies.applied(policy)
    assert (MINE, ALL_PROVIDER_IDS) in world.wakes()
    assert shared_keys(world) == SHARED.keys
    world.caches.clusters.removed({"metadata": metadata(OTHER), "spec": {}})
    assert not shared_keys(world), "its policy is left, and is of no Cluster"


def test_what_a_newer_controller_key_sealed_counts_once_that_key_is_read(world: World) -> None:
    """Another replica may have read the key, and published with it, before this one did."""
    newer = ControllerKeys(b"n" * 32)
    world.caches.watch_filter = WatchFilter("ours")
    published = authorities_to_publish(OTHER, str(OTHER), SHARED, newer)
    policy = {
        "metadata": metadata(OTHER, "2"),
        "spec": {"authorizedAttestors": [{"name": "tpm"}]},
        "status": {"certificateAuthorities": published},
    }
    world.caches.policies.applied(policy)
    assert not shared_keys(world)
    world.caches.authentic.use_keys(newer)
    assert shared_keys(world) == SHARED.keys
