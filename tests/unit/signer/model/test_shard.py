"""Shards, and the Leases that say whose they are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from signer.model.cluster import ClusterKey
from signer.model.lease import API_VERSION
from signer.model.shard import (
    EVERY_SHARD,
    MAXIMUM_SHARDS,
    SHARD_COUNT_ANNOTATION,
    SomeShards,
    parse_shard_leases,
    replica_lease,
    shard_lease,
    shard_of,
)

ONE = ClusterKey("team-a", "production")
REPLICA = replica_lease("lease", "pod_1")


def manifest(name: str, holder: str = "pod_1", count: str = "8", **metadata: Any) -> dict[str, Any]:
    """As an item of a list: without its kind."""
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {SHARD_COUNT_ANNOTATION: count},
            **metadata,
        },
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
    }


def test_a_cluster_is_in_the_same_shard_in_every_release() -> None:
    """These numbers must never change: replicas of two releases would both serve a Cluster, or neither."""
    assert [shard_of(ONE, count) for count in (1, 2, 16, 256)] == [0, 1, 7, 103]
    assert shard_of(ClusterKey("team-a", "staging"), 256) != shard_of(ONE, 256)


def test_clusters_are_spread_over_all_shards() -> None:
    found = Counter(shard_of(ClusterKey("default", f"cluster-{number}"), 8) for number in range(800))
    assert set(found) == set(range(8))
    assert max(found.values()) < 150


def test_a_name_that_no_text_can_hold_has_a_shard() -> None:
    assert 0 <= shard_of(ClusterKey("default", "\ud800"), 8) < 8
    assert replica_lease("lease", "\ud800")


def test_who_owns_what() -> None:
    number = shard_of(ONE, 16)
    others = frozenset(range(16)) - {number}
    assert (EVERY_SHARD.own(ONE), EVERY_SHARD.leave(ONE)) == (True, False)
    assert not SomeShards(16).own(ONE)
    owning = SomeShards(16, owned=frozenset({number}), leaving=others)
    assert (owning.own(ONE), owning.leave(ONE)) == (True, False)
    leaving = SomeShards(16, owned=others, leaving=frozenset({number}))
    assert (leaving.own(ONE), leaving.leave(ONE)) == (False, True)


def test_leases_are_told_apart_by_their_names() -> None:
    read = parse_shard_leases("lease", [manifest(shard_lease("lease", 7), count=""), manifest(REPLICA)])
    [(number, shard)] = read.shards.items()
    assert (number, shard.lease_name, shard.uid) == (7, "lease-shard-7", "uid-lease-shard-7")
    assert shard.lease.holding.holder == "pod_1"
    assert (shard.lease.manifest["apiVersion"], shard.lease.manifest["kind"]) == (API_VERSION, "Lease")
    [(name, replica)] = read.replicas.items()
    assert (name, replica.lease_name, replica.uid, replica.count) == (REPLICA, REPLICA, f"uid-{REPLICA}", 8)
    assert (replica.created, replica.has_left) == ("2026-01-01T00:00:00Z", False)
    assert read.unreadable == ()


def test_a_replica_that_has_left() -> None:
    read = parse_shard_leases("lease", [manifest(REPLICA, holder="")])
    assert read.replicas[REPLICA].has_left


@pytest.mark.parametrize(
    "wrong",
    [
        manifest("lease"),
        manifest("lease-7"),
        manifest("other-shard-7"),
        manifest("lease-shard-"),
        manifest("lease-shard-07"),
        manifest("lease-shard--7"),
        manifest("lease-shard-²"),
        manifest("lease-shard-٣"),
        manifest(f"lease-shard-{MAXIMUM_SHARDS}"),
        manifest("lease-shard-" + "9" * 5000),
        manifest("lease-shard-7", resourceVersion=""),
        manifest(REPLICA, count="0"),
        manifest(REPLICA, count=str(MAXIMUM_SHARDS + 1)),
        manifest(REPLICA, count="eight"),
        manifest(REPLICA, count="²"),
        manifest(REPLICA, count="٣"),
        manifest(REPLICA, count=""),
        manifest(REPLICA, count="9" * 5000),
        manifest(REPLICA, annotations=None),
        {**manifest(REPLICA), "spec": {"leaseDurationSeconds": "long"}},
        {},
    ],
    ids=lambda wrong: "",
)
def test_what_no_controller_wrote_so_is_left_out_and_named(wrong: dict[str, Any]) -> None:
    right = manifest(shard_lease("lease", 0))
    read = parse_shard_leases("lease", [wrong, right])
    assert (set(read.shards), set(read.replicas)) == ({0}, set())
    assert read.unreadable == ((wrong.get("metadata") or {}).get("name", ""),)


@pytest.mark.parametrize("count", [1, MAXIMUM_SHARDS])
def test_as_many_shards_as_there_may_be(count: int) -> None:
    read = parse_shard_leases("lease", [manifest(REPLICA, count=str(count)), manifest(f"lease-shard-{count - 1}")])
    assert (read.replicas[REPLICA].count, set(read.shards)) == (count, {count - 1})


def test_as_many_as_releases_agree_upon() -> None:
    """Replicas of two releases share shards while one takes the other's place."""
    assert MAXIMUM_SHARDS == 256
    assert replica_lease("lease", "pod_1") == "lease-replica-f3f1b69520b2b1d7"
