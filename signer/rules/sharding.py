"""Which shards a replica takes, keeps and lets go of, as far as it can tell from Leases.

Every replica sees the same Leases and comes to the same division, so nobody has to hand out shards; where two do not
see the same for a moment, the API server lets one of their writes through. As in :mod:`signer.rules.leadership`, no
time of another machine's clock is compared, and no decision about a request rests upon any of this.

The division moves as little as can be: replicas keep what they have, up to their part; only what is above it moves.
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
"""A Lease of a replica that died is removed when it has been seen unchanged for so many of its durations."""


@dataclass(frozen=True, slots=True)
class NoLease:
    """There is none of that name."""


@dataclass(frozen=True, slots=True)
class Sign:
    """The last sign of life of a replica."""

    holding: Holding | NoLease
    """Of its own Lease."""
    since: Instant
    """When it was first seen so."""


@dataclass(frozen=True, slots=True)
class Joining:
    """This replica's own Lease has not been seen yet."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """This replica has its part."""


@dataclass(frozen=True, slots=True)
class Disagreeing:
    """The replica that came first runs with another number of shards: this one takes none."""

    count: int


Standing: TypeAlias = Joining | Sharing | Disagreeing


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now."""

    standing: Standing
    living: int
    """How many replicas live."""
    take: tuple[int, ...] = ()
    release: frozenset[int] = frozenset()
    """Shards that another replica shall have, once what is under way in them has been finished."""
    remove: tuple[Replica | ShardLease, ...] = ()
    """Leases that mean nothing any more."""


@dataclass(frozen=True, slots=True)
class Division:
    """What one replica knows about all of them; each list of the Leases makes a new one of it."""

    name: str
    """``--leader-elect-resource-name``."""
    identity: str
    count: int
    """Of shards."""
    times: ElectionTimes
    leases: ShardLeases = field(default_factory=ShardLeases)
    asked: Instant = 0.0
    """When these Leases were asked for: what happened after it is not known."""
    signs: Mapping[str, Sign] = field(default_factory=dict)
    """By name of a replica's Lease."""

    @property
    def lease_name(self) -> str:
        """Of this replica's own Lease."""
        return replica_lease(self.name, self.identity)

    def read(self, leases: ShardLeases, asked: Instant, now: Instant) -> Division:
        """The API server listed these at some time between ``asked`` and ``now``."""
        owners = (owner for shard in leases.shards.values() for owner in self._owner(shard))
        signs = {name: self._sign(name, leases, now) for name in {*leases.replicas, *owners}}
        return replace(self, leases=leases, asked=asked, signs=signs)

    def wrote(self, number: int, shard: ShardLease) -> Division:
        """A write of ours succeeded: that is how the shard's Lease is now."""
        leases = replace(self.leases, shards={**self.leases.shards, number: shard})
        return replace(self, leases=leases)

    def owned(self) -> frozenset[int]:
        """The shards whose Leases name this replica."""
        return frozenset(
            number for number, shard in self.leases.shards.items() if shard.lease.holding.holder == self.identity
        )

    def plan(self) -> Plan:
        """What to do, if this replica's own Lease is good.

        However long ago the list was asked for, nobody is held to be dead for time that has passed since: a replica may
        have renewed its Lease in the meantime, and the Leases of its shards do not tell, since it writes them only to
        take them.
        """
        owning = self._owners()
        living = sorted(
            (one for one in self.leases.replicas.values() if self._lives(one.lease_name)),
            # creationTimestamp is in seconds: of two in the same one, who owns shards was first.
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
            # Shards of another number are other shards: they have to be let go of first.
            () if self._others_own(set(names) - set(peers)) else _dealt(self.lease_name, held, parts, free),
            frozenset(mine[parts[self.lease_name] :]),
            tuple(self._meaningless()) if names[0] == self.lease_name else (),
        )

    def _owner(self, shard: ShardLease) -> tuple[str, ...]:
        """The name of its owner's Lease, where it has an owner."""
        holder = shard.lease.holding.holder
        return (replica_lease(self.name, holder),) if holder else ()

    def _owners(self) -> set[str]:
        return {owner for shard in self.leases.shards.values() for owner in self._owner(shard)}

    def _living_owner(self, number: int) -> tuple[str, ...]:
        shard = self.leases.shards.get(number)
        return () if shard is None else tuple(name for name in self._owner(shard) if self._lives(name))

    def _others_own(self, others: set[str]) -> bool:
        return any(not others.isdisjoint(self._living_owner(number)) for number in self.leases.shards)

    def _sign(self, name: str, leases: ShardLeases, now: Instant) -> Sign:
        there = leases.replicas.get(name)
        holding = there.lease.holding if there is not None else NoLease()
        before = self.signs.get(name)
        # A Lease that somebody deleted is no proof of death: its owner makes it again, and may have renewed it until it
        # was deleted, which nobody has seen.
        if before is not None and before.holding == holding:
            return before
        return Sign(holding, now)

    def _lives(self, name: str) -> bool:
        there = self.leases.replicas.get(name)
        if there is not None and there.has_left:
            return False
        return self.asked < self.signs[name].since + self._duration(name)

    def _duration(self, name: str) -> float:
        there = self.leases.replicas.get(name)
        own = self.times.lease_duration.total_seconds()
        return own if there is None else there.lease.holding.duration_seconds

    def _meaningless(self) -> Iterator[Replica | ShardLease]:
        """Leases of replicas that are gone for long, and of shards that there are no more."""
        owners = self._owners()
        for name, one in self.leases.replicas.items():
            gone_at = self.signs[name].since + LINGER_DURATIONS * self._duration(name)
            if name not in owners and (one.has_left or self.asked >= gone_at):
                yield one
        for number, shard in self.leases.shards.items():
            if number >= self.count and not self._living_owner(number):
                yield shard


def _parts(held: Mapping[str, list[int]], count: int) -> dict[str, int]:
    """How many shards each is to have: as many as the others, or one more; that one goes to who has most already."""
    least, more = divmod(count, len(held))
    ranked = sorted(held, key=lambda name: -len(held[name]))
    return {name: least + (rank < more) for rank, name in enumerate(ranked)}


def _dealt(mine: str, held: Mapping[str, list[int]], parts: Mapping[str, int], free: list[int]) -> tuple[int, ...]:
    """Of the free shards those for ``mine``: dealt in order of names to all that lack some."""
    lacking = itertools.chain.from_iterable([name] * (parts[name] - len(held[name])) for name in sorted(held))
    return tuple(number for name, number in zip(lacking, free, strict=False) if name == mine)
