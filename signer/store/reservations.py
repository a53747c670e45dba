"""Reservations: one identity belongs to one Machine, atomically, with any number of concurrent controllers.

Two objects make a pair. Each is named by what it reserves, so creating it is atomic. The Machine's side is created
first, the identity's side second, and their content never changes. An object that is in the way is handled as follows:

- A Machine's side without an identity's side is *completed* by any controller that finds it: the identity was attested
  and matched before the first side was written, so the pair is valid, and its author may have died.
- A side whose partner names another, or an identity's side without a partner, is dead, and removed.
- A pair whose Machine is gone from the management cluster is released, and removed. An instance of a MachinePool is
  gone when its pool is gone or no longer lists it, and no Machine of that pool replaces it.
- A pair of a secure attestor displaces one of an insecure attestor, never the reverse.
- A complete pair of another Machine or identity is a conflict: the request is denied.

Between the moment a side is found dead and its removal, its author may complete it. So a removal is announced:

- The remover first marks a dead or released side as *contested* in its metadata, then checks that it is dead, then
  deletes exactly that resourceVersion.
- A creator that has both sides reads the first one again before it relies on them, and clears such a mark, which
  changes the resourceVersion. A creator of both sides can skip this read: the watch delivers events in order
  (:mod:`signer.store.event_history`). If it has delivered both creations and no other event, no mark was set before the
  pair was complete.

In every order of events, either the remover sees the complete pair, or the owner sees the mark, or the delete fails. No
step depends on time or on the holder of a Lease; ``tests/unit/signer/store`` explores the interleavings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from attestors.contract import Security
from signer.kube.calls import GetCreatePatchDelete
from signer.kube.errors import AlreadyExists, Conflict, NotFound
from signer.kube.resources import IDENTITY_RESERVATIONS
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.model.record import AttestedNode
from signer.model.reservation import (
    CONTESTED_ANNOTATION,
    InvalidReservation,
    Pair,
    Reservation,
    ReservationSide,
    parse_reservation,
    reservation_spec,
)
from signer.rules.machine import MachineGone, NoRecord
from signer.store.cache import InTouch
from signer.store.caches import Caches
from signer.store.event_history import EventHistory, ObservedEvent, Order
from signer.store.live_reads import LiveReads

_ATTEMPTS: Final = 8
_WATCH_SECONDS: Final = 0.5
"""Maximum wait for the event of a write: some milliseconds, and the garbage collection pauses of an API server."""


class _Changed(Exception):
    """An object changed since it was read: start over."""


class Reservations:
    """The reservations in the controller's own namespace."""

    def __init__(self, client: GetCreatePatchDelete, caches: Caches) -> None:
        self._client = client
        self._caches = caches
        self._namespace = caches.own_namespace
        self.live_reads = LiveReads(client, caches)
        self._silent_since = float("-inf")
        """When the cache had last received anything at the time of a wait for the watch that timed out."""

    async def reserve(self, pair: Pair, record: AttestedNode | NoRecord) -> None:
        """Reserve ``pair``. When this returns, both sides named ``pair`` at some moment of this call. If that was read,
        rather than delivered by the watch, the Machine's side still named it at the end of the call.

        A pair of an insecure attestor may be displaced between the two, and at any later moment: the caller reads the
        cache again before it relies on the pair (``ReserveAndJournal._require_still``).

        ``record`` is the record that the caller will change next, at exactly the version that it holds. If it names
        ``pair``, the cache is trusted: a controller that takes the pair for another writes that record too, so the
        caller's write would fail. A pair that was released without that, such as that of an instance that left its
        pool's list, is trusted until the cache receives the event.

        Raises:
            Refused: the identity or the Machine belongs to another (IdentityConflict).
            Deferred: other clients keep changing the same objects, or one of them is unreadable.
            ApiError: from the management cluster.
        """
        if _names(record, pair) and self.cached(pair):
            return
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(_Changed), self._follow(pair) as event_history:
                created: list[ObservedEvent] = []
                machine_side = await self._create_or_read(ReservationSide.MACHINE, pair, created)
                if machine_side.pair != pair:
                    await self._clear_machine_side(machine_side, pair)
                    continue
                identity_side = await self._create_or_read(ReservationSide.IDENTITY, pair, created)
                if identity_side.pair != pair:
                    try:
                        await self._clear_identity_side(identity_side, pair)
                    except Refused:
                        with contextlib.suppress(_Changed):
                            await self._remove_dead(machine_side)
                        raise
                    continue
                if await self._watch_confirms(pair, created, event_history) is Order.OTHERWISE:
                    await self._confirm(machine_side, identity_side)
                return
        raise Deferred(Reason.RESERVATION_PENDING, "the reservation is contended; the controller tries again")

    async def release(self, pair: Pair) -> None:
        """Remove the remaining sides of ``pair`` if its Machine is gone; a side that another controller relies on
        meanwhile stays.

        Raises:
            Deferred: one of its objects is unreadable.
            ApiError: from the management cluster.
        """
        if not await self.live_reads.is_gone(pair.machine):
            return
        found = [await self._read(side, pair) for side in ReservationSide]
        with contextlib.suppress(_Changed):
            await self._release([side for side in found if side is not None and side.pair == pair])

    def cached(self, pair: Pair) -> bool:
        """Whether both sides name ``pair`` in the cache: a hint, and no ground for approval."""
        sides = (self._caches.reservations.get(self._namespace, pair.name(side)) for side in ReservationSide)
        return all(side is not None and side.pair == pair for side in sides)

    def is_of_others(self, pair: Pair) -> bool:
        """Whether a side of ``pair`` names another partner in the cache. :meth:`reserve` says whether it counts."""
        sides = (self._caches.reservations.get(self._namespace, pair.name(side)) for side in ReservationSide)
        return any(side is not None and side.pair != pair for side in sides)

    def _follow(self, pair: Pair) -> contextlib.AbstractContextManager[EventHistory]:
        """Record the watch events of both sides from now on."""
        return self._caches.reservations.event_histories.follow(
            (self._namespace, pair.name(side)) for side in ReservationSide
        )

    async def _watch_confirms(self, pair: Pair, created: Sequence[ObservedEvent], event_history: EventHistory) -> Order:
        """Whether the watch delivered exactly the creations of both sides, and no other event of them.

        Not used for an insecure pair: a secure one may displace it before the events arrive.
        """
        cache = self._caches.reservations
        last_activity_at = cache.last_activity_at
        is_watched = isinstance(cache.touch(), InTouch) and last_activity_at != self._silent_since
        if pair.identity.security is Security.INSECURE or len(created) < len(ReservationSide) or not is_watched:
            return Order.OTHERWISE
        order = await event_history.expect(created, _WATCH_SECONDS)
        if cache.last_activity_at == last_activity_at and order is Order.OTHERWISE:
            self._silent_since = last_activity_at  # a hanging watch delays one call, not thousands
        return order

    async def _confirm(self, machine_side: Reservation, identity_side: Reservation) -> None:
        """Both sides name the pair: make sure that no controller is about to remove one of them as dead."""
        if identity_side.contested:
            await self._mark(identity_side, contested=False)
        current = await self._unchanged(machine_side)
        if current.contested:
            await self._mark(current, contested=False)

    async def _clear_machine_side(self, found: Reservation, wanted: Pair) -> None:
        """The Machine is reserved for another identity: remove that reservation, or refuse."""
        if _is_displaced_by(found.pair, wanted):
            await self._displace(found, wanted)
            return
        partner = await self._read(ReservationSide.IDENTITY, found.pair)
        if partner is None:
            partner = await self._create_or_read(ReservationSide.IDENTITY, found.pair, [])
        if not partner.is_partner_of(found):
            await self._remove_dead(found)
            return
        await self._unchanged(found)
        raise Refused(
            Reason.IDENTITY_CONFLICT,
            f"{found.pair.machine} belongs to another identity, attested by {found.pair.identity.provider}",
        )

    async def _displace(self, found: Reservation, wanted: Pair) -> None:
        """Remove a pair of an insecure attestor, complete or not, unless the wanted identity belongs to another
        Machine.
        """
        own = await self._read(ReservationSide.IDENTITY, wanted)
        if own is not None and own.pair.machine != wanted.machine:
            await self._clear_identity_side(own, wanted)
            return
        partner = await self._read(ReservationSide.IDENTITY, found.pair)
        # Identity's side first: an owner that succeeds now still reads its own Machine's side, so it succeeds before
        # this pair.
        if partner is not None and partner.pair == found.pair:
            await self._delete(partner)
        await self._delete(found)

    async def _clear_identity_side(self, found: Reservation, wanted: Pair) -> None:
        """The identity is reserved for another Machine: release it if that Machine is gone, or refuse."""
        if found.pair.machine == wanted.machine:
            # The same pair with another security of the attestor: write it again.
            await self._delete(found)
            return
        partner = await self._read(ReservationSide.MACHINE, found.pair)
        if partner is None or not partner.is_partner_of(found):
            await self._remove_dead(found)
        elif await self.live_reads.is_gone(found.pair.machine):
            await self._release((partner, found))
        else:
            await self._unchanged(found)
            raise Refused(
                Reason.IDENTITY_CONFLICT,
                f"the identity belongs to {_owner_shown_for(wanted, found)}, not to {wanted.machine}",
            )

    async def _remove_dead(self, found: Reservation) -> None:
        """Remove a side that has no valid partner, unless the pair has been completed meanwhile."""
        contested = await self._mark(found, contested=True)
        partner = await self._read(found.side.other, found.pair)
        if partner is None and found.side is ReservationSide.MACHINE:
            raise _Changed  # a single Machine's side is completed instead
        if partner is None or not partner.is_partner_of(found):
            await self._delete(contested)

    async def _release(self, sides: Sequence[Reservation]) -> None:
        """Remove the sides of a pair whose Machine is gone, unless the Machine exists again."""
        contested = [await self._mark(side, contested=True) for side in sides]
        if contested and await self.live_reads.is_gone(contested[0].pair.machine):
            for side in contested:
                await self._delete(side)

    async def _create_or_read(self, side: ReservationSide, pair: Pair, created: list[ObservedEvent]) -> Reservation:
        """Create that side and add it to ``created``, or read the object that has its name."""
        body = {
            "apiVersion": IDENTITY_RESERVATIONS.api_version,
            "kind": "IdentityReservation",
            "metadata": {"name": pair.name(side), "namespace": self._namespace},
            "spec": reservation_spec(pair),
        }
        try:
            manifest = await self._client.create(IDENTITY_RESERVATIONS.collection(self._namespace), body)
        except AlreadyExists:
            existing = await self._read(side, pair)
            if existing is None:
                raise _Changed from None
            return existing
        reservation = self._caches.reservations.written(manifest) or parse_reservation(manifest)
        created.append(((self._namespace, reservation.name), reservation.resource_version))
        return reservation

    async def _read(self, side: ReservationSide, pair: Pair) -> Reservation | None:
        name = pair.name(side)
        try:
            manifest = await self._client.get(self._path(name))
        except NotFound:
            self._caches.reservations.forget(self._namespace, name)
            return None
        try:
            return self._caches.reservations.written(manifest) or parse_reservation(manifest)
        except InvalidReservation as error:
            raise Deferred(
                Reason.RESERVATION_PENDING, f"IdentityReservation {name} cannot be read ({error}): delete it"
            ) from error

    async def _unchanged(self, before: Reservation) -> Reservation:
        """Read that object again; only its mark may have changed."""
        current = await self._read(before.side, before.pair)
        if current is None or current.uid != before.uid:
            raise _Changed
        return current

    async def _mark(self, reservation: Reservation, *, contested: bool) -> Reservation:
        """Set or clear the mark of removal, at exactly the version that was read."""
        if reservation.contested == contested:
            return reservation
        metadata = {
            "uid": reservation.uid,
            "resourceVersion": reservation.resource_version,
            "annotations": {CONTESTED_ANNOTATION: "true" if contested else None},
        }
        try:
            written = await self._client.patch(self._path(reservation.name), {"metadata": metadata})
        except (NotFound, Conflict):
            raise _Changed from None
        return self._caches.reservations.written(written) or parse_reservation(written)

    async def _delete(self, reservation: Reservation) -> None:
        """Delete exactly the version that was read; an object that was changed or created again meanwhile stays."""
        path = self._path(reservation.name)
        try:
            await self._client.delete(path, uid=reservation.uid, resource_version=reservation.resource_version)
        except (NotFound, Conflict):
            raise _Changed from None
        self._caches.reservations.forget(self._namespace, reservation.name)

    def _path(self, name: str) -> str:
        return IDENTITY_RESERVATIONS.object(name, self._namespace)


