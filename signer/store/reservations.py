"""Reservations: one identity belongs to one Machine, atomically, with any number of concurrent controllers.

Two objects make a pair. Each is named by what it reserves, so creating it is atomic. The Machine's side is created
first, the identity's side second, and their pair never changes. An object that is in the way is handled as follows:

- A side that the controller did not seal, or cannot read, gives and takes nothing: it is removed, at exactly the
  version that was read. If its seal names an unknown key, the controller key is read first.
- A Machine's side without an identity's side is *completed* by any controller that finds it: the identity was attested
  and matched before the first side was written, so the pair is valid, and its author may have died.
- A side whose partner names another, or an identity's side without a partner, is dead, and removed.
- A pair whose Machine is gone from the management cluster is released, and removed. An instance of a MachinePool is
  gone when its pool is gone or no longer lists it, and no Machine of that pool replaces it.
- A pair of a secure attestor displaces one of an insecure attestor, never the reverse.
- A complete pair of another Machine or identity is a conflict: the request is denied.
- An object that is being deleted does not count, whatever finalizer keeps it. The controller sets none, so it removes
  them. Otherwise one write would keep a Machine or an identity from everybody for ever.

Between the moment a side is found dead and its removal, its author may complete it. So a removal is announced:

- The remover first marks a dead or released side as *contested* in its metadata, then checks that it is dead, then
  deletes exactly that resourceVersion.
- A creator that has both sides reads the first one again before it relies on them, and clears such a mark, which
  changes the resourceVersion. A creator of both sides can skip this read: the watch delivers events in order
  (:mod:`signer.store.event_history`). If it has delivered both creations and no other event, no mark was set before the
  pair was complete.

In every order of events, either the remover sees the complete pair, or the owner sees the mark, or the delete fails. No
step depends on time or on the holder of a Lease; ``tests/unit/signer/store`` explores the interleavings.

Each side says what the pair was reserved for, its *basis*: an attestation of the Cluster and the Machine with these
UIDs, or a record alone. An attestation under other UIDs, or under a newer controller key, writes basis and seal of both
sides anew. This changes their resourceVersion, as the removal of a mark does.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from attestors.contract import Security
from signer.kube.calls import GetCreatePatchDelete
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, Conflict, NotFound
from signer.kube.resources import IDENTITY_RESERVATIONS
from signer.model.decision import Deferred, Refused
from signer.model.fields import mapping_of, text_of
from signer.model.reasons import Reason
from signer.model.record import AttestedNode
from signer.model.reservation import (
    CLOCKS_APART,
    CONTESTED_ANNOTATION,
    Attested,
    Basis,
    InvalidReservation,
    Pair,
    Reservation,
    ReservationSide,
    parse_reservation,
)
from signer.model.seal import Authentic, Fault, Generation, Unauthentic
from signer.rules.machine import NoRecord
from signer.store.authentic_reservations import Reserved
from signer.store.cache import InTouch
from signer.store.caches import Caches
from signer.store.event_history import EventHistory, ObservedEvent, Order
from signer.store.live_reads import LiveReads

_LOG = logging.getLogger(__name__)
_ATTEMPTS: Final = 8
_KEY_RETRY: Final = timedelta(seconds=2)
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

    async def reserve(self, pair: Pair, record: AttestedNode | NoRecord, basis: Basis) -> None:
        """Reserve ``pair`` on that basis. When this returns, both sides named ``pair`` at some moment of this call. If
        that was read, rather than delivered by the watch, the Machine's side still named it at the end of the call.

        A pair of an insecure attestor may be displaced between the two, and at any later moment: the caller reads the
        cache again before it relies on the pair (``ReserveAndJournal._require_still``).

        ``record`` is the record that the caller will change next, at exactly the version that it holds. If it names
        ``pair``, the cache is trusted: a controller that takes the pair for another writes that record too, so the
        caller's write would fail. A pair that was released without that, such as that of an instance that left its
        pool's list, is trusted until the cache receives the event.

        Raises:
            Refused: the identity or the Machine belongs to another (IdentityConflict).
            Deferred: other clients keep changing the same objects, or one of them is unreadable; or too many Machines
                of the namespace are reserved.
            ApiError: from the management cluster.
        """
        if _names(record, pair) and self.is_cached_as_written_now(pair, basis):
            return
        self._caches.require_room(pair)
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(_Changed), self._follow(pair) as event_history:
                created: list[ObservedEvent] = []
                machine_side = await self._create_or_read(ReservationSide.MACHINE, pair, basis, created)
                if machine_side.pair != pair:
                    await self._clear_machine_side(machine_side, pair)
                    continue
                identity_side = await self._create_or_read(ReservationSide.IDENTITY, pair, basis, created)
                if identity_side.pair != pair:
                    try:
                        await self._clear_identity_side(identity_side, pair)
                    except Refused:
                        with contextlib.suppress(_Changed):
                            await self._remove_dead(machine_side)
                        raise
                    continue
                if await self._watch_confirms(pair, created, event_history) is Order.OTHERWISE:
                    await self._confirm(machine_side, identity_side, basis)
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
        with contextlib.suppress(_Changed):
            found = [await self._read(side, pair) for side in ReservationSide]
            await self._release([side for side in found if side is not None and side.pair == pair])

    def cached(self, pair: Pair) -> bool:
        """Whether both sides name ``pair`` in the cache, and are the controller's: a hint, and no ground for approval.

        Raises:
            Deferred: the controller key is not available.
        """
        return isinstance(self._caches.authentic_reservations.of(pair), Reserved)

    def is_cached_as_written_now(self, pair: Pair, basis: Basis) -> bool:
        """Whether the cache has both sides as this controller would write them now, under the current key.

        Raises:
            Deferred: the controller key is not available.
        """
        found = self._caches.authentic_reservations.of(pair)
        return (
            isinstance(found, Reserved)
            and all(generation is Generation.CURRENT for generation in found.generations)
            and all(_is_kept(one, basis, pair) for one in found.bases)
        )

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

    async def _confirm(self, machine_side: Reservation, identity_side: Reservation, basis: Basis) -> None:
        """Both sides name the pair: make sure that no controller is about to remove one of them as dead, and that both
        have the basis and a seal under the current key.
        """
        await self._settle(identity_side, basis)
        await self._settle(await self._unchanged(machine_side), basis)

    async def _settle(self, found: Reservation, basis: Basis) -> None:
        kept = found.basis if _is_kept(found.basis, basis, found.pair) else basis
        if kept != found.basis or self._caches.authentic_reservations.verify(found) != Authentic(Generation.CURRENT):
            spec = self._caches.authentic_reservations.seals().spec(found.side, found.pair, kept)
            await self._write(found, {CONTESTED_ANNOTATION: None}, {"spec": spec})
        elif found.contested:
            await self._mark(found, contested=False)

    async def _clear_machine_side(self, found: Reservation, wanted: Pair) -> None:
        """The Machine is reserved for another identity: remove that reservation, or refuse."""
        if _is_displaced_by(found.pair, wanted):
            await self._displace(found, wanted)
            return
        partner = await self._read(ReservationSide.IDENTITY, found.pair)
        if partner is None:
            partner = await self._create_or_read(ReservationSide.IDENTITY, found.pair, found.basis, [])
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

    async def _create_or_read(
        self, side: ReservationSide, pair: Pair, basis: Basis, created: list[ObservedEvent]
    ) -> Reservation:
        """Create that side and add it to ``created``, or read the object that has its name."""
        body = {
            "apiVersion": IDENTITY_RESERVATIONS.api_version,
            "kind": "IdentityReservation",
            "metadata": {"name": pair.name(side), "namespace": self._namespace},
            "spec": self._caches.authentic_reservations.seals().spec(side, pair, basis),
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
        """The object that has that side's name. One that is not the controller's is removed, and does not count."""
        name = pair.name(side)
        try:
            manifest = await self._client.get(self._path(name))
        except NotFound:
            self._caches.reservations.forget(self._namespace, name)
            return None
        if "deletionTimestamp" in mapping_of(manifest, "metadata"):
            await self._remove_finalizers(name, manifest)
            return None
        try:
            found = self._caches.reservations.written(manifest) or parse_reservation(manifest)
        except InvalidReservation as error:
            await self._remove_unauthentic(name, manifest, str(error))
            return None
        verified = await self._verified(found)
        if isinstance(verified, Unauthentic):
            await self._remove_unauthentic(name, manifest, verified.fault.value)
            return None
        return found

    async def _verified(self, found: Reservation) -> Authentic | Unauthentic:
        """With the newest keys: another replica may have sealed it with a key that was not read here yet.

        Raises:
            Deferred: the key cannot be read now.
        """
        verified = self._caches.authentic_reservations.verify(found)
        if verified != Unauthentic(Fault.UNKNOWN_KEY):
            return verified
        if not await self._caches.controller_key.refresh(self._client):
            raise Deferred(
                Reason.CONTROLLER_KEY_UNAVAILABLE,
                f"IdentityReservation {found.name} was sealed with another key, and the controller key cannot be read",
                _KEY_RETRY,
            )
        return self._caches.authentic_reservations.verify(found)

    async def _remove_unauthentic(self, name: str, manifest: JsonObject, why: str) -> None:
        metadata = mapping_of(manifest, "metadata")
        uid, version = text_of(metadata, "uid"), text_of(metadata, "resourceVersion")
        _LOG.warning(
            "removing an IdentityReservation that is not authentic",
            extra={"namespace": self._namespace, "object": name, "resourceVersion": version, "error": why},
        )
        try:
            await self._client.delete(self._path(name), uid=uid, resource_version=version)
        except (NotFound, Conflict):
            raise _Changed from None
        self._caches.reservations.forget(self._namespace, name)

    async def _remove_finalizers(self, name: str, deleted: JsonObject) -> None:
        """Let the API server remove an object that is being deleted, at exactly the version that was read."""
        metadata = mapping_of(deleted, "metadata")
        version = {key: text_of(metadata, key) for key in ("uid", "resourceVersion")}
        _LOG.warning(
            "removing the finalizers of an IdentityReservation that is being deleted",
            extra={"namespace": self._namespace, "object": name, "resourceVersion": version["resourceVersion"]},
        )
        try:
            await self._client.patch(self._path(name), {"metadata": {**version, "finalizers": None}})
        except (NotFound, Conflict):
            raise _Changed from None
        self._caches.reservations.forget(self._namespace, name)

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
        return await self._write(reservation, {CONTESTED_ANNOTATION: "true" if contested else None}, {})

    async def _write(
        self, reservation: Reservation, annotations: dict[str, str | None], changes: JsonObject
    ) -> Reservation:
        """Change exactly the version that was read."""
        metadata = {
            "uid": reservation.uid,
            "resourceVersion": reservation.resource_version,
            "annotations": annotations,
        }
        try:
            written = await self._client.patch(self._path(reservation.name), {"metadata": metadata, **changes})
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


def _is_kept(found: Basis, wanted: Basis, pair: Pair) -> bool:
    """Whether a side with the basis ``found`` needs no other one to be reserved on the basis ``wanted``."""
    if not isinstance(wanted, Attested):
        return True
    return (
        isinstance(found, Attested)
        and found.is_for(wanted.cluster_uid, pair.machine, wanted.machine_uid)
        and found.at <= wanted.at + CLOCKS_APART
    )


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
