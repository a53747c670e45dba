"""Shards: each Cluster belongs to one, and the replicas of the controller divide the shards among them.

There are two kinds of Leases. A shard's Lease names the replica that owns the shard. A replica's Lease, which the
replica keeps renewing, shows that it lives. So a replica with many shards writes no more than one with a single shard.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from attestors.wire.names import ANNOTATION_PREFIX
from signer.model.cluster import ClusterKey
from signer.model.fields import mapping_of, text_of
from signer.model.lease import API_VERSION, InvalidLease, Lease, parse_lease

MAXIMUM_SHARDS: Final = 256
SHARDS_OF_LABEL: Final = f"{ANNOTATION_PREFIX}/shards-of"
"""Label of every shard's and replica's Lease. Its value is ``--leader-elect-resource-name``."""
SHARD_COUNT_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/shards"
"""Annotation of a replica's Lease: its ``--shards``."""
_DIGEST_CHARACTERS: Final = 16
_DIGITS: Final = re.compile(r"[0-9]{1,3}", re.ASCII)


def shard_of(cluster: ClusterKey, count: int) -> int:
    """The Cluster's shard among ``count``. It depends on the Cluster's namespace and name only, in every release."""
    digest = hashlib.sha256(str(cluster).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % count


@dataclass(frozen=True, slots=True)
class EveryShard:
    """This replica owns all Clusters."""

    def own(self, cluster: ClusterKey) -> bool:
        """Whether this replica owns the Cluster."""
        return True

    def leave(self, cluster: ClusterKey) -> bool:
        """Whether this replica is handing the Cluster over."""
        return False


@dataclass(frozen=True, slots=True)
class SomeShards:
    """The shards of one replica."""

    count: int
    """Number of all shards. They are numbered from 0."""
    owned: frozenset[int] = frozenset()
    leaving: frozenset[int] = frozenset()
    """Shards that are being handed over: work in progress is finished, and no new work begins."""

    def own(self, cluster: ClusterKey) -> bool:
        """Whether this replica owns the Cluster."""
        return shard_of(cluster, self.count) in self.owned

    def leave(self, cluster: ClusterKey) -> bool:
        """Whether this replica is handing the Cluster over."""
        return shard_of(cluster, self.count) in self.leaving


Shards: TypeAlias = EveryShard | SomeShards
EVERY_SHARD: Final = EveryShard()


def shard_lease(name: str, number: int) -> str:
    """Name of a shard's Lease."""
    return f"{name}-shard-{number}"


def replica_lease(name: str, identity: str) -> str:
    """Name of a replica's own Lease, unique to its identity."""
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name}-replica-{digest[:_DIGEST_CHARACTERS]}"


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica's own Lease."""

    lease_name: str
    uid: str
    created: str
    """``creationTimestamp``, by the API server's clock: every replica sees the same order."""
    count: int
    """The replica's number of shards, ``--shards``."""
    lease: Lease

    @property
    def has_left(self) -> bool:
        """Whether the replica has finished its work and released its Lease."""
        return not self.lease.holding.holder


@dataclass(frozen=True, slots=True)
class ShardLease:
    """A shard's Lease."""

    lease_name: str
    uid: str
    lease: Lease


@dataclass(frozen=True, slots=True)
class ShardLeases:
    """A list of all Leases of one group of replicas."""

    replicas: Mapping[str, Replica] = field(default_factory=dict)
    """By name of the Lease."""
    shards: Mapping[int, ShardLease] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    """Names of malformed Leases. They are ignored."""


def parse_shard_leases(name: str, manifests: Iterable[Mapping[str, Any]]) -> ShardLeases:
    """Read Leases that were listed by label. ``name`` is the prefix of their names."""
    replicas: dict[str, Replica] = {}
    shards: dict[int, ShardLease] = {}
    unreadable: list[str] = []
    for manifest in manifests:
        metadata = mapping_of(manifest, "metadata")
        lease_name, uid = text_of(metadata, "name"), text_of(metadata, "uid")
        kind, _, rest = lease_name.removeprefix(f"{name}-").partition("-")
        try:
            lease = parse_lease(
                {**manifest, "apiVersion": API_VERSION, "kind": "Lease"}
            )  # list items have neither field
            if kind == "shard":
                shards[_shard_number(name, lease_name, rest)] = ShardLease(lease_name, uid, lease)
            elif kind == "replica":
                count = _shard_count(text_of(mapping_of(metadata, "annotations"), SHARD_COUNT_ANNOTATION))
                created = text_of(metadata, "creationTimestamp")
                replicas[lease_name] = Replica(lease_name, uid, created, count, lease)
            else:
                raise InvalidLease("the name is neither a shard's nor a replica's")
        except InvalidLease:
            unreadable.append(lease_name)
    return ShardLeases(replicas, shards, tuple(unreadable))


def _shard_number(name: str, lease_name: str, text: str) -> int:
    number = _number(text)
    if number >= MAXIMUM_SHARDS or lease_name != shard_lease(name, number):
        raise InvalidLease("the name has no valid shard number")
    return number


def _shard_count(text: str) -> int:
    count = _number(text)
    if not 1 <= count <= MAXIMUM_SHARDS:
        raise InvalidLease("the number of shards is out of range")
    return count


def _number(text: str) -> int:
    if _DIGITS.fullmatch(text) is None:
        raise InvalidLease("not a number")
    return int(text)
