"""The reservations that the controller sealed. No other reservation gives or takes anything.

The cache of IdentityReservations is untrusted input: a writer of the controller's namespace need not hold the
controller key. A seal is verified whenever its reservation is used, so that a change of the keys counts at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from signer.model.decision import Deferred
from signer.model.reasons import Reason
from signer.model.record import AttestedNode
from signer.model.reservation import Attested, Basis, Pair, Reservation, ReservationSeals, ReservationSide
from signer.model.seal import Authentic, ControllerKeys, Generation, Unauthentic
from signer.store.authentic_records import AuthenticRecords
from signer.store.cache import Cache


@dataclass(frozen=True, slots=True)
class Reserved:
    """Both sides name the pair, and the controller wrote both."""

    bases: tuple[Basis, ...]
    """Of the Machine's side and the identity's side. They differ only while a controller writes them."""
    generations: tuple[Generation, ...]
    """Of the keys that sealed them."""


@dataclass(frozen=True, slots=True)
class NotReserved:
    """One side is missing, names another pair, or is not as the controller wrote it."""


PairReservation: TypeAlias = Reserved | NotReserved


class AuthenticReservations:
    """The authentic ones among the cached reservations."""

    def __init__(self, cache: Cache[Reservation], records: AuthenticRecords, namespace: str) -> None:
        self._cache = cache
        self._records = records
        self._namespace = namespace
        self._keys: ControllerKeys | None = None
        self._made: ReservationSeals | None = None

    def seals(self) -> ReservationSeals:
        """Seals under the current keys.

        Raises:
            Deferred: the controller key is not available.
        """
        keys = self._records.keys()
        if self._made is None or keys is not self._keys:
            self._keys, self._made = keys, ReservationSeals(keys)
        return self._made

    def verify(self, reservation: Reservation) -> Authentic | Unauthentic:
        """Whether the controller wrote exactly this side.

        Raises:
            Deferred: the controller key is not available.
        """
        return self.seals().verify(reservation)

    def of(self, pair: Pair) -> PairReservation:
        """What the cache says of the pair: a hint, and no ground for approval.

        Raises:
            Deferred: the controller key is not available.
        """
        sides = [self._cache.get(self._namespace, pair.name(side)) for side in ReservationSide]
        found = [side for side in sides if side is not None and side.pair == pair]
        verified = [one for one in map(self.verify, found) if isinstance(one, Authentic)]
        if len(verified) < len(ReservationSide):
            return NotReserved()
        return Reserved(tuple(side.basis for side in found), tuple(one.generation for one in verified))

    def hardware_of(self, pair: Pair) -> str:
        """The other name of the hardware, by the pair's attestor, that is reserved for its Machine; empty if none is.

        Raises:
            Deferred: the controller key is not available, or the reservation of the hardware is not authentic.
        """
        of_hardware = pair.of_hardware("")
        found = self._cache.get(self._namespace, of_hardware.name(ReservationSide.MACHINE))
        if found is None:
            return ""
        if not isinstance(self.verify(found), Authentic):
            raise Deferred(
                Reason.RESERVATION_PENDING,
                f"the reservation {found.name} of the hardware of {pair.machine} is not authentic: the node must "
                "attest again",
            )
        named = found.pair.identity
        return named.identity if named.provider == of_hardware.identity.provider else ""

    def authentic(self, reservations: Iterable[Reservation]) -> tuple[Reservation, ...]:
        """Those that the controller wrote.

        Raises:
            Deferred: the controller key is not available.
        """
        return tuple(one for one in reservations if isinstance(self.verify(one), Authentic))

    def backing(self, records: Iterable[AttestedNode]) -> tuple[AttestedNode, ...]:
        """The records whose pair was reserved after an attestation. A record that the controller key alone has sealed
        is not among them, whatever pair it names, nor one of an identity that another one replaced at its Machine.

        Raises:
            Deferred: the controller key is not available.
        """
        return tuple(
            record
            for record in records
            if self._was_attested(Pair(record.machine, record.identity))
            and not self._records.newest.is_of_former_identity(record)
        )

    def _was_attested(self, pair: Pair) -> bool:
        found = self.of(pair)
        return isinstance(found, Reserved) and all(isinstance(basis, Attested) for basis in found.bases)
