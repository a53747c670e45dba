"""Shards: each Cluster belongs to one, and replicas of the controller divide the shards between them.

Two kinds of Lease say how: one of each shard names the replica that owns it, and one of each replica, which it keeps
renewing, says that it lives. So that to own many shards costs no more writes than to own one.
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
"""On every Lease of shards and of replicas that share them; its value is ``--leader-elect-resource-name``."""
SHARD_COUNT_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/shards"
"""On the Lease of a replica: its ``--shards``."""
_DIGEST_CHARACTERS: Final = 16
_DIGITS: Final = re.compile(r"[0-9]{1,3}", re.ASCII)


def shard_of(cluster: ClusterKey, count: int) -> int:
    """Which of ``count`` shards the Cluster belongs to: the same in every replica and release, for as long as it is
    called what it is called.
    """
    digest = hashlib.sha256(str(cluster).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % count


@dataclass(frozen=True, slots=True)
class EveryShard:
    """This replica shares with nobody."""

    def own(self, cluster: ClusterKey) -> bool:
        """Whether the Cluster is this replica's."""
        return True

    def leave(self, cluster: ClusterKey) -> bool:
        """Whether this replica hands the Cluster over at this moment."""
        return False


@dataclass(frozen=True, slots=True)
class SomeShards:
    """What one replica has of all shards."""

    count: int
    """Of all shards; they are numbered from 0."""
    owned: frozenset[int] = frozenset()
    leaving: frozenset[int] = frozenset()
    """Owned until what is under way in them has been finished; nothing new begins there."""

    def own(self, cluster: ClusterKey) -> bool:
        """Whether the Cluster is this replica's."""
        return shard_of(cluster, self.count) in self.owned

    def leave(self, cluster: ClusterKey) -> bool:
        """Whether this replica hands the Cluster over at this moment."""
        return shard_of(cluster, self.count) in self.leaving


Shards: TypeAlias = EveryShard | SomeShards
EVERY_SHARD: Final = EveryShard()


def shard_lease(name: str, number: int) -> str:
    """Name of a shard's Lease."""
    return f"{name}-shard-{number}"


def replica_lease(name: str, identity: str) -> str:
    """Name of a replica's own Lease: two identities never share one."""
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name}-replica-{digest[:_DIGEST_CHARACTERS]}"


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica's own Lease."""

    lease_name: str
    uid: str
    created: str
    """``creationTimestamp``, by the API server's clock: who came first is the same for all who read it."""
    count: int
    """Of shards, as it believes."""
    lease: Lease

    @property
    def has_left(self) -> bool:
        """Whether it has ended, all its work done, and said so."""
        return not self.lease.holding.holder


@dataclass(frozen=True, slots=True)
class ShardLease:
    """A shard's Lease."""

    lease_name: str
    uid: str
    lease: Lease


@dataclass(frozen=True, slots=True)
class ShardLeases:
    """All Leases of one group of replicas, as they were listed."""

    replicas: Mapping[str, Replica] = field(default_factory=dict)
    """By name of the Lease."""
    shards: Mapping[int, ShardLease] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    """Names of Leases that no controller wrote so; nothing is done about them."""


def parse_shard_leases(name: str, manifests: Iterable[Mapping[str, Any]]) -> ShardLeases:
    """Read what was listed by label; ``name`` is what all their names begin with."""
    replicas: dict[str, Replica] = {}
    shards: dict[int, ShardLease] = {}
    unreadable: list[str] = []
    for manifest in manifests:
        metadata = mapping_of(manifest, "metadata")
        lease_name, uid = text_of(metadata, "name"), text_of(metadata, "uid")
        kind, _, rest = lease_name.removeprefix(f"{name}-").partition("-")
        try:
            lease = parse_lease({**manifest, "apiVersion": API_VERSION, "kind": "Lease"})  # items of lists have neither
            if kind == "shard":
                shards[_shard_number(name, lease_name, rest)] = ShardLease(lease_name, uid, lease)
            elif kind == "replica":
                count = _shard_count(text_of(mapping_of(metadata, "annotations"), SHARD_COUNT_ANNOTATION))
                created = text_of(metadata, "creationTimestamp")
                replicas[lease_name] = Replica(lease_name, uid, created, count, lease)
            else:
                raise InvalidLease("neither a shard's nor a replica's")
        except InvalidLease:
            unreadable.append(lease_name)
    return ShardLeases(replicas, shards, tuple(unreadable))


def _shard_number(name: str, lease_name: str, text: str) -> int:
    number = _number(text)
    if number >= MAXIMUM_SHARDS or lease_name != shard_lease(name, number):
        raise InvalidLease("no number of a shard")
    return number


def _shard_count(text: str) -> int:
    count = _number(text)
    if not 1 <= count <= MAXIMUM_SHARDS:
        raise InvalidLease("no number of shards")
    return count


def _number(text: str) -> int:
    if _DIGITS.fullmatch(text) is None:
        raise InvalidLease("no number")
    return int(text)
