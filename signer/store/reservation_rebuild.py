"""Rebuilds reservations from records: :class:`ReservationRebuild`."""

from __future__ import annotations

import contextlib

from signer.model.decision import Refused
from signer.model.record import AttestedNode
from signer.model.reservation import FROM_RECORD, Pair
from signer.rules.machine import MachineGone, NoRecord
from signer.store.caches import Caches
from signer.store.reservations import Reservations


class ReservationRebuild:
    """Rebuilds reservations from our records: after ``clusterctl move``, which takes the records along and not them.

    Before a pair is reserved, every record of ours that names its Machine or its identity gets its own pair reserved.
    So an impostor who comes first meets the conflict that stood in his way before the move. Which of several records is
    right is not decided here: what is reserved already wins, and where nothing is, who was attested last.

    Records are believed because they are sealed (:mod:`signer.model.seal`). A pair that is rebuilt keeps others out,
    and its record approves nothing until the node attests again: the holder of the controller key can seal any record.
    Whoever replaces the hardware of a Machine and keeps its name and provider ID therefore deletes its AttestedNode as
    well as its two reservations.
    """

    def __init__(self, caches: Caches, reservations: Reservations) -> None:
        self._caches = caches
        self._reservations = reservations

    async def rebuild(self, wanted: Pair) -> None:
        """Call this before ``wanted`` is reserved. If its own record is the newest, this costs two look-ups in indices.

        Raises:
            Deferred: the controller key is not available, or a reservation is contended or cannot be read.
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
            Deferred: the controller key is not available, or a reservation is contended or cannot be read.
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

        Raises:
            Deferred: the other namespace is over a limit, so that its Machine may have been dropped.
        """
        if record.machine.cluster.namespace == wanted.machine.cluster.namespace:
            return True
        self._caches.require_all_kept(record.machine.cluster.namespace)
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
            await self._reservations.reserve(pair, NoRecord(), FROM_RECORD)


def pair_of(record: AttestedNode) -> Pair:
    """The pair that a record names."""
    return Pair(record.machine, record.identity)
