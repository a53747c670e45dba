"""Rebuilding reservations from our records: after ``clusterctl move``, which takes the records along and not them.

Before a pair is reserved, every record of ours that names its Machine or its identity gets its own pair reserved. So
an impostor who comes first meets the conflict that stood in his way before the move. Which of several records is right
is not decided here: what is reserved already wins, and where nothing is, who was attested last.

Records are believed because they are sealed (:mod:`signer.model.seal`). Whoever replaces the hardware of a Machine and
keeps its name and provider ID therefore deletes its AttestedNode as well as its two reservations.
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
    """Brings back the reservations that records ask for."""

    def __init__(self, caches: Caches, reservations: Reservations) -> None:
        self._caches = caches
        self._reservations = reservations

    async def rebuild(self, wanted: Pair) -> None:
        """To be called before ``wanted`` is reserved; a look-up in two indices where its own record is the newest.

        Raises:
            Deferred: the controller key is not available, or a reservation is contended or cannot be read.
            ApiError: from the management cluster.
        """
        for record in self._caches.authentic.naming(wanted):
            pair = pair_of(record)
            if pair == wanted:
                return  # nobody was attested later
            if not self._reservations.cached(pair) and self._still_stands(record, wanted):
                await self._bring_back(record)

    async def ensure(self, record: AttestedNode) -> None:
        """Reserve the pair of that record of ours again, unless it belongs to others now, or its Machine is gone.

        Raises:
            Deferred: the controller key is not available, or a reservation is contended or cannot be read.
            ApiError: from the management cluster.
        """
        pair = pair_of(record)
        machine = self._caches.machine(record.machine)
        if isinstance(machine, MachineGone) or machine.uid != record.machine_uid:
            return  # moved or made anew: its node is looked at when it asks
        await self.rebuild(pair)
        await self._bring_back(record)

    def _still_stands(self, record: AttestedNode, wanted: Pair) -> bool:
        """Whether the record speaks for the Machine that is there now.

        A move changes UIDs, and so does whoever deletes a Machine and makes it anew: within the namespace the record
        is believed all the same. Another namespace's hardware may have passed on: there a Machine object alone, made
        anew by its former owner, must not keep the identity from who is attested now.
        """
        if record.machine.cluster.namespace == wanted.machine.cluster.namespace:
            return True
        machine = self._caches.machine(record.machine)
        return not isinstance(machine, MachineGone) and machine.uid == record.machine_uid

    async def _bring_back(self, record: AttestedNode) -> None:
        # Caches may be behind: the API server itself says whether the record is gone, which somebody may have deleted
        # to make room for other hardware, or the Machine.
        pair = pair_of(record)
        if not await self._reservations.live_reads.is_recorded(record) or await self._reservations.live_reads.is_gone(
            pair.machine
        ):
            return
        with contextlib.suppress(Refused):  # who has it now has it
            await self._reservations.reserve(pair, NoRecord())


def pair_of(record: AttestedNode) -> Pair:
    """The pair that a record asks for."""
    return Pair(record.machine, record.identity)
