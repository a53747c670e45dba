"""Leases of shards and replicas for tests, as an API server would list them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from signer.model.lease import ElectionTimes, Holding, Lease
from signer.model.shard import Replica, ShardLease, ShardLeases, replica_lease, shard_lease
from signer.rules.sharding import Division

NAME: Final = "lease"
TIMES: Final = ElectionTimes()
DURATION: Final = 15


def holding(holder: str, renewals: int = 0) -> Holding:
    """In these hands, renewed so often."""
    return Holding(holder, DURATION, "", f"renewal-{renewals}", 0)


def replica(identity: str, *, count: int, created: str = "", renewals: int = 0, left: bool = False) -> Replica:
    """A replica's own Lease."""
    name = replica_lease(NAME, identity)
    return Replica(name, f"uid-{identity}", created, count, Lease(holding("" if left else identity, renewals), {}))


def shard(number: int, holder: str) -> ShardLease:
    """A shard's Lease."""
    name = shard_lease(NAME, number)
    return ShardLease(name, f"uid-{name}", Lease(holding(holder), {}))


def leases(replicas: Iterable[Replica], owners: Mapping[int, str]) -> ShardLeases:
    """All of them; ``owners`` by number of the shard."""
    shards = {number: shard(number, owner) for number, owner in owners.items()}
    return ShardLeases({one.lease_name: one for one in replicas}, shards)


def division(identity: str, count: int) -> Division:
    """What that replica knows before its first look."""
    return Division(NAME, identity, count, TIMES)
