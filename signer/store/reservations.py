"""Reserving: one identity belongs to one Machine, atomically, under any number of racing controllers.

The rule that makes it safe: the Machine's side is created first, the identity's second, and neither is ever updated.
Creating an object that exists fails, so exactly one of several creates the identity's side. Then, for every object
that is found in the way:

- a Machine's side whose identity's side is missing is *completed*, by whoever finds it: the identity was attested and
  matched before the first side was written, so the pair is right, and its author may be dead;
- a Machine's side whose identity's side names another Machine is dead, and removed by its UID;
- an identity's side whose Machine is gone from the management cluster is released, and removed by its UID;
- a pair of an insecure attestor gives way to a secure one, never the reverse;
- a whole pair of somebody else is a conflict, which is denied.

No step rests on time or on who holds a Lease.
"""

from __future__ import annotations

import contextlib
from typing import Final, Protocol

from attestors.contract import Security
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, Conflict, NotFound
from signer.kube.resources import IDENTITY_RESERVATIONS
from signer.model.cluster import machine_view
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.model.record import MachineKey
from signer.model.reservation import (
    InvalidReservation,
    Pair,
    Reservation,
    ReservationSide,
    parse_reservation,
    reservation_spec,
)
from signer.store.inventory import Inventory

_ATTEMPTS: Final = 8


class ManagementCalls(Protocol):
    """The calls that are used of :class:`~signer.kube.client.Client`."""

    async def get(self, path: str) -> JsonObject:
        """See Client."""
        ...

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        """See Client."""
        ...

    async def delete(self, path: str, *, uid: str | None = None) -> JsonObject:
        """See Client."""
        ...


class Reservations:
    """The reservations in the controller's own namespace."""

    def __init__(self, client: ManagementCalls, inventory: Inventory) -> None:
        self._client = client
        self._inventory = inventory
        self._namespace = inventory.own_namespace

    async def reserve(self, pair: Pair) -> None:
        """Return once both sides say ``pair``.

        Raises:
            Refused: identity or Machine belong to another (IdentityConflict).
            Deferred: others keep changing the same objects, or one of them cannot be read.
            ApiError: from the management cluster.
        """
        if self._mirrored(pair):
            return
        for _ in range(_ATTEMPTS):
            machine_side = await self._take(ReservationSide.MACHINE, pair)
            if machine_side.pair != pair:
                await self._clear_machine_side(machine_side, pair)
                continue
            identity_side = await self._take(ReservationSide.IDENTITY, pair)
            if identity_side.pair == pair:
                return
            await self._clear_identity_side(identity_side, machine_side)
        raise Deferred(Reason.RESERVATION_PENDING, "the reservation is contended; it is tried again")

    def _mirrored(self, pair: Pair) -> bool:
        sides = (self._inventory.reservations.get(self._namespace, pair.name(side)) for side in ReservationSide)
        return all(side is not None and side.pair == pair for side in sides)

    async def _clear_machine_side(self, found: Reservation, wanted: Pair) -> None:
        """The Machine is reserved for another identity: make room, or refuse."""
        partner = await self._read(ReservationSide.IDENTITY, found.pair)
        if partner is None:
            if not _gives_way(found.pair, wanted):
                partner = await self._take(ReservationSide.IDENTITY, found.pair)
            else:
                await self._remove(found)
                return
        if partner.pair.machine.digest != found.pair.machine.digest:
            await self._remove(found)
        elif _gives_way(found.pair, wanted):
            await self._remove(partner)
            await self._remove(found)
        else:
            raise Refused(
                Reason.IDENTITY_CONFLICT,
                f"{found.pair.machine} belongs to another identity, attested by {found.pair.identity.provider}",
            )

    async def _clear_identity_side(self, found: Reservation, ours: Reservation) -> None:
        """The identity is reserved for another Machine: release it if that Machine is gone, or refuse."""
        if found.pair.machine.digest == ours.pair.machine.digest:
            # The same two, recorded with another word for the attestor's security: write it anew.
            await self._remove(found)
            return
        partner = await self._read(ReservationSide.MACHINE, found.pair)
        if partner is None or partner.pair.identity.digest != found.pair.identity.digest:
            await self._remove(found)
        elif await self._is_gone(found.pair.machine):
            await self._remove(found)
            await self._remove(partner)
        else:
            await self._remove(ours)
            raise Refused(
                Reason.IDENTITY_CONFLICT, f"the identity belongs to {found.pair.machine}, not to {ours.pair.machine}"
            )

    async def _is_gone(self, machine: MachineKey) -> bool:
        """Whether that Machine no longer exists, asked of the API server itself."""
        try:
            path = self._inventory.version.machines.object(machine.name, machine.cluster.namespace)
            current = machine_view(await self._client.get(path))
        except NotFound:
            return True
        return MachineKey.of(current) != machine

    async def _take(self, side: ReservationSide, pair: Pair) -> Reservation:
        """Create that side, or read what stands in its place."""
        body = {
            "apiVersion": IDENTITY_RESERVATIONS.api_version,
            "kind": "IdentityReservation",
            "metadata": {"name": pair.name(side), "namespace": self._namespace},
            "spec": reservation_spec(pair),
        }
        for _ in range(_ATTEMPTS):
            try:
                created = await self._client.create(IDENTITY_RESERVATIONS.collection(self._namespace), body)
            except AlreadyExists:
                existing = await self._read(side, pair)
                if existing is not None:
                    return existing
            else:
                self._inventory.reservations.written(created)
                return parse_reservation(created)
        raise Deferred(Reason.RESERVATION_PENDING, "the reservation is contended; it is tried again")

    async def _read(self, side: ReservationSide, pair: Pair) -> Reservation | None:
        name = pair.name(side)
        try:
            manifest = await self._client.get(IDENTITY_RESERVATIONS.object(name, self._namespace))
        except NotFound:
            self._inventory.reservations.forget(self._namespace, name)
            return None
        self._inventory.reservations.written(manifest)
        try:
            return parse_reservation(manifest)
        except InvalidReservation as error:
            raise Deferred(
                Reason.RESERVATION_PENDING, f"IdentityReservation {name} cannot be read ({error}): delete it"
            ) from error

    async def _remove(self, reservation: Reservation) -> None:
        """Delete exactly that object; one that was re-created meanwhile stays."""
        path = IDENTITY_RESERVATIONS.object(reservation.name, self._namespace)
        with contextlib.suppress(NotFound, Conflict):
            await self._client.delete(path, uid=reservation.uid)
        self._inventory.reservations.forget(self._namespace, reservation.name)


def _gives_way(found: Pair, wanted: Pair) -> bool:
    return found.identity.security is Security.INSECURE and wanted.identity.security is Security.SECURE
