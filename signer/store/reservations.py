"""Reserving: one identity belongs to one Machine, atomically, under any number of racing controllers.

Two objects make a pair, each named by what it reserves, so that creating one is atomic. The Machine's side is created
first, the identity's second, and what they say is never changed. For every object that is found in the way:

- a Machine's side whose identity's side is missing is *completed*, by whoever finds it: the identity was attested and
  matched before the first side was written, so the pair is right, and its author may be dead;
- a side whose partner names somebody else, or an identity's side without a partner, is dead, and removed;
- a pair whose Machine is gone from the management cluster is released, and removed; an instance of a MachinePool is
  gone when its pool is gone or no longer lists it, and no Machine of that pool stands for it;
- a pair of an insecure attestor gives way to a secure one, never the reverse;
- a whole pair of somebody else is a conflict, which is denied.

Between finding that a side is dead and removing it, its author may complete it and succeed. So a removal is announced:

- who removes a dead or released side first *contests* it (a mark in its metadata), only then looks whether it really is
  dead, and deletes exactly that resourceVersion;
- who has both sides looks at the first once more before it relies on them, and clears such a mark, which changes the
  resourceVersion. Who has just created both need not read it: the watch tells in order
  (:mod:`signer.store.event_history`), and where it has said of these two that each was created, and nothing else, no
  mark was made before the pair was whole.

Whatever the order, either the remover sees the whole pair, or the owner sees the mark, or the delete fails.
No step rests on time or on who holds a Lease; ``tests/unit/signer/store`` explores the interleavings.
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
from signer.store.event_history import EventHistory, Heard, Order
from signer.store.live_reads import LiveReads

_ATTEMPTS: Final = 8
_WATCH_SECONDS: Final = 0.5
"""For the event of a write to come: some milliseconds, and the pauses of an API server that collects garbage."""


class _Changed(Exception):
    """What was looked at is no longer so: begin again."""


class Reservations:
    """The reservations in the controller's own namespace."""

    def __init__(self, client: GetCreatePatchDelete, caches: Caches) -> None:
        self._client = client
        self._caches = caches
        self._namespace = caches.own_namespace
        self.live_reads = LiveReads(client, caches)
        self._waited_in_vain = float("-inf")
        """When the cache had last heard something while the watch was waited for, and said nothing."""

    async def reserve(self, pair: Pair, record: AttestedNode | NoRecord) -> None:
        """Return once both sides said ``pair``, at some moment of this call. Where that was read, and not told by the
        watch, its Machine's side still says so at the end of it.

        An insecure attestor's pair may be displaced between the two, and at any later moment: who has it looks at the
        cache again before he relies on it (``ReserveAndJournal._require_still``).

        ``record`` is what the caller will change next, at exactly the version that it holds. Where it names ``pair``,
        the cache is believed: whoever takes the pair for another writes that record too, and the caller's write would
        fail. One that was released without that, as a pool's instance that left the list, is believed until the cache
        hears of it.

        Raises:
            Refused: identity or Machine belong to another (IdentityConflict).
            Deferred: others keep changing the same objects, or one of them cannot be read.
            ApiError: from the management cluster.
        """
        if _names(record, pair) and self.cached(pair):
            return
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(_Changed), self._follow(pair) as event_history:
                created: list[Heard] = []
                machine_side = await self._take(ReservationSide.MACHINE, pair, created)
                if machine_side.pair != pair:
                    await self._clear_machine_side(machine_side, pair)
                    continue
                identity_side = await self._take(ReservationSide.IDENTITY, pair, created)
                if identity_side.pair != pair:
                    try:
                        await self._clear_identity_side(identity_side, pair)
                    except Refused:
                        with contextlib.suppress(_Changed):
                            await self._remove_dead(machine_side)
                        raise
                    continue
                if await self._undisturbed(pair, created, event_history) is Order.OTHERWISE:
                    await self._confirm(machine_side, identity_side)
                return
        raise Deferred(Reason.RESERVATION_PENDING, "the reservation is contended; it is tried again")

    async def release(self, pair: Pair) -> None:
        """Remove what stands of ``pair``, if its Machine is gone; it stays where somebody relies on it meanwhile.

        Raises:
            Deferred: one of its objects cannot be read.
            ApiError: from the management cluster.
        """
        if not await self.live_reads.is_gone(pair.machine):
            return
        found = [await self._read(side, pair) for side in ReservationSide]
        with contextlib.suppress(_Changed):
            await self._release([side for side in found if side is not None and side.pair == pair])

    def cached(self, pair: Pair) -> bool:
        """Whether both sides said ``pair`` when the cache last heard of them: a hint, and no ground for approval."""
        sides = (self._caches.reservations.get(self._namespace, pair.name(side)) for side in ReservationSide)
        return all(side is not None and side.pair == pair for side in sides)

    def _follow(self, pair: Pair) -> contextlib.AbstractContextManager[EventHistory]:
        """Hear from now on what the watch says of both sides."""
        return self._caches.reservations.event_histories.follow(
            (self._namespace, pair.name(side)) for side in ReservationSide
        )

    async def _undisturbed(self, pair: Pair, created: Sequence[Heard], event_history: EventHistory) -> Order:
        """Whether nothing became of the Machine's side but that we created it, until we created the identity's.

        Not asked for an insecure pair: by when that is heard, a secure one may have displaced it.
        """
        cache = self._caches.reservations
        heard_at = cache.heard_at
        heard = isinstance(cache.touch(), InTouch) and heard_at != self._waited_in_vain
        if pair.identity.security is Security.INSECURE or len(created) < len(ReservationSide) or not heard:
            return Order.OTHERWISE
        order = await event_history.expect(created, _WATCH_SECONDS)
        if cache.heard_at == heard_at and order is Order.OTHERWISE:
            self._waited_in_vain = heard_at  # a watch that hangs holds up one, and not each of thousands
        return order

    async def _confirm(self, machine_side: Reservation, identity_side: Reservation) -> None:
        """Both sides were ours: make sure that nobody is about to remove one of them as dead."""
        if identity_side.contested:
            await self._mark(identity_side, contested=False)
        current = await self._unchanged(machine_side)
        if current.contested:
            await self._mark(current, contested=False)

    async def _clear_machine_side(self, found: Reservation, wanted: Pair) -> None:
        """The Machine is reserved for another identity: make room, or refuse."""
        if _gives_way(found.pair, wanted):
            await self._displace(found, wanted)
            return
        partner = await self._read(ReservationSide.IDENTITY, found.pair)
        if partner is None:
            partner = await self._take(ReservationSide.IDENTITY, found.pair, [])
        if not partner.is_partner_of(found):
            await self._remove_dead(found)
            return
        await self._unchanged(found)
        raise Refused(
            Reason.IDENTITY_CONFLICT,
            f"{found.pair.machine} belongs to another identity, attested by {found.pair.identity.provider}",
        )

    async def _displace(self, found: Reservation, wanted: Pair) -> None:
        """Remove an insecure attestor's pair, whole or half; not for an identity that belongs elsewhere."""
        own = await self._read(ReservationSide.IDENTITY, wanted)
        if own is not None and own.pair.machine != wanted.machine:
            await self._clear_identity_side(own, wanted)
            return
        partner = await self._read(ReservationSide.IDENTITY, found.pair)
        # The identity's side first: an owner that succeeds at this moment still finds the Machine's side its own, and
        # so does so before we do.
        if partner is not None and partner.pair == found.pair:
            await self._delete(partner)
        await self._delete(found)

    async def _clear_identity_side(self, found: Reservation, wanted: Pair) -> None:
        """The identity is reserved for another Machine: release it if that Machine is gone, or refuse."""
        if found.pair.machine == wanted.machine:
            # The same two, recorded with another word for the attestor's security: write it anew.
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
                f"the identity belongs to {_owner_told_to(wanted, found)}, not to {wanted.machine}",
            )

    async def _remove_dead(self, found: Reservation) -> None:
        """Remove a side that makes no pair, unless it makes one after all."""
        contested = await self._mark(found, contested=True)
        partner = await self._read(found.side.other, found.pair)
        if partner is None and found.side is ReservationSide.MACHINE:
            raise _Changed  # a half pair, to be completed
        if partner is None or not partner.is_partner_of(found):
            await self._delete(contested)

    async def _release(self, sides: Sequence[Reservation]) -> None:
        """Remove what stands of a pair whose Machine is gone, unless the Machine, or its owner, is back."""
        contested = [await self._mark(side, contested=True) for side in sides]
        if contested and await self.live_reads.is_gone(contested[0].pair.machine):
            for side in contested:
                await self._delete(side)

    async def _take(self, side: ReservationSide, pair: Pair, created: list[Heard]) -> Reservation:
        """Create that side, which is added to ``created``, or read what stands in its place."""
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
        reservation = parse_reservation(manifest)
        created.append(((self._namespace, reservation.name), reservation.resource_version))
        return self._caches.reservations.written(manifest) or reservation

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
        """That very object as it is now; only its mark may have changed."""
        current = await self._read(before.side, before.pair)
        if current is None or current.uid != before.uid:
            raise _Changed
        return current

    async def _mark(self, reservation: Reservation, *, contested: bool) -> Reservation:
        """Announce its removal, or take that back: in exactly the version that was read."""
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
        """Delete exactly the version that was read; one that was changed or re-created meanwhile stays."""
        path = self._path(reservation.name)
        try:
            await self._client.delete(path, uid=reservation.uid, resource_version=reservation.resource_version)
        except (NotFound, Conflict):
            raise _Changed from None
        self._caches.reservations.forget(self._namespace, reservation.name)

    def _path(self, name: str) -> str:
        return IDENTITY_RESERVATIONS.object(name, self._namespace)


def _gives_way(found: Pair, wanted: Pair) -> bool:
    return found.identity.security is Security.INSECURE and wanted.identity.security is Security.SECURE


def _owner_told_to(wanted: Pair, found: Reservation) -> str:
    """A denial is read in the workload cluster: of another namespace's Machine it says where the operator finds it."""
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
