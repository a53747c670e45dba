"""Which shards a replica takes, keeps and releases, computed from Leases.

Every replica reads the same Leases and computes the same division, so no coordinator is needed. If two replicas have
read different states, the API server accepts only one of their writes. As in :mod:`signer.rules.leadership`, clocks of
different machines are never compared, and no decision about a request depends on the division.

The division moves as few shards as possible: a replica keeps its shards up to its part and releases only the excess.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from signer.model.lease import ElectionTimes, Holding
from signer.model.shard import Replica, ShardLease, ShardLeases, replica_lease
from signer.rules.leadership import Instant

LINGER_DURATIONS: Final = 10
"""The Lease of a dead replica is deleted once it has been unchanged for this many of its durations."""


@dataclass(frozen=True, slots=True)
class NoLease:
    """There is no Lease of that name."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The last observed change of a replica's own Lease."""

    holding: Holding | NoLease
    """The Lease's spec."""
    since: Instant
    """When the Lease was first read with this spec."""


@dataclass(frozen=True, slots=True)
class Joining:
    """This replica has not read its own Lease yet."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """This replica takes part in the division."""


@dataclass(frozen=True, slots=True)
class Disagreeing:
    """The oldest replica runs with another number of shards, so this one takes none."""

    count: int


Standing: TypeAlias = Joining | Sharing | Disagreeing


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions that are due."""

    standing: Standing
    living: int
    """Number of living replicas."""
    take: tuple[int, ...] = ()
    release: frozenset[int] = frozenset()
    """Shards to hand over to other replicas once the requests in progress are finished."""
    remove: tuple[Replica | ShardLease, ...] = ()
    """Obsolete Leases."""


@dataclass(frozen=True, slots=True)
class Division:
    """One replica's state of the division. Immutable: each list of the Leases returns a new state."""

    name: str
    """``--leader-elect-resource-name``."""
    identity: str
    count: int
    """Number of shards."""
    times: ElectionTimes
    leases: ShardLeases = field(default_factory=ShardLeases)
    asked: Instant = 0.0
    """When the list request for these Leases was sent. Later changes are unknown."""
    heartbeats: Mapping[str, Heartbeat] = field(default_factory=dict)
    """By name of a replica's Lease."""

    @property
    def lease_name(self) -> str:
        """Name of this replica's own Lease."""
        return replica_lease(self.name, self.identity)

    def read(self, leases: ShardLeases, asked: Instant, now: Instant) -> Division:
        """The API server returned this list at some time between ``asked`` and ``now``."""
        owners = (owner for shard in leases.shards.values() for owner in self._owner(shard))
        heartbeats = {name: self._heartbeat(name, leases, now) for name in {*leases.replicas, *owners}}
        return replace(self, leases=leases, asked=asked, heartbeats=heartbeats)

    def wrote(self, number: int, shard: ShardLease) -> Division:
        """This replica wrote the shard's Lease; ``shard`` is the result."""
        leases = replace(self.leases, shards={**self.leases.shards, number: shard})
        return replace(self, leases=leases)

    def owned(self) -> frozenset[int]:
        """The shards whose Leases name this replica."""
        return frozenset(
            number for number, shard in self.leases.shards.items() if shard.lease.holding.holder == self.identity
        )

    def plan(self) -> Plan:
        """The actions that are due, provided that this replica's own Lease is valid.

        Time that has passed since the list request does not count against other replicas: they may have renewed their
        Leases in the meantime. Shard Leases do not show that, because a replica writes them only to take the shard.
        """
        owning = self._owners()
        living = sorted(
            (one for one in self.leases.replicas.values() if self._lives(one.lease_name)),
            # creationTimestamp has whole seconds: of two replicas in the same second, one that owns shards is older.
            key=lambda one: (one.created, one.lease_name not in owning, one.lease_name),
        )
        names = [one.lease_name for one in living]
        if self.lease_name not in names:
            return Plan(Joining(), len(living))
        if (count := living[0].count) != self.count:
            return Plan(Disagreeing(count), len(living), release=self.owned())
        peers = [one.lease_name for one in living if one.count == self.count]
        held: dict[str, list[int]] = {name: [] for name in peers}
        free: list[int] = []
        for number in range(self.count):
            owners = self._living_owner(number)
            for owner in owners:
                held.get(owner, []).append(number)
            if not owners:
                free.append(number)
        parts = _parts(held, self.count)
        mine = held[self.lease_name]
        return Plan(
            Sharing(),
            len(living),
            # With another number of shards, each number names another shard: replicas must release those first.
            () if self._others_own(set(names) - set(peers)) else _dealt(self.lease_name, held, parts, free),
            frozenset(mine[parts[self.lease_name] :]),
            tuple(self._obsolete()) if names[0] == self.lease_name else (),
        )

    def _owner(self, shard: ShardLease) -> tuple[str, ...]:
        """Name of the Lease of the replica that owns the shard; empty if it has no owner."""
        holder = shard.lease.holding.holder
        return (replica_lease(self.name, holder),) if holder else ()

    def _owners(self) -> set[str]:
        return {owner for shard in self.leases.shards.values() for owner in self._owner(shard)}

    def _living_owner(self, number: int) -> tuple[str, ...]:
        shard = self.leases.shards.get(number)
        return () if shard is None else tuple(name for name in self._owner(shard) if self._lives(name))

    def _others_own(self, others: set[str]) -> bool:
        return any(not others.isdisjoint(self._living_owner(number)) for number in self.leases.shards)

    def _heartbeat(self, name: str, leases: ShardLeases, now: Instant) -> Heartbeat:
        replica = leases.replicas.get(name)
        holding = replica.lease.holding if replica is not None else NoLease()
        before = self.heartbeats.get(name)
        # A deleted Lease does not prove that its owner is dead: the owner recreates it, and may have renewed it unseen
        # until it was deleted.
        if before is not None and before.holding == holding:
            return before
        return Heartbeat(holding, now)

    def _lives(self, name: str) -> bool:
        replica = self.leases.replicas.get(name)
        if replica is not None and replica.has_left:
            return False
        return self.asked < self.heartbeats[name].since + self._duration(name)

    def _duration(self, name: str) -> float:
        replica = self.leases.replicas.get(name)
        own = self.times.lease_duration.total_seconds()
        return own if replica is None else replica.lease.holding.duration_seconds

    def _obsolete(self) -> Iterator[Replica | ShardLease]:
        """The Leases of replicas that are long gone, and of shards that no longer exist."""
        owners = self._owners()
        for name, one in self.leases.replicas.items():
            gone_at = self.heartbeats[name].since + LINGER_DURATIONS * self._duration(name)
            if name not in owners and (one.has_left or self.asked >= gone_at):
                yield one
        for number, shard in self.leases.shards.items():
            if number >= self.count and not self._living_owner(number):
                yield shard


def _parts(held: Mapping[str, list[int]], count: int) -> dict[str, int]:
    """Number of shards for each replica. The remainder goes, one each, to the replicas that already hold most."""
    least, more = divmod(count, len(held))
    ranked = sorted(held, key=lambda name: -len(held[name]))
    return {name: least + (rank < more) for rank, name in enumerate(ranked)}


def _dealt(mine: str, held: Mapping[str, list[int]], parts: Mapping[str, int], free: list[int]) -> tuple[int, ...]:
    """The free shards for ``mine``. They are dealt in order of names to the replicas below their part."""
    lacking = itertools.chain.from_iterable([name] * (parts[name] - len(held[name])) for name in sorted(held))
    return tuple(number for name, number in zip(lacking, free, strict=False) if name == mine)
