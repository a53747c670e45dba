"""Which identity of each Machine was attested last, as far as this process has seen.

The seals of a record and of its reservation do not say that there is no newer one. Whoever may write both can put a
former identity of a Machine back, with its pair. This process does not believe it: the other one was attested later. A
restart forgets that, because a management cluster that was restored from a backup has nothing newer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from signer.model.record import AttestedNode, MachineKey

MOST_REMEMBERED: Final = 65_536
"""Maximum number of Machines. Those that were seen longest ago are forgotten first."""
_MOST_FORMER: Final = 4
"""Of one Machine. They matter only within one second, which is the resolution of records."""

_Identity: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Newest:
    at: datetime
    identity: _Identity
    former: tuple[_Identity, ...] = ()


class NewestAttestations:
    """The last attestation of each Machine, by authentic records alone."""

    def __init__(self) -> None:
        self._of: dict[MachineKey, _Newest] = {}

    def see(self, record: AttestedNode) -> None:
        """A record was found to be authentic."""
        found = _Newest(record.last_attestation, _identity(record))
        before = self._of.pop(record.machine, found)
        self._of[record.machine] = _later(before, found)
        if len(self._of) > MOST_REMEMBERED:
            del self._of[next(iter(self._of))]

    def is_of_former_identity(self, record: AttestedNode) -> bool:
        """Whether another identity of the record's Machine was attested later. The record was seen."""
        newest = self._of.get(record.machine)
        return newest is not None and newest.identity != _identity(record)


def _later(before: _Newest, found: _Newest) -> _Newest:
    if found.identity == before.identity:
        return _Newest(max(found.at, before.at), before.identity, before.former)
    if found.at > before.at or (found.at == before.at and found.identity not in before.former):
        former = (before.identity, *(one for one in before.former if one != found.identity))
        return _Newest(found.at, found.identity, former[:_MOST_FORMER])
    return before


def _identity(record: AttestedNode) -> _Identity:
    return record.identity.provider, record.identity.identity