def _is_displaced_by(found: Pair, wanted: Pair) -> bool:
    return found.identity.security is Security.INSECURE and wanted.identity.security is Security.SECURE


def _owner_shown_for(wanted: Pair, found: Reservation) -> str:
    """The owner as a denial names it. Tenants read denials in the workload cluster, so a Machine of another namespace
    is named only to the operator.
    """
    owner = found.pair.machine
    if owner.cluster.namespace == wanted.machine.cluster.namespace:
        return str(owner)
    return f"a Machine of another namespace, which IdentityReservation {found.name} names to the operator"


def _names(record: AttestedNode | NoRecord, pair: Pair) -> bool:
    return isinstance(record, AttestedNode) and record.machine == pair.machine and record.identity == pair.identity


class ReservationRebuild:
    """Rebuilds reservations from our records: after ``clusterctl move``, which takes the records along and not them.

    Before a pair is reserved, every record of ours that names its Machine or its identity gets its own pair reserved.
    So an impostor who comes first meets the conflict that stood in his way before the move. Which of several records is
    right is not decided here: what is reserved already wins, and where nothing is, who was attested last.

    Records are believed because they are sealed (:mod:`signer.model.seal`). Whoever replaces the hardware of a Machine
    and keeps its name and provider ID therefore deletes its AttestedNode as well as its two reservations.
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
