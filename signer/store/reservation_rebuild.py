"""Reservation rebuild from records after ``clusterctl move``, which moves records but not reservations.

Before a pair is reserved, the controller reserves the pair of every authentic record that names its Machine or its
identity. So an impostor that comes first meets the same conflict as before the move. This module does not choose
between records: an existing reservation wins; without one, the record with the latest attestation.

Records are trusted because they are sealed (:mod:`signer.model.seal`). An operator that replaces the hardware of a
Machine, and keeps its name and provider ID, must therefore delete its AttestedNode as well as its two reservations.
"""

from __future__ import annotations

import contextlib

from signer.model.decision import Refused
from signer.model.record import AttestedNode
from signer.model.reservation import Pair
from signer.rules.machine import MachineGone, NoRecord
from signer.store.caches import Caches
from signer.store.reservations import Reservations


class ReservationRebuild:
    """Reserves again the pairs that records name."""

    def __init__(self, caches: Caches, reservations: Reservations) -> None:
        self._caches = caches
        self._reservations = reservations

    async def rebuild(self, wanted: Pair) -> None:
        """Call this before ``wanted`` is reserved. If its own record is the newest, this costs two look-ups in indices.

        Raises:
            Deferred: the controller key is not available, or a reservation is contended or unreadable.
            ApiError: from the management cluster.
        """
        for record in self._caches.authentic.naming(wanted):
            pair = pair_of(record)
            if pair == wanted:
                return  # no other record has a later attestation
            if not self._reservations.cached(pair) and self._still_stands(record, wanted):
                await self._bring_back(record)

    async def ensure(self, record: AttestedNode) -> None:
        """Reserve the record's pair again, unless it belongs to another Machine or identity now, or its Machine is
        gone.

        Raises:
            Deferred: the controller key is not available, or a reservation is contended or unreadable.
            ApiError: from the management cluster.
        """
        pair = pair_of(record)
        machine = self._caches.machine(record.machine)
        if isinstance(machine, MachineGone) or machine.uid != record.machine_uid:
            return  # moved or created again: decided when its node makes a request
        await self.rebuild(pair)
        await self._bring_back(record)

    def _still_stands(self, record: AttestedNode, wanted: Pair) -> bool:
        """Whether the record counts for the current Machine.

        A move changes UIDs, and so does deleting and creating a Machine again: within the namespace, the record counts
        all the same. Hardware of another namespace may have passed on: its former owner could create the Machine again,
        and must not keep the identity from the Machine that is attested now.
        """
        if record.machine.cluster.namespace == wanted.machine.cluster.namespace:
            return True
        machine = self._caches.machine(record.machine)
        return not isinstance(machine, MachineGone) and machine.uid == record.machine_uid

    async def _bring_back(self, record: AttestedNode) -> None:
        # The caches may be stale. The API server says whether the Machine is gone, or the record, which an operator may
        # have deleted to free the identity or Machine.
        pair = pair_of(record)
        if not await self._reservations.live_reads.is_recorded(record) or await self._reservations.live_reads.is_gone(
            pair.machine
        ):
            return
        with contextlib.suppress(Refused):  # the current owner keeps it
            await self._reservations.reserve(pair, NoRecord())


def pair_of(record: AttestedNode) -> Pair:
    """The pair that a record names."""
    return Pair(record.machine, record.identity)
